"""Pictures per layer and head: what is drawn where, and in which colour."""
import cv2
import numpy as np
import pytest
import torch
from matplotlib import colormaps

from locat_mmseg.analysis.patch_pictures import GAP, layer_limits, mosaic, save_patch_picture

IMAGE = np.full((60, 100, 3), 200, np.uint8)


def maps(layers=2, heads=3, grid=(3, 5), factor=1.):
    generator = torch.Generator().manual_seed(0)
    return [factor * torch.rand(heads, *grid, generator=generator) for _ in range(layers)]


def test_rows_are_layers_and_columns_heads():
    layers = maps()
    picture = mosaic(layers, [(0, 1), (0, 2)])
    scale = 72 // 5
    tile = 3 * scale + GAP, 5 * scale + GAP
    assert picture.shape == (2 * tile[0], 3 * tile[1], 3)
    for layer, head, row, column in np.ndindex(2, 3, 3, 5):
        pixel = picture[layer * tile[0] + row * scale, head * tile[1] + column * scale]
        shade = layers[layer][head, row, column].item() / (1 + layer)
        np.testing.assert_allclose(pixel, colormaps['viridis'](shade)[:3])
    assert (picture[3 * scale:tile[0]] == 1).all()


def test_models_share_the_colours_of_a_layer():
    models = dict(a=maps(), b=maps(factor=3.))
    assert layer_limits(models, None) == [(0., pytest.approx(3 * layer.max().item()))
                                          for layer in models['a']]
    assert layer_limits(models, (-1., 1.)) == [(-1., 1.)] * 2


@pytest.mark.parametrize('names', [['locat'], ['locat', 'plain']])
def test_a_picture_file(tmp_path, names):
    path = tmp_path / 'new' / 'picture.png'
    save_patch_picture(path, IMAGE, (1, 2), {name: maps() for name in names}, ['0', '1', '2'], 'x')
    picture = cv2.imread(str(path))
    red = (picture[..., 2] > 200) & (picture[..., 1] < 50)
    assert red.sum() > 40  # the frame around the patch
    assert picture.shape[1] > 300 * len(names)


def test_models_of_other_shapes(tmp_path):
    with pytest.raises(ValueError, match='the models have other layers, heads or patches'):
        save_patch_picture(tmp_path / 'a.png', IMAGE, (0, 0), dict(a=maps(), b=maps(heads=2)),
                           ['0', '1', '2'], 'x')
