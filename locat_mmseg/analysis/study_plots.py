"""Figures that compare the conditions of a study.

A condition is told by colour and by marker, from the ninth on by the line's dashes, too. Colours
are those of Okabe and Ito (2008), which colour-blind readers tell apart; grey is in the place of
yellow, which is hard to see on white.
"""
import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from itertools import chain
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from .locality_plots import finish
from .locality_results import Locality
from .report import new_figure

COLOURS = ('#000000', '#D55E00', '#0072B2', '#009E73', '#CC79A7', '#56B4E9', '#E69F00', '#777777')
MARKERS = ('o', 's', '^', 'D', 'v', 'P', 'X', '*')
DASHES = ('-', '--', ':', '-.')
# Inches of a line of the legend.
_LEGEND_LINE = 0.19

Curves = Mapping[str, Mapping[int, Sequence[float]]]


def style(number: int) -> dict[str, Any]:
    """How the condition of a number is drawn."""
    return dict(color=COLOURS[number % len(COLOURS)], marker=MARKERS[number % len(MARKERS)],
                linestyle=DASHES[number // len(COLOURS) % len(DASHES)])


def plot_curves(curves: Curves, x_label: str, y_label: str) -> Figure:
    """A line through the means over seeds for each condition, in a band from least to greatest.

    Args:
        curves: values, one a seed, by whole number on the horizontal axis, by condition; one that
            has none is left out.
        x_label: of what they are over.
        y_label: of what they are.
    """
    figure = new_figure()
    axes = figure.subplots()
    for number, (name, curve) in enumerate(curves.items()):
        if curve:
            places = sorted(curve)
            axes.plot(places, [np.mean(curve[place]) for place in places], label=name,
                      markersize=4, linewidth=1.3, markevery=max(1, len(places) // 8),
                      **style(number))
            axes.fill_between(places, [min(curve[place]) for place in places],
                              [max(curve[place]) for place in places], linewidth=0, alpha=0.2,
                              color=style(number)['color'])
    finish(axes, x_label, y_label, '')
    axes.set_ylim(top=1.05 * axes.get_ylim()[1])  # the axis begins at 0: a margin for the whole
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))  # steps have many digits
    add_legend(figure, axes)
    return figure


def plot_points(points: Mapping[str, Sequence[tuple[float, float]]], x_label: str, y_label: str
                ) -> Figure:
    """A dot for each run, by condition.

    Args:
        points: one a seed, by condition; one that has none is left out.
        x_label: of the first number.
        y_label: of the second.
    """
    figure = new_figure()
    axes = figure.subplots()
    for number, (name, dots) in enumerate(points.items()):
        if dots:
            axes.plot(*zip(*dots), label=name, markersize=6, markeredgecolor='white',
                      markeredgewidth=0.5, **{**style(number), 'linestyle': 'none'})
    axes.set(xlabel=x_label, ylabel=y_label)
    axes.set_xlim(0, 1.05 * axes.get_xlim()[1])
    axes.grid(color='#e5e5e5')
    axes.set_axisbelow(True)
    add_legend(figure, axes)
    return figure


def add_legend(figure: Figure, axes: Axes) -> None:
    """The conditions below the axes, for which the figure grows."""
    handles, names = axes.get_legend_handles_labels()
    if not names:
        return
    columns = 2 if max(map(len, names)) < 24 else 1
    figure.set_figheight(figure.get_figheight()
                         + _LEGEND_LINE * math.ceil(len(names) / columns))
    figure.legend(handles, names, loc='outside lower center', ncols=columns, fontsize=8.5,
                  frameon=False, handlelength=3)


def pooled(localities: Sequence[Locality]) -> Locality:
    """The heads of several models of one architecture as those of one, layer by layer."""
    layers = []
    for same in zip(*(locality.layers for locality in localities), strict=True):
        lists = {item.name: list(chain.from_iterable(getattr(layer, item.name) for layer in same))
                 for item in fields(same[0])
                 if item.name != 'grids' and isinstance(getattr(same[0], item.name), list)}
        layers.append(replace(same[0], **lists))
    return Locality(localities[0].num_images, layers)
