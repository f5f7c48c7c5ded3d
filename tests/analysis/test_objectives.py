"""Objectives and regularisers against loops."""
import math

import pytest
import torch

from locat_mmseg.analysis.objectives import (OBJECTIVES, REGULARIZERS, distance_from_grey,
                                             token_max, token_mean, token_norm, total_variation)


def loop_total_variation(x):
    """The four norms, neighbour by neighbour."""
    copies, channels, height, width = x.shape
    total = 0.
    for dy, dx in ((0, 1), (1, 0), (1, 1), (1, -1)):
        norms = []
        for k in range(copies):
            for c in range(channels):
                squares = 0.
                for i in range(height):
                    for j in range(width):
                        if i + dy < height and 0 <= j + dx < width:
                            squares += (x[k, c, i + dy, j + dx] - x[k, c, i, j]).item() ** 2
                norms.append(math.sqrt(squares))
        total += sum(norms) / len(norms)
    return total


@pytest.mark.parametrize('shape', [(2, 3, 5, 7), (1, 3, 4, 4), (3, 1, 6, 2)])
def test_total_variation_is_a_loop_over_neighbours(shape):
    x = torch.rand(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert total_variation(x).item() == pytest.approx(loop_total_variation(x), rel=1e-12)


def test_total_variation_by_hand():
    # One bright pixel in the middle of 3 x 3: each direction sees it twice, sqrt(2) a norm.
    x = torch.zeros(1, 1, 3, 3)
    x[0, 0, 1, 1] = 1
    assert total_variation(x).item() == pytest.approx(4 * math.sqrt(2))
    assert total_variation(2 * x).item() == pytest.approx(8 * math.sqrt(2))  # not squared


def test_regularizers_have_gradients_also_for_an_even_picture():
    x = torch.full((2, 3, 5, 7), 0.5, requires_grad=True)
    sum(function(x) for function in REGULARIZERS.values()).backward()
    assert x.grad.tolist() == torch.zeros_like(x).tolist()
    y = torch.rand(2, 3, 5, 7, dtype=torch.float64, requires_grad=True)
    for function in REGULARIZERS.values():
        assert torch.autograd.gradcheck(function, y)


def test_distance_from_grey():
    assert distance_from_grey(torch.tensor([[[[0.5, 1.0]]]])).item() == pytest.approx(0.125)


def test_objectives_by_hand():
    # Two copies of 2 x 2 positions; feature 1 is the wanted one.
    wanted = torch.tensor([[[3., 0.], [4., 0.]], [[0., 0.], [0., -1.]]])
    features = torch.stack([torch.full_like(wanted, 100), wanted], -1)
    for shape in (features, features.flatten(1, 2)):  # maps and tokens
        assert token_mean(shape, 1).item() == pytest.approx(6 / 8)
        assert token_norm(shape, 1).item() == pytest.approx((5 + 1) / 2)
        assert token_max(shape, 1).item() == pytest.approx((4 + 0) / 2)
    assert set(OBJECTIVES) == {'token_mean', 'token_norm', 'token_max'}
