"""Figures hold the numbers of their tables."""
import pytest
import torch

from locat_mmseg.analysis.class_token_scores import ISOLATED, ONLY, PLAIN
from locat_mmseg.analysis.input_changes import CHANGES
from locat_mmseg.analysis.input_plots import (plot_changes, plot_heat_maps, plot_layers,
                                              plot_parts, plot_responses)
from locat_mmseg.analysis.robustness import normalise


def lines(axes):
    return [(line.get_xdata().tolist() if hasattr(line.get_xdata(), 'tolist')
             else list(line.get_xdata()), list(line.get_ydata())) for line in axes.lines]


def test_layers_with_plain_as_a_line():
    rows = [dict(model='m', experiment=PLAIN, layer=None, top1=70.),
            *(dict(model='m', experiment=ISOLATED, layer=n, top1=70. - n) for n in (0, 2)),
            *(dict(model='m', experiment=ONLY, layer=n, top1=10. * n) for n in (0, 2))]
    left, right = plot_layers(rows).axes
    assert lines(left) == [([0, 2], [70, 68]), ([0, 1], [70, 70])]
    assert lines(right)[0] == ([0, 2], [0, 20])
    alone, = plot_layers(rows[:3]).axes  # a segmentation model has no second experiment
    assert lines(alone) == lines(left)
    assert 'isolated' in left.get_title() and left.get_ylabel() == 'top-1 [%]'


def test_changes_raw_and_normalised_in_order():
    rows = normalise([dict(model='m', change='whole', value=None, mIoU=50.),
                      dict(model='m', change='shift', value=4, mIoU=20.),
                      dict(model='m', change='shift', value=2, mIoU=40.)])
    raw, normalised = plot_changes(rows, CHANGES).axes
    assert lines(raw) == [([2, 4], [40, 20])] and lines(normalised) == [([2, 4], [80, 40])]
    assert raw.get_xlabel() == CHANGES['shift']


def test_responses_by_relative_depth():
    rows = [dict(model='m', change='shift', layer=str(n), ratio=ratio)
            for n, ratio in enumerate([0.9, None, 0.5, 0.7])]
    axes, = plot_responses(rows).axes
    assert lines(axes) == [([0.25, 0.75, 1], [0.9, 0.5, 0.7])]


def test_parts_and_heat_maps():
    rows = normalise([dict(model=name, change=part, top1=value, top5=100.) for name in 'ab'
                      for part, value in (('whole', 50.), ('foreground', 40.),
                                          ('background', 10.))])
    top1, top5 = plot_parts(rows).axes
    assert [bar.get_height() for bar in top1.patches] == [80, 20, 80, 20]
    assert [label.get_text() for label in top1.get_xticklabels()] == ['foreground', 'background']
    first = [bar for bar in top1.patches if bar.get_x() < 0.5]
    assert (min(bar.get_x() for bar in first) + max(
        bar.get_x() + bar.get_width() for bar in first)) / 2 == pytest.approx(top1.get_xticks()[0])
    figure = top1.figure
    figure.draw_without_rendering()
    legend, = figure.legends
    assert not any(legend.get_window_extent().overlaps(axes.get_window_extent())
                   for axes in figure.axes)
    figure = plot_heat_maps([('m', torch.tensor([[1., 2., 3.]]))])
    assert figure.axes[0].images[0].get_array().tolist() == [[1, 2, 3]]
    assert figure.axes[0].get_title() == 'm: 1.0 to 3.0 %'
