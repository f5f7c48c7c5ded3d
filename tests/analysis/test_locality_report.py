"""Figures, table and page of a model's locality: what is drawn is what was measured."""
import math

import numpy as np
import pytest

from locat_mmseg.analysis import LayerLocality, Locality
from locat_mmseg.analysis.locality_plots import plot_depth, plot_heads, plot_plane, plot_shares
from locat_mmseg.analysis.locality_report import layer_rows, locality_page


def locality(**kwargs) -> Locality:
    """Two layers of two heads, with a class token and registers, typed by hand."""
    common = dict(windowed=False, grids=[(2, 3)], distance_patches=[1., 2.],
                  distance_pixels=[16., 32.], register_share=[0.25, 0.25])
    return Locality(5, [
        LayerLocality('blocks.0.attn', 0, distance_diagonal=[0.1, 0.3], entropy=[0.5, 0.7],
                      **{**common, 'class_share': [0.1, 0.2], **kwargs}),
        LayerLocality('blocks.1.attn', 1, distance_diagonal=[0.4, 0.8], entropy=[0.9, 1.],
                      **{**common, 'class_share': [0.3, 0.5], **kwargs})], [0.5, -0.25])


def test_plane_shows_every_head_in_its_layers_colour():
    points = plot_plane(locality()).axes[0].collections[0]
    assert points.get_offsets().tolist() == [[0.1, 0.5], [0.3, 0.7], [0.4, 0.9], [0.8, 1.]]
    assert points.get_array().tolist() == [0, 0, 1, 1]
    assert points.axes.get_xlim()[1] > 0.8


def test_heads_by_layer():
    axes, = plot_heads(locality(), 'entropy', 'normalised entropy').axes
    assert [dots.get_offsets().tolist() for dots in axes.collections] == [
        [[0, 0.5], [0, 0.7]], [[1, 0.9], [1, 1.]]]
    assert axes.lines[0].get_ydata() == pytest.approx([0.6, 0.95])
    assert (axes.get_ylabel(), axes.get_ylim()[0]) == ('normalised entropy', 0)


def test_shares_add_up_to_one():
    axes, = plot_shares(locality()).axes
    heights = np.array([[bar.get_height() for bar in bars] for bars in axes.containers])
    assert heights == pytest.approx(np.array([[0.15, 0.4], [0.25, 0.25], [0.6, 0.35]]))
    hatches = [bars[0].get_hatch() for bars in axes.containers]
    assert len(set(hatches[:2])) == 2  # told apart without colour
    axes, = plot_shares(locality(register_share=None)).axes
    assert len(axes.containers) == 2


def test_values_below_zero_are_in_view():
    axes, = plot_depth([0.5, -0.25], 'cosine').axes
    assert axes.get_ylim()[0] < -0.25


def test_table():
    header, rows = layer_rows(locality())
    assert header == ['layer', 'name', 'heads', 'distance / diagonal', 'in patches', 'in pixels',
                      'entropy', 'class share', 'register share', 'smallest', 'largest']
    assert rows[0][:3] == [0, 'blocks.0.attn', 2]
    assert rows[0][3:] == pytest.approx([0.2, 1.5, 24., 0.6, 0.15, 0.25, 0.1, 0.3])
    header, _ = layer_rows(locality(gaussian_alpha=[1., 2.], register_share=None))
    assert 'alpha' in header and 'register share' not in header


def test_page_tells_all():
    text = locality_page(locality(), 'A model', {'checkpoint': 'a.pth'})
    for part in ('<h1>A model</h1>', '<td>a.pth</td>', '<td>2 x 3</td>', '<td>5</td>',
                 '0.100 (layer 0)', 'renormalised', 'class token after each block'):
        assert part in text
    assert text.count('<img') == 5
    assert 'inside windows' not in text and 'Strength' not in text
    swin = locality(windowed=True, class_share=None, register_share=None,
                    gaussian_alpha=[1., 1.], gaussian_distance_diagonal=[0.1, 0.1])
    swin.class_alignment, swin.receptive_area = None, [0.1, 0.2]
    text = locality_page(swin, 'A Swin', {})
    assert 'inside windows' in text and text.count('<img') == 6


def test_from_dict_and_back():
    original = locality(gaussian_alpha=[1., math.nan])
    read = Locality.from_dict({'epoch': 3, **original.to_dict()})
    assert math.isnan(read.layers[0].gaussian_alpha[1])
    assert read.to_dict() == original.to_dict()
    assert read.class_alignment == [0.5, -0.25]
