"""What the tools that change inputs share: several models, one data set, and what is written."""
import argparse
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from mmengine.config import Config
from mmseg.models.segmentors import BaseSegmentor
from torch import Tensor, nn
from tqdm import tqdm

from ..analysis.picture_model import PictureModel
from ..analysis.robustness import Probed, Row
from ..analysis.run_record import Record
from ..analysis.run_settings import Settings, fingerprint
from ..analysis.tables import write_csv
from ..analysis.timm_models import PRETRAINED, RANDOM, load_timm
from .errors import UserError
from .labelled_pictures import LabelledPictures
from .launch import add_config_arguments, check_checkpoint, read_config
from .model_arguments import (add_device_argument, add_reading_arguments, add_size_argument,
                              add_timm_arguments)
from .picture_model import from_config, num_classes_of


class SegmentationLogits(nn.Module):
    """Logit maps (B, K, H, W) of a segmentor, whole or by sliding window as its test_cfg says.

    Args:
        segmentor: of mmseg.
    """

    def __init__(self, segmentor: BaseSegmentor) -> None:
        super().__init__()
        self.segmentor = segmentor

    def forward(self, images: Tensor) -> Tensor:
        """Logits of normalised images (B, 3, H, W)."""
        size = tuple(images.shape[-2:])
        metas = [dict(ori_shape=size, img_shape=size, pad_shape=size)] * len(images)
        return self.segmentor.inference(images, metas)


def make_input_parser(description: str, out: str) -> argparse.ArgumentParser:
    """A parser with the arguments that name models, data and output.

    Args:
        description: of the tool.
        out: default folder of what it writes.
    """
    parser = argparse.ArgumentParser(description=description,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add_config_arguments(parser, config_needed=False)
    parser.add_argument('checkpoint', nargs='?', help='its checkpoint')
    parser.add_argument('--beside', nargs=2, action='append', default=[],
                        metavar=('CONFIG', 'CHECKPOINT'), help='another model on the same images; '
                        'may be given several times')
    add_timm_arguments(parser, several=True)
    parser.add_argument('--names', nargs='+', default=[], metavar='NAME', help='of the models in '
                        'tables and plots, in the order: config, --beside, --timm')
    parser.add_argument('--data', metavar='CONFIG', help='whose test images are taken; by default '
                        'those of the first config')
    parser.add_argument('--images', type=Path, metavar='DIR', help='take the images of this folder '
                        'instead: a folder for each class, in the order of its label')
    add_size_argument(parser, 'that pictures are resized to for every model; by default timm '
                      'models (with --images: all) get the size that they were trained with')
    add_reading_arguments(parser)
    parser.add_argument('--seed', type=int, default=0, help='of every random choice')
    add_device_argument(parser)
    parser.add_argument('--out', type=Path, default=Path(out), metavar='DIR')
    return parser


def load_models(args: argparse.Namespace) -> tuple[list[Probed], list[Settings]]:
    """The models of a command line, and what identifies each in a record.

    Raises:
        UserError: if the arguments do not fit each other.
        ValueError: if the weights do not fit.
    """
    torch.manual_seed(args.seed)  # of random weights
    if bool(args.config) != bool(args.checkpoint):
        raise UserError(f'{args.config} needs its CHECKPOINT, as tools/train.py wrote it')
    pairs = [(args.config, args.checkpoint)] * bool(args.config) + args.beside
    weights = args.weights or [PRETRAINED] * len(args.timm)
    if not pairs and not args.timm:
        raise UserError('no model: give CONFIG CHECKPOINT or --timm NAME')
    if len(weights) != len(args.timm):
        raise UserError(f'{len(weights)} --weights for {len(args.timm)} --timm models: give one '
                        f'for each, {PRETRAINED} or {RANDOM} for those without a file')
    names = args.names or [Path(config).stem for config, _ in pairs] + args.timm
    if len(names) != len(pairs) + len(args.timm) or len(set(names)) < len(names):
        raise UserError(f'names {", ".join(names)} for {len(pairs) + len(args.timm)} models: give '
                        '--names, a different one for each')
    models = [config_model(*pair, args) for pair in pairs] + \
        [load_timm(*both) for both in zip(args.timm, weights)]
    as_they_come = [args.images is None] * len(pairs) + [False] * len(args.timm)
    size = args.size and (args.size[0], args.size[-1])
    probed = [Probed(name, model.to(args.device), size or (None if raw else model.size))
              for name, model, raw in zip(names, models, as_they_come)]
    sources = [dict(config=config, weights=fingerprint(checkpoint),
                    cfg_options=dict(args.cfg_options)) for config, checkpoint in pairs]
    sources += [dict(timm=name, weights=fingerprint(file))
                for name, file in zip(args.timm, weights)]
    return probed, [dict(name=one.name, **source, size=one.size, parameters=sum(
        p.numel() for p in one.model.parameters())) for one, source in zip(probed, sources)]


def config_model(config: str, checkpoint: str, args: argparse.Namespace) -> PictureModel:
    """The model of a config with the weights of its checkpoint."""
    return with_logits(from_config(read_config(config, args.cfg_options),
                                   check_checkpoint(checkpoint)))


def with_logits(model: PictureModel) -> PictureModel:
    """The model with logit maps of pictures as output, if it is a segmentor; else itself."""
    if not isinstance(model.network, BaseSegmentor):
        return model
    mean, std = (values.flatten().tolist() for values in (model.mean, model.std))
    return PictureModel(SegmentationLogits(model.network), mean, std, model.core, model.size,
                        model.bgr).to(model.device)


def load_data(args: argparse.Namespace, models: Sequence[Probed], **part: Any
              ) -> LabelledPictures:
    """The pictures of a command line.

    Args:
        args: of `make_input_parser`.
        models: that will see them.
        **part: foreground and part of `LabelledPictures`.

    Raises:
        UserError: if none are named, their config lacks them, or their labels are none of a
            model's.
    """
    data = LabelledPictures(data_config(args, models), args.limit, **part)
    for probed in models:
        check_task(probed, data)
    return data


def data_config(args: argparse.Namespace, models: Sequence[Probed]) -> Config:
    """The config of a command line's pictures.

    Raises:
        UserError: if none are named.
    """
    if args.images is not None:
        return folder_config(args.images, models)
    config = args.data or args.config or (args.beside[0][0] if args.beside else None)
    if config is None:
        raise UserError('no images: give --data CONFIG, whose test images are taken, or --images '
                        'DIR with a folder for each class')
    return read_config(config, args.cfg_options if config != args.data else {})


def check_task(probed: Probed, data: LabelledPictures) -> None:
    """Refuse labels that mean something else to a model.

    Raises:
        UserError: if they are label maps for a classifier, or classes of images for a segmentor,
            or the images have not as many classes as the classifier.
    """
    kinds = {True: 'label maps, for a segmentor', False: 'one class an image, for a classifier'}
    segments = isinstance(probed.model.network, SegmentationLogits)
    if segments != data.has_maps:
        raise UserError(f'the data have {kinds[data.has_maps]}, but {probed.name} is for '
                        f'{kinds[segments]}: give --data CONFIG with such, or leave the model out')
    count = None if segments else num_classes_of(probed.model)
    if count and data.classes and count != len(data.classes):
        raise UserError(f'the data have {len(data.classes)} classes, but {probed.name} tells '
                        f'{count} apart, so that a label would mean another class: give data '
                        '(with --images: a folder for each class, empty ones too) of its classes')


def folder_config(folder: Path, models: Sequence[Probed]) -> Config:
    """Images in class folders, resized to the largest of the models' sizes and cropped to it."""
    side = max(max(one.size or one.model.size) for one in models)
    pipeline = [dict(type='LoadImageFromFile'),
                dict(type='ResizeEdge', scale=side, edge='short', backend='pillow'),
                dict(type='CenterCrop', crop_size=side), dict(type='PackInputs')]
    return Config(dict(default_scope='mmpretrain', test_cfg=dict(), test_evaluator=dict(),
                       test_dataloader=dict(dataset=dict(type='CustomDataset', pipeline=pipeline,
                                                         data_root=str(folder)))))


@contextmanager
def progress(total: int, what: str = 'images') -> Iterator[Callable[[int], None]]:
    """A progress bar: call it with how many are done."""
    with tqdm(total=total, desc=what) as bar:
        yield lambda done: bar.update(done - bar.n)


def write_rows(record: Record, path: Path, rows: Sequence[Row], args: argparse.Namespace,
               **facts: Any) -> None:
    """Write what a run found, and how: ``path`` with the suffixes .json and .csv."""
    record.write(path.with_suffix('.json'), args.device, rows=rows, **facts, seed=args.seed)
    write_csv(path.with_suffix('.csv'), rows)
