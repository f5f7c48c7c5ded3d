"""The parts of an exploration that need labels: scores with tokens or pictures changed.

Each function makes one `Part`; what is computed, and how, is the stand-alone tool's.
"""
from ..analysis.exploration import Finding, NotApplicable, Part
from ..analysis.input_changes import CHANGES, SWEEPS, Change, make_changes
from ..analysis.input_plots import (change_kinds, draw_change, draw_heat_map, draw_layers,
                                    draw_parts, layer_experiments, main_score)
from ..analysis.report import figures, panel, table
from ..analysis.tables import cells_of
from ..analysis.visible_part import PARTS, ForegroundBoxes
from .explore_data import CLASSIFIER, SEGMENTOR, Subject
from .input_experiments import (changes_table, check_class_token, class_token_table,
                                map_parts_table, parts_table)
from .labelled_pictures import LabelledPictures


def class_token(subject: Subject) -> Part:
    """What the class token knows."""
    args, probed = subject.args, subject.probed

    def look() -> Finding:
        data = subject.need_labels()
        try:
            check_class_token(probed, data.has_maps)
        except ValueError as error:
            raise NotApplicable(str(error)) from error
        found = class_token_table(probed, data, args.batch, args.workers)
        rows = [dict(model=probed.name, **row) for row in found.rows]
        drawn = {f'{name}, by layer; dashed: the whole model': panel(draw_layers, rows, name)
                 for name in layer_experiments(rows)}
        if found.heat_maps:
            drawn['Top-1 of the classifier on each patch alone, by its position'] = panel(
                draw_heat_map, 'patch', found.heat_maps['top1'])
        left_out = list(found.left_out)
        if data.has_maps:
            left_out.append('class token only, means and single patches: the decode head reads '
                            'patches, it has no top-1')
        return Finding([figures(drawn), table(*cells_of(found.rows), images_text(data))],
                       found.rows, left_out)
    return Part(
        'What the class token knows',
        'Scores with the class token kept apart from the patches up to a layer, and, of a '
        'classifier, with the class token alone from a layer on and with its head on patches.',
        subject.command('class_token', *subject.data_words), look)


def changes(subject: Subject) -> Part:
    """Scores on changed pictures."""
    args, probed = subject.args, subject.probed

    def look() -> Finding:
        data = subject.need_labels()
        rows = changes_table([probed], data, short_sweeps(subject, data), args.batch, args.workers)
        return Finding([
            figures({f'{main_score(rows)} by {CHANGES[kind]}': panel(draw_change, rows, kind,
                                                                     CHANGES[kind])
                     for kind in change_kinds(rows)}),
            table(*cells_of([{key: value for key, value in row.items() if key != 'model'}
                             for row in rows]), images_text(data))], rows)
    return Part(
        'Frequencies, order of patches, place',
        'Scores on pictures without their high or low frequencies, with patches shuffled, rotated '
        'and shifted: what a score does not fall with, the model does not need.',
        subject.command('robustness', *subject.data_words, '--low-pass', '--high-pass',
                        '--shuffle', '--rotate', '--shift'), look)


def short_sweeps(subject: Subject, data: LabelledPictures) -> list[Change]:
    """Every second value of the tool's long sweeps; shuffled patches that fit the pictures."""
    side = min(subject.probed.size or data[0][0].shape[-2:])
    patches = sorted({max(1, side // parts) for parts in (8, 4, 2)})
    sweeps = {kind: values[::2] if len(values) > 3 else values for kind, values in SWEEPS.items()}
    sweeps['shuffle'] = patches
    return [change for kind in CHANGES
            for change in make_changes(kind, sweeps[kind], subject.args.seed)]


def foreground(subject: Subject) -> Part:
    """Scores of foreground and background."""
    args, probed = subject.args, subject.probed

    def look() -> Finding:
        if subject.task == SEGMENTOR and not args.foreground:
            raise NotApplicable('no classes were named as foreground: give --foreground CLASS ...')
        if subject.task == CLASSIFIER and not args.boxes:
            raise NotApplicable('no boxes divide the pictures: give --boxes DIR')
        data = subject.need_labels()
        if subject.task == SEGMENTOR:
            rows = map_parts_table([probed], data, args.foreground, args.batch, args.workers)
        else:
            boxes = ForegroundBoxes(args.boxes)
            parts = {part: subject.labelled(foreground=boxes, part=part) for part in PARTS}
            rows, data = parts_table([probed], parts, args.batch, args.workers), parts['whole']
        return Finding([figures({f'{name} of each part': panel(draw_parts, rows, name)
                                 for name in ('top1', 'top5', 'mIoU') if name in rows[0]}),
                        table(*cells_of([{key: value for key, value in row.items()
                                          if key not in ('model', 'value')} for row in rows]),
                              images_text(data))], rows)
    division = ('--foreground', *(args.foreground or ['CLASS'])) if subject.task == SEGMENTOR \
        else ('--boxes', args.boxes or 'DIR')
    return Part(
        'Foreground and background',
        'Scores where only the foreground, or only the background, is visible and the rest is '
        'black.', subject.command('robustness', *subject.data_words, *division), look)


def images_text(data: LabelledPictures) -> str:
    """Caption of a table of scores."""
    return (f'On {len(data)} of {len(data.dataset)} images; scores in percent, cross-entropy in '
            'nats.')

