"""Plots of scores with separated tokens and with changed inputs, models side by side."""
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from .class_token_scores import ISOLATED, ONLY, PLAIN
from .robustness import NORMALISED, WHOLE, Row

UNITS = dict(top1='top-1 [%]', top5='top-5 [%]', mIoU='mIoU [%]', aAcc='pixel accuracy [%]')
MARKERS = 'osD^vPX*'


def main_score(rows: Sequence[Row]) -> str:
    """The score to draw: the first of `NORMALISED` that rows have, mIoU before pixel accuracy."""
    return next(name for name in NORMALISED if name in rows[0])


def plot_layers(rows: Sequence[Row]) -> Figure:
    """`draw_layers` of each experiment that the rows have."""
    found = layer_experiments(rows)
    figure = Figure(figsize=(4.5 * len(found), 3.6), layout='constrained')
    panels = figure.subplots(1, len(found), sharey=True, squeeze=False)[0]
    for axes, experiment in zip(panels, found):
        draw_layers(axes, rows, experiment)
    panels[0].legend()
    return figure


def layer_experiments(rows: Sequence[Row]) -> list[str]:
    """The experiments of rows that are made at every layer."""
    return [name for name in (ISOLATED, ONLY) if any(row['experiment'] == name for row in rows)]


def draw_layers(axes: Axes, rows: Sequence[Row], experiment: str) -> None:
    """Scores with the class token isolated up to a layer, or alone from it on; plain as dashes.

    Args:
        axes: to draw in.
        rows: of `class_token_scores`, some with a layer.
        experiment: ISOLATED or ONLY.
    """
    score = main_score(rows)
    for number, name in enumerate(names_of(rows)):
        own = [row for row in rows if row['model'] == name]
        points = [row for row in own if row['experiment'] == experiment]
        axes.plot([row['layer'] for row in points], [row[score] for row in points],
                  color=f'C{number}', marker=MARKERS[number % len(MARKERS)], label=name)
        plain, = (row[score] for row in own if row['experiment'] == PLAIN)
        axes.axhline(plain, color=f'C{number}', linestyle='--', linewidth=1)
    finish(axes, 'layer L', UNITS[score], f'{experiment}, '
           f'{"blocks before L" if experiment == ISOLATED else "blocks from L on"}')


def plot_heat_maps(maps: Sequence[tuple[str, Tensor]]) -> Figure:
    """`draw_heat_map` of each model."""
    figure = Figure(figsize=(3.6 * len(maps), 3.2), layout='constrained')
    for axes, (name, values) in zip(figure.subplots(1, len(maps), squeeze=False)[0], maps):
        draw_heat_map(axes, name, values)
    return figure


def draw_heat_map(axes: Axes, name: str, values: Tensor) -> None:
    """Top-1 (h, w) of each patch alone, by its position."""
    image = axes.imshow(values.numpy(), cmap='viridis')
    axes.set(title=f'{name}: {values.min():.1f} to {values.max():.1f} %', xticks=[], yticks=[])
    axes.figure.colorbar(image, ax=axes, label='top-1 of the patch alone [%]')


def plot_changes(rows: Sequence[Row], labels: dict[str, str]) -> Figure:
    """`draw_change` of each kind of change, raw and as percentage of the whole picture's score.

    Args:
        rows: of `robustness.score_changes`.
        labels: of the axis, by kind of change.
    """
    kinds = change_kinds(rows)
    figure = Figure(figsize=(9, 3.2 * len(kinds)), layout='constrained')
    panels = figure.subplots(len(kinds), 2, squeeze=False)
    for kind, line in zip(kinds, panels):
        for axes, normalised in zip(line, (False, True)):
            draw_change(axes, rows, kind, labels[kind], normalised)
    panels[0, 0].legend()
    return figure


def change_kinds(rows: Sequence[Row]) -> list[str]:
    """The kinds of change that rows have, in their order."""
    return list(dict.fromkeys(row['change'] for row in rows if row['change'] != WHOLE))


def draw_change(axes: Axes, rows: Sequence[Row], kind: str, label: str, normalised: bool = False
                ) -> None:
    """Score against the value of a kind of change; or its percentage of the whole picture's."""
    score = main_score(rows)
    key = f'normalised_{score}' if normalised else score
    for number, name in enumerate(names_of(rows)):
        points = sorted((row['value'], row[key]) for row in rows
                        if (row['model'], row['change']) == (name, kind) and row[key] is not None)
        axes.plot(*zip(*points), color=f'C{number}', label=name,
                  marker=MARKERS[number % len(MARKERS)])
    finish(axes, label, '% of the score on whole pictures' if normalised else UNITS[score], kind)


def plot_parts(rows: Sequence[Row]) -> Figure:
    """`draw_parts` of each score."""
    scores = [name for name in ('top1', 'top5', 'mIoU') if name in rows[0]]
    figure = Figure(figsize=(4.5 * len(scores), 3.6), layout='constrained')
    for axes, score in zip(figure.subplots(1, len(scores), squeeze=False)[0], scores):
        draw_parts(axes, rows, score)
    figure.legend(*axes.get_legend_handles_labels(), loc='outside lower center',
                  ncols=len(names_of(rows)))
    return figure


def draw_parts(axes: Axes, rows: Sequence[Row], score: str) -> None:
    """A normalised score of foreground and background, a bar for each model."""
    names = names_of(rows)
    width = 1 / (len(names) + 1)
    for number, name in enumerate(names):
        bars = [row for row in rows if row['model'] == name and row['change'] != WHOLE]
        shift = (number - (len(names) - 1) / 2) * width
        axes.bar([place + shift for place in range(len(bars))],
                 [row[f'normalised_{score}'] or 0 for row in bars], width, label=name,
                 hatch=['', '//', 'xx', '..'][number % 4], edgecolor='white')
        axes.set_xticks(range(len(bars)), [row['change'] for row in bars])
    finish(axes, '', f'{score}: % of the whole', score)


def plot_responses(rows: Sequence[Row]) -> Figure:
    """`draw_responses` to each kind of change."""
    kinds = change_kinds(rows)
    figure = Figure(figsize=(4.5 * len(kinds), 3.4), layout='constrained')
    for axes, kind in zip(figure.subplots(1, len(kinds), squeeze=False)[0], kinds):
        draw_responses(axes, rows, kind)
    axes.legend()
    return figure


def draw_responses(axes: Axes, rows: Sequence[Row], kind: str) -> None:
    """What is left of the features' responses to a kind of change, by relative depth.

    Args:
        axes: to draw in.
        rows: of `feature_responses`, with the ``model``.
        kind: of change.
    """
    for number, name in enumerate(names_of(rows)):
        ratios = [row['ratio'] for row in rows if (row['model'], row['change']) == (name, kind)]
        points = [((place + 1) / len(ratios), ratio) for place, ratio in enumerate(ratios)
                  if ratio is not None]
        axes.plot(*zip(*points), color=f'C{number}', label=name,
                  marker=MARKERS[number % len(MARKERS)])
    finish(axes, 'layer / number of layers', 'response to copies / to the picture', kind)


def names_of(rows: Sequence[Row]) -> list[str]:
    """Names of the models, in their order."""
    return list(dict.fromkeys(row['model'] for row in rows))


def finish(axes: Axes, xlabel: str, ylabel: str, title: str) -> None:
    """Labels and a faint grid."""
    axes.set(xlabel=xlabel, ylabel=ylabel, title=title)
    axes.grid(alpha=0.3)
    axes.set_axisbelow(True)
