r"""Time and memory of timm models with LocAt (add_gaug) relative to the plain models.

    python tools/benchmark.py vit_tiny_patch16_224:8x224,2x512 vit_base_patch16_224:1x512

Needs torch and timm only; the plot needs matplotlib, too. Each measurement runs in a process of its
own and is written to the JSON file at once. Variants: 'locat' is the automatic choice of the back
end, 'dense' the yardstick that writes out one Gaussian exponent a pair of patches and axis, the
others force one back end. FLOPs are multiply-adds, with attention and the Gaussian.
"""
import argparse
import json
import platform
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from locat_mmseg.analysis.benchmark import (AUTOMATIC, BACKENDS_OF, DENSE, PLAIN, VARIANTS, Case,
                                            Settings, check_case, measure, parse_cases)
from locat_mmseg.analysis.benchmark_report import plot, table
from locat_mmseg.analysis.run_record import write_json

DEFAULT_CASES = ['vit_tiny_patch16_224:8x224,2x512', 'vit_base_patch16_224:1x512',
                 'swin_tiny_patch4_window7_224:4x224']


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('cases', nargs='*', default=DEFAULT_CASES, metavar='MODEL:BxSIZE,...',
                        help=f'timm models and their inputs; by default {" ".join(DEFAULT_CASES)}')
    parser.add_argument('--variants', nargs='+', choices=VARIANTS, metavar='VARIANT',
                        help=f'of {", ".join(VARIANTS)}; by default the first two and the back '
                        'ends made for the device')
    parser.add_argument('--device', choices=['cpu', 'cuda'], default='cpu')
    parser.add_argument('--dtype', choices=['float32', 'bfloat16'], default='float32',
                        help='bfloat16: mixed precision by autocast')
    parser.add_argument('--compile', action='store_true', help='torch.compile all models')
    parser.add_argument('--threads', type=int, help='of the CPU')
    parser.add_argument('--pairs', type=int, default=10,
                        help='turns of plain model and variant; each gives one ratio')
    parser.add_argument('--minutes', type=float, default=float('inf'),
                        help='stop then; what is finished is in the files')
    parser.add_argument('--out', type=Path, default=Path('work_dirs/benchmark/results.json'),
                        help='JSON file; table (.md) and plot (.png) lie beside it')
    parser.add_argument('--report', action='store_true',
                        help='measure nothing: table and plot of the JSON file, made elsewhere')
    return parser


def parse_args(argv: Sequence[str] | None) -> tuple[argparse.Namespace, list[Case]]:
    parser = make_parser()
    args = parser.parse_args(argv)
    try:
        cases = [case for text in args.cases for case in parse_cases(text)]
        for case in cases:
            check_case(case)
    except ValueError as error:
        parser.error(str(error))
    if args.pairs < 2:
        parser.error(f'--pairs {args.pairs}: a spread takes at least 2')
    if args.device == 'cuda' and not torch.cuda.is_available():
        parser.error('--device cuda: torch sees no GPU here')
    if args.report and not args.out.is_file():
        parser.error(f'--report: {args.out} does not exist; name the file with --out')
    return args, cases


def machine(device: str) -> str:
    """What the numbers were measured on."""
    if device == 'cuda':
        return torch.cuda.get_device_name()
    info = Path('/proc/cpuinfo')
    lines = info.read_text().splitlines() if info.is_file() else []
    name = next((line.partition(':')[2].strip() for line in lines
                 if line.startswith('model name')), platform.processor() or platform.machine())
    return f'{name}, {torch.get_num_threads()} threads unless set'


def run(args: argparse.Namespace, cases: list[Case]) -> dict[str, Any]:
    """Measure everything, or what the time allows; the content of the JSON file."""
    settings = Settings(args.device, args.dtype, args.compile, args.threads, args.pairs)
    variants = args.variants or [AUTOMATIC, DENSE, *BACKENDS_OF[args.device]]
    deadline = time.monotonic() + 60 * args.minutes
    todo = [(case, variant) for case in cases for variant in [PLAIN, *variants]]
    results = dict(command=shlex.join(sys.argv), machine=machine(args.device),
                   torch=torch.__version__, settings=asdict(settings), rows=[], not_begun=[])
    for done, (case, variant) in enumerate(todo):
        if time.monotonic() > deadline:
            results['not_begun'] = [f'{c} {v}' for c, v in todo[done:]]
            break
        results['rows'].append({})
        for row in measure(case, variant, settings, deadline):
            results['rows'][-1] = row
            write_json(args.out, results)
        print(table(results['rows']).splitlines()[1 + len(results['rows'])], flush=True)
    write_json(args.out, results)
    return results


def report(results: dict[str, Any], path: Path) -> None:
    """Print and write the table, draw the plot."""
    if results['not_begun']:
        print(f'Time was up before: {", ".join(results["not_begun"])}')
    if not results['rows']:
        return
    text = table(results['rows'])
    path.with_suffix('.md').write_text(text)
    print(text)
    if find_spec('matplotlib') is None:
        print(f'No plot without matplotlib: copy {path} to a machine that has it and run '
              f'tools/benchmark.py --report --out {path.name}')
    else:
        plot(results['rows'], path.with_suffix('.png'))


def main(argv: Sequence[str] | None = None) -> None:
    args, cases = parse_args(argv)
    report(json.loads(args.out.read_text()) if args.report else run(args, cases), args.out)


if __name__ == '__main__':
    main()
