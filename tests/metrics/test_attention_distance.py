"""Attention distance: known answers, and a slow formula on odd grids."""
import math

import pytest
import torch

from locat_mmseg.metrics import attention_distance, grid_diagonal, patch_distances


def test_identity_is_zero():
    distance = attention_distance(torch.eye(12)[None, None], (3, 4))
    assert torch.equal(distance, torch.zeros(1, 1, 12))


def test_uniform_on_8_by_8():
    distance = attention_distance(torch.full((1, 1, 64, 64), 1 / 64), (8, 8))
    assert distance.mean().item() / grid_diagonal((8, 8)) == pytest.approx(0.4178, abs=5e-5)


@pytest.mark.parametrize('down, right', [(0, 1), (2, 0), (1, -2), (-3, 4)])
def test_shifted_delta(down, right):
    """Each query looks at the patch so many rows and columns away, if there is one."""
    height, width = 5, 7
    attention = torch.zeros(1, 1, 35, 35)
    inside = []
    for query in range(35):
        row, col = query // width + down, query % width + right
        if 0 <= row < height and 0 <= col < width:
            attention[0, 0, query, row * width + col] = 1
            inside.append(query)
    distance = attention_distance(attention, (height, width))[0, 0, inside]
    torch.testing.assert_close(distance, torch.full((len(inside), ), math.hypot(down, right)))


def test_gaussian_of_known_sigma():
    """In the plane, the mean distance under a Gaussian is sigma * sqrt(pi / 2) (Rayleigh)."""
    sigma, size = 4., 61
    squares = patch_distances((size, size)) ** 2
    centre = size * size // 2
    attention = torch.zeros(1, 1, size * size, size * size, dtype=torch.float64)
    attention[0, 0, centre] = (-squares[centre] / (2 * sigma ** 2)).softmax(-1)
    distance = attention_distance(attention, (size, size))[0, 0, centre].item()
    assert distance == pytest.approx(sigma * math.sqrt(math.pi / 2), rel=1e-3)


def test_2_by_3_typed_by_hand():
    near, two, far = 1., 2., math.sqrt(5)
    diagonal = math.sqrt(2)
    torch.testing.assert_close(patch_distances((2, 3)).float(), torch.tensor([
        [0., near, two, near, diagonal, far],
        [near, 0., near, diagonal, near, diagonal],
        [two, near, 0., far, diagonal, near],
        [near, diagonal, far, 0., near, two],
        [diagonal, near, diagonal, near, 0., near],
        [far, diagonal, near, two, near, 0.]]))
    attention = torch.tensor([
        [0.5, 0.5, 0., 0., 0., 0.],
        [0., 1., 0., 0., 0., 0.],
        [0.25, 0., 0.5, 0., 0., 0.25],
        [0., 0., 1., 0., 0., 0.],
        [0.5, 0., 0.5, 0., 0., 0.],
        [0., 0., 0., 0.5, 0., 0.5]])
    torch.testing.assert_close(attention_distance(attention[None, None], (2, 3))[0, 0],
                               torch.tensor([0.5, 0., 0.75, far, diagonal, 1.]))
    assert grid_diagonal((2, 3)) == pytest.approx(far)


@pytest.mark.parametrize('grid, stride', [((3, 5), (1, 1)), ((4, 2), (16, 16)), ((2, 3), (8, 4))])
def test_equals_a_loop_in_any_unit(grid, stride):
    height, width = grid
    attention = torch.rand(2, 3, height * width, height * width).softmax(-1)
    actual = attention_distance(attention, grid, stride)
    for query in range(height * width):
        expected = sum(
            attention[:, :, query, key] * math.hypot(
                (query // width - key // width) * stride[0],
                (query % width - key % width) * stride[1])
            for key in range(height * width))
        torch.testing.assert_close(actual[:, :, query], expected)
    assert (actual <= grid_diagonal(grid, stride)).all()


def test_another_grid_is_refused():
    with pytest.raises(ValueError, match=r'among 6 patches for the grid \(2, 4\) of 8'):
        attention_distance(torch.eye(6)[None, None], (2, 4))


def test_one_patch_is_refused():
    with pytest.raises(ValueError, match=r'grid \(1, 1\) of one patch has no distances'):
        grid_diagonal((1, 1))
