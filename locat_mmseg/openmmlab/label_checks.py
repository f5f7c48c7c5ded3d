"""Find bad images and label maps by name, where they are read and before a loss sees them."""
import traceback
from collections.abc import Iterator
from typing import Any
from zlib import error as ZlibError

import cv2
import numpy as np
import torch
from mmengine.dataset import BaseDataset

from .errors import FileError, UserError, first_line, place_of

# What decoders raise on a broken file.
_READ_ERRORS = (OSError, SyntaxError, ValueError, EOFError, AssertionError, cv2.error,
                ZlibError)
# They work with the None that OpenCV answers for one; anybody else's AttributeError is a defect.
_LOADING_PACKAGES = ('cv2', 'mmcv', 'mmseg', 'mmpretrain')
_SAMPLES = 64  # label maps per data set


class GuardedLoader:
    """A loading transform that names the file which it cannot read or which has a wrong shape.

    Args:
        transform: LoadImageFromFile, LoadAnnotations or another one called Load...
    """

    def __init__(self, transform: Any) -> None:
        self.transform = transform

    def __call__(self, results: dict) -> dict | None:
        try:
            loaded = self.transform(results)
        except UserError:
            raise
        except (*_READ_ERRORS, AttributeError) as error:
            if isinstance(error, AttributeError) and not _is_of_a_loader(error):
                raise
            raise FileError(f'{type(self.transform).__name__} cannot read '
                            f'{self._file_of(results)} ({first_line(error)}{place_of(error)}): '
                            'repair the file, or take it out of the data set') from error
        if loaded is not None and 'gt_seg_map' in loaded:
            _check_shape(loaded)
        return loaded

    def __repr__(self) -> str:
        return f'GuardedLoader({self.transform})'

    def _file_of(self, results: dict) -> str:
        is_label = 'Annotation' in type(self.transform).__name__
        return str(results.get('seg_map_path' if is_label else 'img_path', 'a sample'))


def _is_of_a_loader(error: AttributeError) -> bool:
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    return frame.f_globals.get('__name__', '').partition('.')[0] in _LOADING_PACKAGES


def guard_loaders(pipeline: Any) -> None:
    """Wrap the loading transforms of a pipeline, in place; once is enough."""
    for number, transform in enumerate(pipeline.transforms):
        if type(transform).__name__.startswith('Load'):
            pipeline.transforms[number] = GuardedLoader(transform)
        for subroutine in getattr(transform, 'subroutines', ()):  # test-time augmentation
            guard_loaders(subroutine)


def plain_datasets(dataset: Any) -> Iterator[Any]:
    """The data sets inside wrappers such as ConcatDataset and RepeatDataset."""
    inside = getattr(dataset, 'datasets', None) or \
        ([dataset.dataset] if hasattr(dataset, 'dataset') else [])
    if not inside:
        yield dataset
    for child in inside:
        yield from plain_datasets(child)


def check_label_maps(dataset: BaseDataset, num_classes: int, ignore_index: int) -> None:
    """Read some label maps, evenly spaced over a data set with guarded loaders.

    Raises:
        UserError: One of them cannot be read, has a wrong shape, or labels outside the classes.
    """
    loaders = [t for t in _all_transforms(dataset.pipeline)
               if isinstance(t, GuardedLoader) and 'Annotation' in type(t.transform).__name__]
    if not loaders:
        return
    for index in np.unique(np.linspace(0, len(dataset) - 1, _SAMPLES).astype(int)):
        results = dataset.get_data_info(int(index))
        if results.get('seg_map_path') is None:
            return  # not a segmentation data set, or one without labels
        labels = loaders[0](results)['gt_seg_map']
        check_labels(labels, num_classes, ignore_index, results)


def check_labels(labels: np.ndarray | torch.Tensor, num_classes: int, ignore_index: int | None,
                 sample: Any) -> None:
    """Check one sample's labels, as the loss will see them.

    Args:
        labels: Integers; the classes of an image, one-dimensional, or a pixel map.
        num_classes: Labels 0 ... num_classes - 1 are classes.
        ignore_index: The label that the loss leaves out, if any.
        sample: Its data info or data sample, for the file's name.

    Raises:
        UserError: A label is neither a class nor ignored.
    """
    outside = labels[(labels < 0) | (labels >= num_classes)]
    if ignore_index is not None:
        outside = outside[outside != ignore_index]
    if len(outside) == 0:
        return
    file = sample.get('seg_map_path') or sample.get('img_path') or 'a sample'
    shifted = ', after reduce_zero_label took 1 off,' if sample.get('reduce_zero_label') else ''
    values = ', '.join(map(str, np.unique(np.asarray(outside))[:8]))
    ignored = '' if ignore_index is None else f' and {ignore_index} (ignored)'
    advice = 'change the file' if labels.ndim > 1 else 'change its label'
    from_one = '; labels that count from 1 need reduce_zero_label=True in the data set' \
        if labels.ndim > 1 else ''
    raise FileError(
        f'{file} has{shifted} label {values}, but allowed are the classes 0 to {num_classes - 1}'
        f'{ignored}: {advice}, or raise num_classes of the heads and name the class in the data '
        f'set{from_one}')


def _all_transforms(pipeline: Any) -> Iterator[Any]:
    for transform in pipeline.transforms:
        yield transform
        for subroutine in getattr(transform, 'subroutines', ()):
            yield from _all_transforms(subroutine)


def _check_shape(results: dict) -> None:
    shape, path = results['gt_seg_map'].shape, results.get('seg_map_path')
    if len(shape) != 2:
        raise FileError(f'label map {path} has shape {shape}, but a label map is (height, width) '
                        'with one class number per pixel: turn its colours into class numbers '
                        'and save it with one channel')
    # Test pipelines resize the image before they load the label map, so its own size counts.
    size = results.get('ori_shape', shape)
    if tuple(size) != shape:
        raise FileError(f'label map {path} is {shape[0]} x {shape[1]}, but its image is '
                        f'{size[0]} x {size[1]}: pair each image with its own label map, of the '
                        'same size')
