"""Pictures of classification results show the image files."""
from types import SimpleNamespace

import cv2
import numpy as np
import pytest
import torch
from mmengine.registry import init_default_scope
from mmpretrain.registry import HOOKS
from mmpretrain.structures import DataSample
from mmpretrain.visualization import UniversalVisualizer

from locat_mmseg.openmmlab.datasets.draw_shapes import Picture
from locat_mmseg.openmmlab.datasets.paint_shapes import draw_image
from locat_mmseg.openmmlab.errors import UserError

INPUTS = dict(inputs=torch.zeros(2, 3, 32, 32))  # what mmpretrain's hook would draw: black


def hook_into(folder, **kwargs):
    init_default_scope('mmpretrain')
    hook = HOOKS.build(dict(type='FileVisualizationHook', enable=True, out_dir=str(folder),
                            **kwargs))
    hook._visualizer = UniversalVisualizer(vis_backends=[], name=str(folder))
    return hook


def sample(path: str) -> DataSample:
    return DataSample(metainfo=dict(img_path=path)).set_gt_label(1).set_pred_score(
        torch.tensor([0.2, 0.8])).set_pred_label(1)


def test_pictures_are_the_files_with_a_text(tmp_path):
    drawn = draw_image(Picture(0, 'test', 3, (384, 417)))
    path = 'shapes://0/384x417/shapes_test_000003.png'
    hook_into(tmp_path, interval=1).after_test_iter(SimpleNamespace(), 0, INPUTS, [sample(path)])
    picture = cv2.imread(str(tmp_path / '384x417_shapes_test_000003.png_0.png'))
    assert picture.shape == drawn.shape
    np.testing.assert_allclose(picture[200:], drawn[200:], atol=2)  # the text is above
    assert (picture[:200] != drawn[:200]).any()


def test_every_so_many_pictures_and_equal_names_in_two_folders(tmp_path):
    paths = []
    for folder in 'ab':
        (tmp_path / folder).mkdir()
        paths.append(str(tmp_path / folder / '0.png'))
        cv2.imwrite(paths[-1], np.full((40, 60, 3), 99, np.uint8))
    samples = [sample(path) for path in paths]
    hook_into(tmp_path / 'all', interval=1).after_test_iter(None, 0, INPUTS, samples)
    assert {p.name for p in (tmp_path / 'all').iterdir()} == {'a_0.png_0.png', 'b_0.png_0.png'}
    hook = hook_into(tmp_path / 'third', interval=3)  # of samples 0 to 3, numbers 0 and 3
    for batch, expected in enumerate([{'a_0.png_0.png'}, {'a_0.png_0.png', 'b_0.png_0.png'}]):
        hook.after_test_iter(None, batch, INPUTS, samples)
        assert {p.name for p in (tmp_path / 'third').iterdir()} == expected


def test_images_without_files_cannot_be_drawn(tmp_path):
    with pytest.raises(UserError, match='this data set has none .*leave out --show-dir'):
        hook_into(tmp_path, interval=1).after_test_iter(None, 0, INPUTS,
                                                        [DataSample().set_gt_label(1)])
