"""Image, truth and prediction, panel by panel."""
import mmcv
import numpy as np
import pytest
import torch
from mmengine.structures import PixelData
from mmseg.structures import SegDataSample

from locat_mmseg.openmmlab.visualizer import SegPanelVisualizer

HEIGHT, WIDTH = 5, 7
PALETTE = [[10, 20, 30], [200, 100, 0]]


def draw(tmp_path, sample: SegDataSample, **kwargs) -> list[np.ndarray]:
    """The panels of a written picture."""
    visualizer = SegPanelVisualizer(alpha=1)
    visualizer.set_dataset_meta(classes=['a', 'b'], palette=PALETTE)
    file = tmp_path / 'picture.png'
    visualizer.add_datasample('picture', image(), sample, out_file=str(file), **kwargs)
    picture = mmcv.imread(str(file), channel_order='rgb')
    return np.split(picture, picture.shape[1] // WIDTH, axis=1)


def image() -> np.ndarray:
    return np.arange(HEIGHT * WIDTH * 3, dtype=np.uint8).reshape(HEIGHT, WIDTH, 3)


def label_map(*pixels: tuple[int, int]) -> torch.Tensor:
    label = torch.zeros(1, HEIGHT, WIDTH, dtype=torch.long)
    for row, col in pixels:
        label[0, row, col] = 1
    return label


@pytest.fixture
def sample() -> SegDataSample:
    return SegDataSample(gt_sem_seg=PixelData(data=label_map((0, 0), (4, 6))),
                         pred_sem_seg=PixelData(data=label_map((2, 3))))


def test_three_panels(tmp_path, sample):
    panels = draw(tmp_path, sample)
    truth, prediction = (np.array(PALETTE)[label_map(*pixels)[0]]
                         for pixels in ([(0, 0), (4, 6)], [(2, 3)]))
    for panel, expected in zip(panels, [image(), truth, prediction], strict=True):
        np.testing.assert_array_equal(panel, expected)


@pytest.mark.parametrize('kwargs', [dict(draw_gt=False), dict(draw_pred=False)])
def test_what_is_not_wanted_is_not_drawn(tmp_path, sample, kwargs):
    assert len(draw(tmp_path, sample, **kwargs)) == 2


def test_without_results_the_image_alone(tmp_path):
    panels = draw(tmp_path, None)
    assert len(panels) == 1
    np.testing.assert_array_equal(panels[0], image())
