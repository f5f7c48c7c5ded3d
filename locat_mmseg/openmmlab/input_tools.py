"""What the tools that change inputs share: several models, one data set, and what is written."""
import argparse
import csv
import json
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import timm
import torch
from mmengine.config import Config
from mmseg.models.segmentors import BaseSegmentor
from torch import Tensor, nn
from tqdm import tqdm

from ..analysis.picture_model import PictureModel
from ..analysis.robustness import Probed, Row
from ..analysis.run_settings import Settings, fingerprint
from ..analysis.timm_models import PRETRAINED, RANDOM, load_timm
from .errors import UserError
from .labelled_pictures import LabelledPictures, loads_bgr, test_pipeline
from .launch import add_config_arguments, check_checkpoint, read_config
from .picture_model import from_config


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
    parser.add_argument('--timm', nargs='+', default=[], metavar='NAME', help='models of timm, '
                        'instead of a config or beside it')
    parser.add_argument('--weights', nargs='+', default=[], metavar='FILE', help='their weights, '
                        f"one for each: a file in timm's names, with or without GAug; {PRETRAINED} "
                        f'(the default, a download) or {RANDOM}')
    parser.add_argument('--names', nargs='+', default=[], metavar='NAME', help='of the models in '
                        'tables and plots, in the order: config, --beside, --timm')
    parser.add_argument('--data', metavar='CONFIG', help='whose test images are taken; by default '
                        'those of the first config')
    parser.add_argument('--images', type=Path, metavar='DIR', help='take the images of this folder '
                        'instead: a folder for each class, in the order of its label')
    parser.add_argument('--size', nargs='+', type=int, metavar='PIXELS', help='side, or height and '
                        'width, that pictures are resized to for every model; by default timm '
                        'models (with --images: all) get the size that they were trained with')
    parser.add_argument('--limit', type=int, metavar='N', help='at most N images, evenly spaced')
    parser.add_argument('--batch', type=int, default=32, metavar='N', help='images at once')
    parser.add_argument('--workers', type=int, default=2, metavar='N',
                        help='processes that read images')
    parser.add_argument('--seed', type=int, default=0, help='of every random choice')
    parser.add_argument('--device', default='cuda' if torch.cuda.is_available() else 'cpu')
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
    cfg = read_config(config, args.cfg_options)
    model = from_config(cfg, check_checkpoint(checkpoint))
    if not loads_bgr(test_pipeline(cfg)):
        model.bgr = not model.bgr  # its images do not come from files, with blue first
    if isinstance(model.network, BaseSegmentor):
        model.network = SegmentationLogits(model.network)
    return model


def load_data(args: argparse.Namespace, models: Sequence[Probed], **part: Any
              ) -> LabelledPictures:
    """The pictures of a command line.

    Args:
        args: of `make_input_parser`.
        models: that will see them.
        **part: foreground and part of `LabelledPictures`.

    Raises:
        UserError: if none are named, or their config lacks them.
    """
    if args.images is not None:
        return LabelledPictures(folder_config(args.images, models), args.limit, **part)
    config = args.data or args.config or (args.beside[0][0] if args.beside else None)
    if config is None:
        raise UserError('no images: give --data CONFIG, whose test images are taken, or --images '
                        'DIR with a folder for each class')
    options = args.cfg_options if config != args.data else {}
    return LabelledPictures(read_config(config, options), args.limit, **part)


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


class Record:
    """What a run found, and how: DIR/NAME.json and NAME.csv.

    Args:
        tool: the tool's file.
        argv: its command line without the tool; None: that of the process.
    """

    def __init__(self, tool: str, argv: Sequence[str] | None) -> None:
        self.started = time.time()
        self.words = sys.argv[1:] if argv is None else list(argv)
        self.command = shlex.join(['python', f'tools/{Path(tool).name}', *self.words])

    def write(self, path: Path, rows: Sequence[Row], **facts: Any) -> None:
        """Write rows and facts; the suffix of ``path`` is replaced."""
        path.parent.mkdir(parents=True, exist_ok=True)
        record = dict(rows=rows, **facts, command=self.command,
                      seconds=round(time.time() - self.started, 1),
                      finished=time.strftime('%Y-%m-%d %H:%M:%S'),
                      machine=dict(threads=torch.get_num_threads(), torch=torch.__version__,
                                   timm=timm.__version__))
        path.with_suffix('.json').write_text(json.dumps(record, indent=1) + '\n',
                                             encoding='utf-8')
        with open(path.with_suffix('.csv'), 'w', newline='', encoding='utf-8') as file:
            writer = csv.DictWriter(file, columns_of(rows))
            writer.writeheader()
            writer.writerows(rows)


def columns_of(rows: Sequence[Row]) -> list[str]:
    """Names of the columns of rows, in the order in which they occur."""
    return list(dict.fromkeys(name for row in rows for name in row))


def cells_of(rows: Sequence[Row]) -> tuple[list[str], list[list[Any]]]:
    """Columns and cells of a table of rows."""
    columns = columns_of(rows)
    return columns, [[row.get(name) for name in columns] for row in rows]
