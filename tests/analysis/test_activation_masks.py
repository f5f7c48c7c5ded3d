"""Masks of activation: their place on the pixels, and the best threshold against trying all."""
import pytest
import torch
from tiny_pictures import picture_model, pictures

from locat_mmseg.analysis.activation_masks import (activation_maps, draw_masks, mask_figure,
                                                   match_classes, on_pixels, stretch)
from locat_mmseg.analysis.feature_hooks import FeatureReader
from locat_mmseg.analysis.feature_layers import feature_layers


def slow_best_iou(maps, labels, void):
    """Every class at every threshold, on pixels."""
    enlarged = on_pixels(maps, tuple(labels.shape[-2:]))
    valid = labels != void
    best = (-1., None, None)
    for label in labels[valid].unique().tolist():
        for threshold in maps.unique().tolist():
            marked, truth = (enlarged >= threshold) & valid, labels == label
            iou = ((marked & truth).sum() / (marked | truth).sum()).item()
            best = max(best, (iou, label, threshold), key=lambda b: b[0])
    return best


@pytest.mark.parametrize('sizes', [((3, 4), (9, 12)), ((3, 4), (10, 13)), ((2, 5), (7, 5))])
@pytest.mark.parametrize('levels', [3, 1000])
def test_best_threshold_is_that_of_trying_all(sizes, levels):
    generator = torch.Generator().manual_seed(0)
    for _ in range(5):
        maps = torch.randint(0, levels, (3, *sizes[0]), generator=generator).float() - 1
        labels = torch.randint(0, 4, (3, *sizes[1]), generator=generator)
        labels[labels == 3] = 9
        match = match_classes(maps, labels, void=9)
        iou, label, threshold = slow_best_iou(maps, labels, 9)
        assert match.iou == pytest.approx(iou)
        enlarged, valid = on_pixels(maps, sizes[1]), labels != 9
        marked = (enlarged >= match.threshold) & valid
        truth = labels == match.label
        assert ((marked & truth).sum() / (marked | truth).sum()).item() == pytest.approx(iou)
        assert match.share == pytest.approx((truth.sum() / valid.sum()).item())
        assert match.inside == pytest.approx(enlarged[truth].mean().item(), abs=1e-5)
        assert match.outside == pytest.approx(enlarged[valid & ~truth].mean().item(), abs=1e-5)


def test_a_feature_that_marks_a_class_exactly():
    labels = torch.zeros(2, 8, 8, dtype=torch.long)
    labels[0, :4, 4:] = 3
    maps = torch.tensor([[[-1., 5.], [-2., -1.]], [[0., 0.], [0., 0.]]])
    match = match_classes(maps, labels)
    assert (match.label, match.iou, match.threshold) == (3, 1.0, 5.0)
    assert match.share == pytest.approx(16 / 128)
    assert (match.inside, match.outside) == (5., pytest.approx(-4 / 7))
    even = match_classes(torch.zeros(2, 2, 2), labels)  # no threshold parts equal activations
    assert (even.label, even.iou) == (0, even.share)
    assert match_classes(maps, torch.full_like(labels, 255)) is None
    assert match_classes(maps, torch.full_like(labels, 255), void=None).label == 255


def test_maps_on_pixels():
    maps = torch.tensor([[[1., 2.], [3., 4.]]])
    assert on_pixels(maps, (4, 2)).tolist() == [[[1, 2], [1, 2], [3, 4], [3, 4]]]
    assert on_pixels(maps, (3, 3)).tolist() == [[[1, 1, 2], [1, 1, 2], [3, 3, 4]]]


def test_stretch():
    maps = torch.tensor([[[-1., 3.], [1., 0.]], [[2., 2.], [2., 2.]]])
    assert stretch(maps).tolist() == [[[0, 1], [0.5, 0.25]], [[0, 0], [0, 0]]]


@pytest.mark.parametrize('family, grid', [('LocAtViT', (5, 3)), ('LocAtSwin', (16, 16))])
def test_activation_maps_are_the_features_in_their_places(family, grid):
    model = picture_model(family)
    layer, x = feature_layers(model)[0], pictures(model)
    maps = activation_maps(model, layer, x)
    tokens = FeatureReader(model, [layer])(x)[0].reshape(2, *grid, -1)
    torch.testing.assert_close(maps, tokens, rtol=1e-4, atol=1e-5)  # attention may be fused or not


@pytest.mark.parametrize('height, width', [(30, 40), (8, 80), (60, 20)])
def test_titles_of_the_rows_stay_apart_and_inside(height, width):
    title = '1234: -10.25\nclass 11\nIoU 0.59 (of all 0.29)'
    figure = mask_figure([(title, torch.rand(2, 3, height, width), torch.rand(2, 2, 3))] * 4)
    figure.draw_without_rendering()
    boxes = [axes.yaxis.label.get_window_extent() for axes in figure.axes if axes.get_ylabel()]
    assert len(boxes) == 4 and all(upper.y0 > lower.y1 for upper, lower in zip(boxes, boxes[1:]))
    assert all(box.x0 >= 0 and box.y0 >= 0 and box.y1 <= figure.bbox.y1 for box in boxes)


def test_drawing(tmp_path):
    rows = [('0: 1.2', torch.rand(2, 3, 8, 12), torch.rand(2, 2, 3)),
            ('1: 0.7', torch.rand(1, 3, 8, 12), torch.rand(1, 2, 3))]
    draw_masks(rows, tmp_path / 'masks.png')
    assert (tmp_path / 'masks.png').stat().st_size > 2000
