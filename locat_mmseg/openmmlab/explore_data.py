"""What is looked at in an exploration: a model, pictures of one size, and labels if there are some.

Pictures and labels come from the test data of a config, or from a folder: with label maps for a
segmentor, with a folder for each class for a classifier.
"""
import argparse
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from mmengine.config import Config
from mmseg.models.segmentors import BaseSegmentor
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms.v2 import InterpolationMode

from ..analysis.exploration import NotApplicable
from ..analysis.picture_folder import PictureFolder, cover
from ..analysis.picture_model import PictureModel
from ..analysis.robustness import Probed
from ..analysis.run_settings import Settings
from .errors import UserError
from .input_tools import folder_config, with_logits
from .labelled_pictures import LabelledPictures
from .launch import read_config
from .picture_data import picture_settings, size_of
from .picture_model import load_model, num_classes_of

SEGMENTOR, CLASSIFIER, FEATURES = 'segmentor', 'classifier', 'features without a classifier'
NO_PICTURES = 'no pictures were given: --data takes a folder, or a config'
Label = Callable[..., LabelledPictures]


class SizedPictures(Dataset):
    """Labelled pictures without their labels, brought to one size as `PictureFolder` does it.

    Args:
        labelled: the pictures.
        size: (H, W) in pixels.
    """

    def __init__(self, labelled: LabelledPictures, size: tuple[int, int]) -> None:
        self.labelled, self.size = labelled, size

    def __len__(self) -> int:
        return len(self.labelled)

    def __getitem__(self, index: int) -> Tensor:
        return cover(self.labelled[index][0], self.size, InterpolationMode.BILINEAR).clamp(0, 1)

    def mask(self, index: int) -> Tensor:
        """Label map (H, W) of a picture."""
        return cover(self.labelled[index][1][None], self.size, InterpolationMode.NEAREST_EXACT)[0]


@dataclass
class Subject:
    """What is looked at.

    Attributes:
        args: of the command line.
        model: as its features are looked at.
        probed: the same as it is scored, in the size of the labelled pictures.
        task: SEGMENTOR, CLASSIFIER or FEATURES.
        pictures: all of the size wanted; None without data.
        has_masks: whether these have label maps.
        void: label of theirs that does not count.
        labelled: pictures with labels that the model can be scored on, perhaps only with their
            foreground visible; None without such.
        unlabelled: why there are none.
        data: what identifies the pictures.
        folder: of the pictures, where they are files; else DIR.
    """
    args: argparse.Namespace
    model: PictureModel
    probed: Probed
    task: str
    pictures: PictureFolder | SizedPictures | None = None
    has_masks: bool = False
    void: int = 255
    labelled: Label | None = None
    unlabelled: str = NO_PICTURES
    data: Settings | None = None
    folder: str = 'DIR'

    def command(self, tool: str, *words: Any) -> str:
        """A tool's command line for this model."""
        args = self.args
        model = ['--timm', args.timm, '--weights', args.weights] if args.timm else [
            args.config, args.checkpoint]
        options = [f'{key}={value}' for key, value in args.cfg_options.items()]
        return shlex.join(map(str, [
            'python', f'tools/{tool}.py', *model, *words,
            *(['--cfg-options', *options] if options else [])]))

    def need_pictures(self) -> PictureFolder | SizedPictures:
        """The pictures.

        Raises:
            NotApplicable: if none were given.
        """
        if self.pictures is None:
            raise NotApplicable(NO_PICTURES)
        return self.pictures

    def batches(self) -> DataLoader:
        """Batches (B, 3, H, W) of the pictures."""
        return DataLoader(self.need_pictures(), self.args.batch, num_workers=self.args.workers)

    def need_labels(self) -> LabelledPictures:
        """The labelled pictures.

        Raises:
            NotApplicable: if there are none on which the model can be scored.
        """
        if self.labelled is None:
            raise NotApplicable(f'nothing to score: {self.unlabelled}')
        return self.labelled()

    @property
    def size_words(self) -> tuple:
        """The size, in the words of the tools."""
        return ('--size', *self.args.size) if self.args.size else ()

    @property
    def data_words(self) -> tuple:
        """Labelled pictures and their size, in the words of the tools that score."""
        data = self.args.data
        if data is None:
            words = () if self.args.config else ('--data', 'CONFIG')
        elif not Path(data).is_dir():
            words = ('--data', data)
        elif self.task == CLASSIFIER:
            words = ('--images', data)
        else:  # label maps in a folder: those tools find them by a config
            words = ('--data', 'CONFIG')
        return (*words, *self.size_words)


def load_subject(args: argparse.Namespace) -> Subject:
    """The model and the data of a command line.

    Raises:
        UserError: if the arguments do not fit each other.
        ValueError: if weights or pictures cannot be had.
    """
    torch.manual_seed(args.seed)
    model = load_model(args)
    folder = args.data and Path(args.data).is_dir()
    if args.masks and not folder:
        raise UserError('--masks DIR belongs to pictures in a folder: give --data DIR as well')
    size = args.size and size_of(args, model)
    own = args.config and not folder  # their pipeline gives the size that the model is made for
    probed = Probed(args.timm or Path(args.config).stem, with_logits(model),
                    size or (None if own else model.size))
    subject = Subject(args, model, probed, task_of(model))
    if folder:
        take_folder(subject)
    elif args.data:
        take_config(subject, read_config(args.data, {}))
    elif args.config:
        cfg = read_config(args.config, args.cfg_options)
        if cfg.get('test_dataloader') or cfg.get('val_dataloader'):
            take_config(subject, cfg)
    return subject


def task_of(model: PictureModel) -> str:
    """What a model is for."""
    if isinstance(model.network, BaseSegmentor):
        return SEGMENTOR
    classifies = getattr(model.core, 'num_classes', 0) > 0 if model.is_timm \
        else getattr(model.network, 'head', None) is not None
    return CLASSIFIER if classifies else FEATURES


def take_config(subject: Subject, cfg: Config) -> None:
    """Take the test data of a config."""
    args = subject.args
    data = LabelledPictures(cfg, args.limit)
    subject.pictures = SizedPictures(data, size_of(args, subject.model))
    subject.has_masks, subject.void, subject.data = data.has_maps, data.void, data.describe()
    subject.folder = folder_of(data)
    wanted = SEGMENTOR if data.has_maps else CLASSIFIER
    if subject.task == wanted:
        subject.labelled = partial(LabelledPictures, cfg, args.limit)
    else:
        subject.unlabelled = f'the labels are those of a {wanted}, the model: {subject.task}'


def take_folder(subject: Subject) -> None:
    """Take the pictures of a folder, and labels if the folder has what the model needs."""
    args, model = subject.args, subject.model
    pictures = PictureFolder(args.data, size_of(args, model), args.masks, args.limit)
    subject.pictures, subject.folder = pictures, args.data
    subject.has_masks, subject.void = args.masks is not None, args.void
    named = argparse.Namespace(images=pictures.folder, limit=args.limit)
    subject.data = dict(picture_settings(named, pictures), pictures=len(pictures))
    if subject.task == FEATURES:
        subject.unlabelled = 'the model has no classifier and no decode head'
    elif subject.task == SEGMENTOR:
        if args.masks is None:
            subject.unlabelled = 'the pictures have no label maps: give --masks DIR'
        else:
            cfg = masks_config(pictures, args.void, num_classes_of(model))
            subject.labelled = partial(LabelledPictures, cfg, args.limit)
    else:
        count, classes = count_class_folders(pictures.folder), num_classes_of(model)
        if count == classes:
            cfg = folder_config(pictures.folder, [subject.probed])
            subject.labelled = partial(LabelledPictures, cfg, args.limit)
        else:
            subject.unlabelled = (
                f'the pictures have no labels for the {classes} classes of the model: expected a '
                f'folder for each class, found {count}; or give --data CONFIG')


def count_class_folders(folder: Path) -> int:
    """Number of folders right below."""
    return sum(path.is_dir() for path in folder.iterdir())


def folder_of(data: LabelledPictures) -> str:
    """The folder of a data set's pictures; DIR where they are no files, or in several."""
    info = getattr(data.dataset, 'get_data_info', lambda _: {})(0)
    prefix = getattr(data.dataset, 'data_prefix', {})
    path = prefix.get('img_path') or prefix.get('root')
    return str(path) if path and 'img_path' in info and Path(path).is_dir() else 'DIR'


def masks_config(pictures: PictureFolder, void: int, num_classes: int) -> Config:
    """Pictures and label maps of two folders, both resized to one size.

    Raises:
        UserError: if the pictures have different suffixes.
    """
    suffixes: Sequence[str] = sorted({path.suffix for path in pictures.paths})
    if len(suffixes) > 1:
        raise UserError(f'{pictures.folder} holds pictures with the suffixes '
                        f'{", ".join(suffixes)}: to score a segmentor on them they must be alike')
    pipeline = [dict(type='LoadImageFromFile'),
                dict(type='Resize', scale=pictures.size[::-1], keep_ratio=False),
                dict(type='LoadAnnotations'), dict(type='PackSegInputs')]
    dataset = dict(
        type='BaseSegDataset', img_suffix=suffixes[0], ignore_index=void, pipeline=pipeline,
        data_prefix=dict(img_path=str(pictures.folder), seg_map_path=str(pictures.masks)),
        metainfo=dict(classes=[f'class {number}' for number in range(num_classes)]))
    return Config(dict(default_scope='mmseg', test_cfg=dict(), test_evaluator=dict(),
                       test_dataloader=dict(dataset=dataset)))
