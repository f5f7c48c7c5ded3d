r"""How predictions hold when inputs change: frequencies, patches, place, foreground, background.

    python tools/robustness.py CONFIG CHECKPOINT --timm resnet50 --low-pass
    python tools/robustness.py --timm vit_base_patch16_224 resnet50 --images imagenet/val \
        --low-pass --shuffle 16 32 56
    python tools/robustness.py --timm vit_base_patch16_224 resnet50 --images imagenet/train \
        --boxes imagenet/boxes
    python tools/robustness.py CONFIG CHECKPOINT --foreground car pedestrian

Top-1 and top-5 of classifiers, mIoU of segmentation models, of all models side by side, raw and as
percentage of the model's own score on whole pictures.
"""
import argparse
from collections.abc import Sequence
from pathlib import Path

from locat_mmseg.analysis.input_changes import CHANGES, SWEEPS, Change, make_changes
from locat_mmseg.analysis.input_plots import plot_changes, plot_parts, plot_responses
from locat_mmseg.analysis.robustness import confounders
from locat_mmseg.analysis.run_record import Record, check_target
from locat_mmseg.analysis.tables import cells_of, text_table
from locat_mmseg.analysis.visible_part import PARTS, ForegroundBoxes, ForegroundMasks
from locat_mmseg.openmmlab.errors import UserError, one_sentence_errors
from locat_mmseg.openmmlab.input_experiments import (changes_table, map_parts_table, parts_table,
                                                     responses_table)
from locat_mmseg.openmmlab.input_tools import (load_data, load_models, make_input_parser,
                                               write_rows)
from locat_mmseg.openmmlab.model_arguments import real


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = make_input_parser(__doc__, 'work_dirs/robustness')
    for kind, meaning in CHANGES.items():
        default = ' '.join(f'{value:.4g}' for value in SWEEPS[kind])
        parser.add_argument(f'--{kind.replace("_", "-")}', nargs='*', type=real, metavar='VALUE',
                            help=f'{meaning}; without values {default}')
    parser.add_argument('--responses', action='store_true', help='also how much the features of '
                        'each layer respond to the changed copies of the pictures they like best')
    divisions = parser.add_mutually_exclusive_group()
    divisions.add_argument('--boxes', type=Path, metavar='DIR', help='divide images by the XML '
                           "files of this folder, which have the images' names")
    divisions.add_argument('--masks', type=Path, metavar='DIR', help='divide images by the PNG '
                           'files of this folder, foreground not 0')
    divisions.add_argument('--foreground', nargs='+', metavar='CLASS', help='divide images with '
                           'label maps: names or numbers of the classes in the foreground')
    return parser.parse_args(argv)


def chosen_changes(args: argparse.Namespace) -> list[Change]:
    """The changes of a command line."""
    return [change for kind in CHANGES if getattr(args, kind) is not None
            for change in make_changes(kind, getattr(args, kind) or SWEEPS[kind], args.seed)]


def main(argv: Sequence[str] | None = None) -> None:
    with one_sentence_errors():
        record = Record(__file__, argv)
        args = parse_args(argv)
        check_target(args.out / 'changes.json')
        changes = chosen_changes(args)
        divided_by = next((name for name in ('boxes', 'masks', 'foreground')
                           if getattr(args, name)), None)
        if not changes and not divided_by:
            raise UserError('nothing to measure: give some of --'
                            f'{", --".join(kind.replace("_", "-") for kind in CHANGES)}, or one of '
                            '--boxes, --masks, --foreground')
        if args.responses and not changes:
            raise UserError('--responses is about changes of pictures: give --rotate or --shift as '
                            'well')
        models, sources = load_models(args)
        facts = dict(models=sources)
        if changes:
            data = load_data(args, models)
            rows = changes_table(models, data, changes, args.batch, args.workers)
            write_rows(record, args.out / 'changes', rows, args, data=data.describe(), **facts)
            plot_changes(rows, CHANGES).savefig(args.out / 'changes.png', dpi=130)
            print(text_table(*cells_of(rows)))
            if args.responses:
                rows = responses_table(models, data, changes, args.batch, args.workers)
                write_rows(record, args.out / 'responses', rows, args, data=data.describe(),
                           **facts)
                plot_responses(rows).savefig(args.out / 'responses.png', dpi=130)
                print(text_table(*cells_of(rows)))
        if divided_by:
            if divided_by == 'foreground':
                data = load_data(args, models)
                rows = map_parts_table(models, data, args.foreground, args.batch, args.workers)
            else:
                foreground = ForegroundBoxes(args.boxes) if args.boxes else \
                    ForegroundMasks(args.masks)
                parts = {part: load_data(args, models, foreground=foreground, part=part)
                         for part in PARTS}
                rows = parts_table(models, parts, args.batch, args.workers)
                data = parts['whole']
            notes = confounders(sources, divided_by)
            write_rows(record, args.out / 'parts', rows, args, data=data.describe(),
                       confounders=notes, divided_by=divided_by, foreground=args.foreground,
                       **facts)
            plot_parts(rows).savefig(args.out / 'parts.png', dpi=130)
            print(text_table(*cells_of(rows)))
            print('what else differs:', *notes, sep='\n- ')
        print(f'written to {args.out}')


if __name__ == '__main__':
    main()
