"""What the tools that evaluate frozen features share: command line, model, and JSON result."""
import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from mmengine.config import Config
from mmengine.device import get_device
from torch.utils.data import DataLoader

from ..analysis.run_record import Record, check_target
from ..analysis.timm_models import PRETRAINED
from .errors import UserError, one_sentence_errors
from .frozen_backbone import FrozenBackbone, from_config, from_timm
from .frozen_data import dataset_of
from .launch import check_checkpoint, load_config, make_config_parser
from .model_arguments import add_timm_arguments, natural, positive

Loaders = tuple[DataLoader, DataLoader]
Evaluation = Callable[[argparse.Namespace, Config], tuple[dict, dict, Loaders]]


def make_backbone_parser(description: str) -> argparse.ArgumentParser:
    """A parser with the arguments that name a frozen backbone."""
    parser = make_config_parser(description)
    parser.add_argument('checkpoint', nargs='?', help='of a classifier, a segmentor or a backbone '
                        "alone; left out: what the config's init_cfg names")
    parser.add_argument('--prefix', help="of the backbone's keys in the checkpoint; by default "
                        "'backbone.' where there are such")
    add_timm_arguments(parser)
    parser.add_argument('--seed', type=int, default=0, help='of every random choice')
    return parser


def make_evaluation_parser(description: str) -> argparse.ArgumentParser:
    """A parser with the arguments that the evaluations have."""
    parser = make_backbone_parser(description)
    parser.add_argument('--num-train', type=positive, metavar='N', help='use N training images, '
                        'drawn at random; by default all')
    parser.add_argument('--num-test', type=positive, metavar='N', help='use N test images')
    parser.add_argument('--batch-size', type=positive, default=32, metavar='N',
                        help='images at once')
    parser.add_argument('--workers', type=natural, default=2, metavar='N',
                        help='processes that read images')
    parser.add_argument('--out', metavar='FILE', help='JSON result; by default in the work dir, '
                        'named after the tool')
    return parser


def run_evaluation(parser: argparse.ArgumentParser, tool: str, evaluate: Evaluation,
                   argv: Sequence[str] | None) -> None:
    """Run an evaluation and write what it found, and how, to a JSON file.

    Args:
        parser: of `make_evaluation_parser`.
        tool: the tool's file.
        evaluate: gets arguments and config; gives results, settings, and the loaders it read.
        argv: the command line without the tool; None: that of the process.
    """
    with one_sentence_errors():
        record = Record(tool, argv)
        args = parser.parse_args(record.words)
        cfg = load_config(args)
        path = Path(args.out or Path(cfg.work_dir) / f'{Path(tool).stem}.json')
        check_target(path)
        results, settings, loaders = evaluate(args, cfg)
        record.write(
            path, get_device(), results=results, settings=settings, model=model_named(args),
            seed=args.seed,
            data={name: describe(loader) for name, loader in zip(('train', 'test'), loaders)})
        for name, value in results.items():
            if not isinstance(value, dict):  # those of single classes are in the file
                print(f'{name}: {value:.4g}' if isinstance(value, float) else f'{name}: {value}')
        print(f'written to {path}')


def load_frozen_backbone(args: argparse.Namespace, cfg: Config, stage: int | None = None,
                         with_neck: bool = False) -> FrozenBackbone:
    """The backbone that a command line names, on the accelerator if there is one.

    Raises:
        UserError: if the arguments exclude each other, or the config has no model.
        ValueError: if the weights do not fit.
    """
    torch.manual_seed(args.seed)
    if args.timm is not None:
        if args.checkpoint is not None or args.prefix is not None:
            raise UserError(f'--timm {args.timm} takes its weights from --weights FILE, not from '
                            'CHECKPOINT and --prefix: leave those out')
        backbone = from_timm(args.timm, args.weights, cfg, stage)
    elif args.weights != PRETRAINED:
        raise UserError("--weights belongs to --timm NAME; the weights of the config's model are "
                        'given as CHECKPOINT, after the config')
    elif not (cfg.get('model') or {}).get('backbone'):
        raise UserError(f'config {args.config} has no model with a backbone: give another, or '
                        '--timm NAME')
    else:
        checkpoint = args.checkpoint and check_checkpoint(args.checkpoint)
        backbone = from_config(cfg, checkpoint, args.prefix, stage, with_neck)
    return backbone.to(get_device())


def model_named(args: argparse.Namespace) -> dict[str, str | None]:
    """Which model a command line names, for a record."""
    if args.timm is not None:
        return dict(timm=args.timm, weights=args.weights)
    return dict(config=args.config, checkpoint=args.checkpoint)


def describe(loader: DataLoader) -> dict[str, object]:
    """What a loader read, for a record."""
    dataset = dataset_of(loader)
    return dict(dataset=type(dataset).__name__, root=getattr(dataset, 'data_root', None),
                images=len(loader.dataset), of=len(dataset))
