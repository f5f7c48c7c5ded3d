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

from locat_mmseg.analysis.feature_responses import feature_responses
from locat_mmseg.analysis.frequency import RADII
from locat_mmseg.analysis.input_changes import CHANGES, Change, make_changes
from locat_mmseg.analysis.input_plots import plot_changes, plot_parts, plot_responses
from locat_mmseg.analysis.robustness import (Probed, Row, confounders, score_changes,
                                             score_map_parts, score_parts)
from locat_mmseg.analysis.run_record import Record
from locat_mmseg.analysis.scores import ClassScores, MapScores
from locat_mmseg.analysis.tables import cells_of, text_table
from locat_mmseg.analysis.visible_part import PARTS, ForegroundBoxes, ForegroundMasks
from locat_mmseg.openmmlab.errors import UserError, one_sentence_errors
from locat_mmseg.openmmlab.input_tools import (load_data, load_models, make_input_parser,
                                               progress, write_rows)
from locat_mmseg.openmmlab.labelled_pictures import LabelledPictures

DEFAULTS = dict(low_pass=RADII, high_pass=RADII, shuffle=(16, 32),
                rotate=(15, 30, 45, 90, 135, 180), shift=(4, 8, 12))


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = make_input_parser(__doc__, 'work_dirs/robustness')
    for kind, meaning in CHANGES.items():
        default = ' '.join(f'{value:.4g}' for value in DEFAULTS[kind])
        parser.add_argument(f'--{kind.replace("_", "-")}', nargs='*', type=float, metavar='VALUE',
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
            for change in make_changes(kind, getattr(args, kind) or DEFAULTS[kind], args.seed)]


def changes_table(args: argparse.Namespace, models: Sequence[Probed], data: LabelledPictures,
                  changes: Sequence[Change]) -> list[Row]:
    """Scores of all changes."""
    new_scores = (lambda: MapScores(data.num_classes, data.void)) if data.has_maps else ClassScores
    with progress(len(data)) as report:
        return score_changes(models, data.batches(args.batch, args.workers), changes, new_scores,
                             data.void, report)


def responses_table(args: argparse.Namespace, models: Sequence[Probed], data: LabelledPictures,
                    changes: Sequence[Change]) -> list[Row]:
    """Responses of features to changed copies, by layer."""
    rows = []
    for probed in models:
        pictures = (probed.fit(batch) for batch, _ in data.batches(args.batch, args.workers))
        with progress(len(data), probed.name) as report:
            rows += [dict(model=probed.name, **row) for row in feature_responses(
                probed.model, pictures, changes, report)]
    return rows


def parts_table(args: argparse.Namespace, models: Sequence[Probed]
                ) -> tuple[list[Row], LabelledPictures]:
    """Scores of foreground and background of classified images, and the images."""
    foreground = ForegroundBoxes(args.boxes) if args.boxes else ForegroundMasks(args.masks)
    data = {part: load_data(args, models, foreground=foreground, part=part) for part in PARTS}
    whole = data['whole']
    if whole.has_maps:
        raise UserError('--boxes and --masks divide images with one class each; give '
                        '--foreground CLASS ... for those with label maps')
    with progress(len(PARTS) * len(whole)) as report:
        return score_parts(models, {part: pictures.batches(args.batch, args.workers)
                                    for part, pictures in data.items()}, report), whole


def map_parts_table(args: argparse.Namespace, models: Sequence[Probed], data: LabelledPictures
                    ) -> list[Row]:
    """Scores of foreground and background of images with label maps."""
    if not data.has_maps:
        raise UserError('--foreground divides images with label maps; give --boxes DIR or --masks '
                        'DIR for those with one class each')
    labels = [label_of(name, data) for name in args.foreground]
    with progress(len(data)) as report:
        return score_map_parts(models, data.batches(args.batch, args.workers), data.num_classes,
                               labels, data.void, report)


def label_of(name: str, data: LabelledPictures) -> int:
    """The label of a class by its name or number."""
    if name in data.classes:
        return data.classes.index(name)
    if name.isdecimal() and int(name) < data.num_classes:
        return int(name)
    raise UserError(f'--foreground {name}: expected one of {", ".join(data.classes)}, or a number '
                    f'below {data.num_classes}')


def main(argv: Sequence[str] | None = None) -> None:
    with one_sentence_errors():
        record = Record(__file__, argv)
        args = parse_args(argv)
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
            rows = changes_table(args, models, data, changes)
            write_rows(record, args.out / 'changes', rows, args, data=data.describe(), **facts)
            plot_changes(rows, CHANGES).savefig(args.out / 'changes.png', dpi=130)
            print(text_table(*cells_of(rows)))
            if args.responses:
                rows = responses_table(args, models, data, changes)
                write_rows(record, args.out / 'responses', rows, args, data=data.describe(),
                           **facts)
                plot_responses(rows).savefig(args.out / 'responses.png', dpi=130)
                print(text_table(*cells_of(rows)))
        if divided_by:
            if divided_by == 'foreground':
                data = load_data(args, models)
                rows = map_parts_table(args, models, data)
            else:
                rows, data = parts_table(args, models)
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
