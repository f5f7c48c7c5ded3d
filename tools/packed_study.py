r"""Train and measure the compact ViT on a packed data set, with torch, torchvision and timm alone.

    python tools/pack_cifar.py data/cifar100 data/cifar100_25k.npz --train 20000 --test 5000
    python tools/packed_study.py protocols data/cifar100_25k.npz --minutes 8
    python tools/packed_study.py architectures data/cifar100_25k.npz --minutes 8

'protocols': the eight training protocols of arXiv 2605.16390; attention distance and entropy of
each head in the course of training. 'architectures': plain, with LocAt, with each of its parts, and
with registers; k-NN and linear probe at the end. Training is that of configs/cutmix_locality.

The first command may run on another machine. Started again with the same work dir and settings, a
study goes on where it stopped.
"""
import argparse
import platform
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from locat_mmseg.analysis.compact_vit import ARCHITECTURES
from locat_mmseg.analysis.packed_study import PRESETS, PackedStudy, Settings, conditions_of
from locat_mmseg.analysis.packed_study_table import study_table
from locat_mmseg.analysis.protocol_training import PROTOCOLS, Recipe
from locat_mmseg.analysis.run_record import check_target


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('preset', choices=PRESETS, help='what is compared and measured')
    parser.add_argument('data', type=Path, help='packed file, of tools/pack_cifar.py')
    parser.add_argument('--minutes', type=float, default=float('inf'),
                        help='stop then; what is left is named, and done when started again')
    parser.add_argument('--work-dir', type=Path,
                        help='of the results; by default work_dirs/packed_study_PRESET')
    parser.add_argument('--architectures', nargs='+', choices=ARCHITECTURES, metavar='NAME',
                        help=f'of {", ".join(ARCHITECTURES)}; by default the preset\'s')
    parser.add_argument('--protocols', nargs='+', choices=PROTOCOLS, metavar='NAME',
                        help=f'of {", ".join(PROTOCOLS)}; by default the preset\'s')
    parser.add_argument('--seeds', nargs='+', type=int, default=[0])
    parser.add_argument('--epochs', type=int, default=Recipe.epochs)
    parser.add_argument('--warmup-epochs', type=int, default=Recipe.warmup_epochs)
    parser.add_argument('--batch-size', type=int, default=Recipe.batch_size)
    parser.add_argument('--lr', type=float, default=Recipe.lr, help='largest learning rate')
    parser.add_argument('--float32', action='store_true', help='train without bfloat16 autocast')
    parser.add_argument('--points', type=int, default=Settings.points,
                        help='how often to measure, beside the start')
    parser.add_argument('--locality-images', type=int, metavar='N',
                        help='test images for attention distance and entropy; by default all')
    parser.add_argument('--device', choices=['cpu', 'cuda'],
                        help='by default cuda where torch sees a GPU')
    parser.add_argument('--no-compile', action='store_true',
                        help='train without torch.compile, which is used on a GPU alone')
    args = parser.parse_args(argv)
    has_gpu = torch.cuda.is_available()
    if args.device == 'cuda' and not has_gpu:
        parser.error('--device cuda: torch sees no GPU here')
    if not args.minutes >= 0:  # nan is not, either
        parser.error(f'--minutes {args.minutes}: expected a number from 0')
    args.device = args.device or ('cuda' if has_gpu else 'cpu')
    return args


def open_study(args: argparse.Namespace) -> PackedStudy:
    """The study with its data and earlier results.

    Raises:
        ValueError, OSError: for a mistake on the command line, or a file that cannot be read.
    """
    device = torch.device(args.device)
    preset = PRESETS[args.preset]
    recipe = Recipe(args.epochs, args.warmup_epochs, args.batch_size, args.lr, not args.float32)
    settings = Settings(args.data.name, recipe, preset.locality, preset.frozen, args.points,
                        args.locality_images)
    machine = torch.cuda.get_device_name(device) if device.type == 'cuda' else \
        f'{platform.processor() or platform.machine()}, {torch.get_num_threads()} threads'
    facts = dict(command=shlex.join(sys.argv), machine=machine, minutes=args.minutes)
    work_dir = args.work_dir or Path(f'work_dirs/packed_study_{args.preset}')
    check_target(work_dir / 'results.json')
    return PackedStudy(args.data, work_dir, settings, device,
                       device.type == 'cuda' and not args.no_compile, facts)


def main(argv: Sequence[str] | None = None) -> None:
    args = parse_args(argv)
    deadline = time.monotonic() + 60 * args.minutes
    preset = PRESETS[args.preset]
    conditions = conditions_of(args.architectures or preset.architectures,
                               args.protocols or preset.protocols, args.seeds)
    try:
        study = open_study(args)
    except (ValueError, OSError) as error:
        raise SystemExit(f'error: {error}') from error
    results = study.run(conditions, deadline)
    print(study_table(results))
    if results['not_begun']:
        print(f'Time was up before: {", ".join(results["not_begun"])}')


if __name__ == '__main__':
    main()
