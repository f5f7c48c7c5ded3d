"""Figures of a model's locality.

Colours are from viridis, whose lightness rises all along: it stays ordered for colour-blind readers
and in grey. Kinds differ in hatch, too.
"""
import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from .locality_results import Locality
from .report import new_figure

COLOURS = colormaps['viridis']
DISTANCE_LABEL = 'mean attention distance / diagonal'


def plot_plane(locality: Locality, title: str = '') -> Figure:
    """Every head in the plane of attention distance and entropy, coloured by layer."""
    figure = new_figure()
    axes = figure.subplots()
    heads = [(distance, entropy, layer.depth) for layer in locality.layers
             for distance, entropy in zip(layer.distance_diagonal, layer.entropy)]
    distances, entropies, depths = zip(*heads)
    points = axes.scatter(distances, entropies, s=26, c=depths, cmap=COLOURS, edgecolors='#333',
                          linewidths=0.5)
    figure.colorbar(points, label='layer', ticks=MaxNLocator(integer=True))
    axes.set(xlim=(-0.02, max(0.6, 1.05 * max(distances))), ylim=(-0.03, 1.05), title=title,
             xlabel=DISTANCE_LABEL, ylabel='normalised entropy')
    axes.grid(color='#e5e5e5')
    axes.set_axisbelow(True)
    return figure


def plot_heads(locality: Locality, measure: str, label: str, title: str = '') -> Figure:
    """One measure by layer: a dot for each head and a line through the means.

    Args:
        measure: name of a `LayerLocality` attribute with a number a head.
        label: of the axis.
    """
    figure = new_figure()
    axes = figure.subplots()
    for layer in locality.layers:
        heads = getattr(layer, measure)
        axes.scatter([layer.depth] * len(heads), heads, s=14, color='#888')
    means = [np.mean(getattr(layer, measure)) for layer in locality.layers]
    axes.plot([layer.depth for layer in locality.layers], means, color=COLOURS(0.25), marker='o',
              markersize=4)
    finish(axes, 'layer', label, title)
    return figure


def plot_shares(locality: Locality, title: str = '') -> Figure:
    """Where the attention of patches goes, by layer: patches, class tokens, registers."""
    figure = new_figure()
    axes = figure.subplots()
    depths = [layer.depth for layer in locality.layers]
    bottom = np.zeros(len(depths))
    for name, measure, colour, hatch in (('class', 'class_share', 0.1, ''),
                                         ('registers', 'register_share', 0.55, '//')):
        shares = [getattr(layer, measure) for layer in locality.layers]
        if all(shares):
            means = np.array([np.mean(heads) for heads in shares])
            axes.bar(depths, means, bottom=bottom, color=COLOURS(colour), hatch=hatch, label=name,
                     edgecolor='white', linewidth=0.3)
            bottom += means
    axes.bar(depths, 1 - bottom, bottom=bottom, color='#ddd', label='patches', edgecolor='white',
             linewidth=0.3)
    figure.legend(loc='outside upper center', ncols=3, fontsize=9, frameon=False)
    finish(axes, 'layer', 'share of attention', title)
    return figure


def plot_depth(values: list[float], label: str, title: str = '') -> Figure:
    """One number after each block."""
    figure = new_figure()
    axes = figure.subplots()
    axes.plot(range(len(values)), values, color=COLOURS(0.25), marker='o', markersize=4)
    finish(axes, 'block', label, title)
    return figure


def finish(axes: Axes, x_label: str, y_label: str, title: str) -> None:
    """Labels, whole numbers of layers, a vertical axis from 0 unless a value is below."""
    axes.set(xlabel=x_label, ylabel=y_label, title=title)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_ylim(bottom=min(0, axes.get_ylim()[0]))
    axes.grid(axis='y', color='#e5e5e5')
    axes.set_axisbelow(True)
