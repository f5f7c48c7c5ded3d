"""Train a segmentation or classification model: one config, one Runner."""
import argparse
import os
from collections.abc import Sequence

import torch
from mmengine.config import Config

from locat_mmseg.openmmlab.amp import enable_amp
from locat_mmseg.openmmlab.distributed import end_launch
from locat_mmseg.openmmlab.errors import one_sentence_errors, warn
from locat_mmseg.openmmlab.launch import (build_runner, check_checkpoint, check_complete,
                                          last_checkpoint, load_config, make_parser)


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = make_parser(__doc__)
    parser.add_argument('--resume', nargs='?', const='auto', metavar='PATH',
                        help='continue from a checkpoint; without a path from the last one in '
                        'the work dir, or from the beginning where there is none yet')
    parser.add_argument('--amp', action='store_true',
                        help='mixed precision; bfloat16 where there is no accelerator')
    parser.add_argument('--seed', type=int, help='seed of all random numbers')
    parser.add_argument('--deterministic', action='store_true',
                        help='deterministic algorithms, as far as the device has them; torch '
                        'warns of those that it has not')
    return parser.parse_args(argv)


def set_resume(cfg: Config, resume: str | None) -> None:
    """Choose the checkpoint to continue from; weights to start from stay in load_from."""
    if resume is None and cfg.get('resume') and not cfg.get('load_from'):
        resume = 'auto'
    if resume is None:
        return
    path = last_checkpoint(cfg.work_dir) if resume == 'auto' else check_checkpoint(resume)
    if path is None:
        warn(f'no checkpoint in {cfg.work_dir}: training starts from the beginning')
        cfg.resume = False
    else:
        cfg.resume, cfg.load_from = True, path


def main(argv: Sequence[str] | None = None) -> None:
    with one_sentence_errors():
        args = parse_args(argv)
        cfg = load_config(args)
        loaders = ('train_dataloader', 'val_dataloader')
        check_complete(cfg, loaders)
        set_resume(cfg, args.resume)
        if cfg.get('load_from'):
            check_checkpoint(cfg.load_from)
        if args.amp:
            enable_amp(cfg)
        if args.seed is not None:
            cfg.randomness = dict(cfg.get('randomness') or {}, seed=args.seed)
        if args.deterministic:
            os.environ.setdefault('CUBLAS_WORKSPACE_CONFIG', ':4096:8')  # cuBLAS asks for it
            cfg.randomness = dict(cfg.get('randomness') or dict(seed=None), deterministic=True)
        runner = build_runner(cfg, args.launcher, loaders)
        if args.deterministic:
            torch.use_deterministic_algorithms(True, warn_only=True)
        runner.train()
        end_launch()


if __name__ == '__main__':
    main()
