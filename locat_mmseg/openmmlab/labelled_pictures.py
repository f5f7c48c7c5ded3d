"""The test images of a config as RGB pictures in [0, 1] with labels, for models of any origin.

The config's test pipeline prepares them, without its normalisation: that is the model's.
"""
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from mmengine.config import Config
from mmengine.registry import init_default_scope
from mmengine.structures import BaseDataElement
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from ..analysis.picture_folder import evenly_spaced
from ..analysis.visible_part import keep_part
from .config_data import build_dataset, loads_bgr, test_loader_name, test_pipeline, type_of
from .errors import FileError, UserError, first_line
from .label_checks import guard_loaders, plain_datasets
from .preflight import check_data

Foreground = Callable[[Path, tuple[int, int]], np.ndarray | None]
Batch = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class KeepPart:
    """A step of a pipeline, after loading: the other part of the image becomes black.

    Attributes:
        foreground: gives the mask of an image, such as `visible_part.ForegroundBoxes`.
        part: which part stays, see `visible_part.PARTS`.
    """
    foreground: Foreground
    part: str

    def __call__(self, results: dict) -> dict:
        image = results['img']
        mask = self.foreground(Path(results['img_path']), image.shape[:2])
        return dict(results, img=keep_part(image, mask, self.part))


class LabelledPictures(Dataset):
    """Pictures (3, H, W), RGB in [0, 1], with a label () or a label map (H', W').

    Args:
        cfg: of a classifier or a segmentor.
        limit: at most so many images, evenly spaced; None: all.
        foreground: leaves only images that have one, for ``part``; see `KeepPart`.
        part: of the images that stays visible.

    Attributes:
        classes: their names, if the data set tells them.
        void: label of pixels that do not count.
        left_out: number of images without a foreground.

    Raises:
        UserError: if the config has no test data, or its pipeline does not fit.
    """

    def __init__(self, cfg: Config, limit: int | None = None,
                 foreground: Foreground | None = None, part: str = 'whole') -> None:
        init_default_scope(cfg.get('default_scope', 'mmengine'))
        key = test_loader_name(cfg)
        check_data(cfg, (key, ))
        pipeline = [step for step in test_pipeline(cfg) if type_of(step) != 'Normalize']
        if foreground is not None:
            pipeline = after_loading(pipeline, KeepPart(foreground, part))
        self.bgr = loads_bgr(pipeline)
        self.dataset = build_dataset(cfg[key].dataset, key, pipeline)
        for dataset in plain_datasets(self.dataset):
            guard_loaders(dataset.pipeline)
        self.classes = self.dataset.metainfo.get('classes')
        self.void = getattr(self.dataset, 'ignore_index', 255)
        chosen = list(range(len(self.dataset)))
        if foreground is not None:
            chosen = [number for number in chosen if has_foreground(
                Path(self.dataset.get_data_info(number)['img_path']), foreground)]
        self.left_out = len(self.dataset) - len(chosen)
        if not chosen:
            raise UserError(f'none of {len(self.dataset)} images has a foreground: expected an '
                            "annotation with the image's name, of the class that its folder is "
                            'named after')
        self.chosen = [chosen[number] for number in evenly_spaced(len(chosen), limit)]

    def __len__(self) -> int:
        return len(self.chosen)

    def __getitem__(self, number: int) -> Batch:
        packed = self.dataset[self.chosen[number]]
        picture = packed['inputs'].float() / 255
        return picture.flip(0) if self.bgr else picture, label_of(packed['data_samples'])

    @property
    def num_classes(self) -> int:
        """Number of classes of label maps.

        Raises:
            UserError: if the data set names none.
        """
        if not self.classes:
            raise UserError(f'{type(self.dataset).__name__} names no classes: give its config '
                            'metainfo=dict(classes=(...))')
        return len(self.classes)

    @property
    def has_maps(self) -> bool:
        """Whether the labels are label maps."""
        return self[0][1].ndim == 2

    def batches(self, batch_size: int, workers: int) -> Iterator[Batch]:
        """Batches in order; pictures of different sizes in batches of one."""
        for batches in DataLoader(self, batch_size, num_workers=workers, collate_fn=stack):
            yield from batches

    def describe(self) -> dict[str, object]:
        """What was read, for a record."""
        return dict(dataset=type(self.dataset).__name__,
                    root=getattr(self.dataset, 'data_root', None), images=len(self),
                    of=len(self.dataset), without_foreground=self.left_out)


def after_loading(pipeline: list, step: Callable) -> list:
    """The pipeline with one more step, on the image as it is in its file.

    Raises:
        UserError: if the pipeline loads no file.
    """
    place = next((number for number, other in enumerate(pipeline)
                  if type_of(other) == 'LoadImageFromFile'), None)
    if place is None:
        raise UserError(f'the test pipeline {[type_of(other) for other in pipeline]} has no '
                        'LoadImageFromFile: boxes and masks are found by the name of a file')
    return [*pipeline[:place + 1], step, *pipeline[place + 1:]]


def has_foreground(path: Path, foreground: Foreground) -> bool:
    """Whether an image has a foreground.

    Raises:
        FileError: if it cannot be read.
    """
    try:
        with Image.open(path) as image:  # reads the header only
            width, height = image.size
    except OSError as error:
        raise FileError(f'{path} cannot be read ({first_line(error)}): repair the file, or take it '
                        'out of the data set') from error
    return foreground(path, (height, width)) is not None


def label_of(sample: BaseDataElement) -> Tensor:
    """The label () or label map (H, W) of a data sample.

    Raises:
        UserError: if it has neither, or several labels.
    """
    if 'gt_sem_seg' in sample:
        return sample.gt_sem_seg.data[0].long()
    label = sample.get('gt_label')
    if label is None or label.numel() != 1:
        raise UserError(f'an image has the label {label}: expected a data set with one class an '
                        'image, or label maps (LoadAnnotations in the test pipeline)')
    return label[0].long()


def stack(samples: list[Batch]) -> list[Batch]:
    """One batch of samples, or batches of one where their sizes differ."""
    if len({(picture.shape, label.shape) for picture, label in samples}) > 1:
        return [(picture[None], label[None]) for picture, label in samples]
    return [(torch.stack([picture for picture, _ in samples]),
             torch.stack([label for _, label in samples]))]
