"""A small labelled image data set in one file, to be read whole into memory.

A packed file is a NumPy archive without pickled objects: for each split ``SPLIT_images``
(N, H, W, 3), RGB bytes, and ``SPLIT_labels`` (N,), and the names of the ``classes``. Images are
stored as differences between neighbouring rows, columns and channels, which halves CIFAR.
"""
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

AXES = (1, 2, 3)  # rows, columns, channels


class PackedSplit(NamedTuple):
    """Images (N, H, W, 3) as RGB bytes, their labels (N,), and the names of all classes."""
    images: np.ndarray
    labels: np.ndarray
    classes: tuple[str, ...]


def write_packed(path: str | Path, splits: Mapping[str, tuple[np.ndarray, Sequence[int]]],
                 classes: Sequence[str]) -> None:
    """Write the splits of a data set.

    Args:
        path: Of the file; it gets no suffix that it does not have.
        splits: Images (N, H, W, 3), uint8 RGB, and N labels, by the name of the split.
        classes: Their names, in the order of the labels.

    Raises:
        ValueError: Images of another kind, not as many labels as images, or labels outside the
            classes.
    """
    arrays = dict(classes=np.array(classes, dtype=str))
    for name, (images, labels) in splits.items():
        labels = np.asarray(labels, dtype=np.int64)
        if images.dtype != np.uint8 or images.ndim != 4 or images.shape[3] != 3:
            raise ValueError(f'{name}: images are {images.dtype} {images.shape}, expected uint8 '
                             '(N, H, W, 3)')
        if labels.shape != images.shape[:1]:
            raise ValueError(f'{name}: {len(images)} images, but labels of shape {labels.shape}')
        if len(labels) and not 0 <= labels.min() <= labels.max() < len(classes):
            raise ValueError(f'{name}: labels from {labels.min()} to {labels.max()}, but there '
                             f'are {len(classes)} classes')
        for axis in AXES:
            images = np.diff(images, axis=axis, prepend=np.uint8(0))  # bytes wrap around
        arrays.update({f'{name}_images': images, f'{name}_labels': labels})
    with open(path, 'wb') as file:  # np.savez would add .npz to a path
        np.savez_compressed(file, **arrays)


def read_packed(path: str | Path, split: str) -> PackedSplit:
    """Read one split.

    Raises:
        ValueError: The file is no packed data set or has no such split.
    """
    if not zipfile.is_zipfile(path):  # NumPy would ask to unpickle it
        raise ValueError(f'{path} is no packed data set, or not all of one: make one with '
                         'tools/pack_cifar.py')
    with np.load(path) as archive:
        names = [name.removesuffix('_images') for name in archive if name.endswith('_images')]
        if 'classes' not in archive or not names:
            raise ValueError(f'{path} is no packed data set: make one with tools/pack_cifar.py')
        if split not in names:
            raise ValueError(f'{path} has no split {split!r}, but {names}')
        images = archive[f'{split}_images']
        for axis in AXES:
            images = np.cumsum(images, axis=axis, dtype=np.uint8)
        return PackedSplit(images, archive[f'{split}_labels'], tuple(archive['classes'].tolist()))
