"""Each augmentation has the statistics that the paper's text or code gives it."""
import math

import pytest
import torch
from torch import Generator

from locat_mmseg.analysis.augmentation_ensemble import (AUGMENTATIONS, augment, center,
                                                        channel_noise, flip, jitter, pixel_noise,
                                                        scale_shift, shift_scale, tile)

MANY = 4000


def random(*shape, seed=1):
    return torch.rand(shape, generator=Generator().manual_seed(seed), dtype=torch.float64)


def uniform_like(values):
    """Whether values look like U(-1, 1): range, mean, variance (each within five deviations)."""
    error = 5 / math.sqrt(values.numel())
    assert -1 <= values.min() < -0.99 and 0.99 < values.max() <= 1
    assert abs(values.mean()) < error / math.sqrt(3)
    assert abs(values.square().mean() - 1 / 3) < error * 0.3


def line_of(before, after):
    """Scale and shift of each copy and channel, from its first two pixels."""
    before, after = before.expand_as(after).flatten(2), after.flatten(2)
    scale = (after[..., 1] - after[..., 0]) / (before[..., 1] - before[..., 0])
    shift = after[..., 0] - scale * before[..., 0]
    torch.testing.assert_close(after, scale[..., None] * before + shift[..., None])
    return scale, shift


def test_colour_of_the_text():
    x = random(1, 3, 2, 3)
    scale, shift = line_of(x, scale_shift(x.expand(MANY, -1, -1, -1), Generator(), 0.))
    uniform_like(scale.log())
    uniform_like(shift)
    for a, b in ((scale, shift), (scale[:, 0], scale[:, 1])):  # drawn independently
        assert abs(torch.corrcoef(torch.stack([a.flatten().log(), b.flatten()]))[0, 1]) < 0.09


def test_colour_of_the_code():
    x = random(1, 3, 2, 3)
    scale, shift = line_of(x, shift_scale(x.expand(MANY, -1, -1, -1), Generator(), 0.))
    uniform_like(scale.log())
    uniform_like(-shift / scale)
    assert scale.mean().item() == pytest.approx(math.sinh(1), rel=0.03)  # E[1 / sigma]


def test_noise_of_the_text_is_of_each_pixel():
    x = random(8, 3, 40, 41)
    noise = pixel_noise(x, Generator().manual_seed(0), 0.7) - x
    assert abs(noise.mean()) < 0.02
    assert noise.std().item() == pytest.approx(1, abs=0.02)
    assert abs((noise[..., 1:] * noise[..., :-1]).mean()) < 0.03


@pytest.mark.parametrize('progress, std', [(0, 0.5 * 398 / 400), (0.5, 0.5 * 198 / 400),
                                           (397 / 400, 0.5 / 400), (398 / 400, 0), (1, 0)])
def test_noise_of_the_code_is_even_and_fades(progress, std):
    x = random(MANY, 3, 2, 3)
    noise = channel_noise(x, Generator().manual_seed(0), progress) - x
    torch.testing.assert_close(noise, noise[..., :1, :1].expand_as(noise))
    assert noise[..., 0, 0].std().item() == pytest.approx(std, rel=0.04)
    assert abs(noise.mean()) <= 5 * std / math.sqrt(3 * MANY)


def test_jitter_rolls_all_copies_alike():
    x = torch.zeros(2, 3, 70, 90)
    x[..., 35, 45] = 1
    generator = Generator().manual_seed(0)
    moves = []
    for _ in range(1500):
        rolled = jitter(x, generator, 0.)
        places = rolled.nonzero()[:, 2:].unique(dim=0)
        assert len(places) == 1 and rolled.sum() == 6
        moves.append((places[0] - torch.tensor([35, 45])).tolist())
    for axis in zip(*moves):
        assert set(axis) == set(range(-32, 33))
    edge = torch.zeros(1, 1, 2, 2)
    edge[..., 0, 0] = 1
    assert jitter(edge, generator, 0.).sum() == 1  # what leaves on one side comes in on the other


def test_flip_mirrors_half_of_the_copies():
    x = random(1, 3, 2, 3).expand(MANY, -1, -1, -1)
    flipped = flip(x, Generator().manual_seed(0), 0.)
    mirrored = (flipped == x.flip(-1)).flatten(1).all(1)
    assert torch.equal(mirrored, ~(flipped == x).flatten(1).all(1))
    assert mirrored.double().mean().item() == pytest.approx(0.5, abs=0.04)


def test_center_crops_around_a_moving_middle_and_keeps_the_size():
    ramp = torch.arange(64.).expand(1, 1, 48, 64)
    generator = Generator().manual_seed(0)
    lefts = []
    for _ in range(300):
        cropped = center(ramp, generator, 0.)
        assert cropped.shape == ramp.shape
        span = cropped[0, 0, 0]
        assert span[-1] - span[0] == pytest.approx(55, abs=1e-3)  # 56 of 64 columns
        lefts.append(span[0].item())
    assert sum(lefts) / len(lefts) == pytest.approx(4, abs=0.5)  # (64 - 56) / 2
    deviation = torch.tensor(lefts).std().item()
    assert 1.3 < deviation < 2.3  # 2 pixels, cut at 0 and 8
    even = torch.full((2, 3, 9, 7), 0.25)
    torch.testing.assert_close(center(even, generator, 0.), even)


def test_tile_repeats():
    x = random(2, 3, 4, 5)
    tiled = tile(x, Generator(), 0.)
    assert tiled.shape == (2, 3, 8, 10)
    for part in (tiled[..., :4, :5], tiled[..., 4:, :5], tiled[..., 4:, 5:]):
        assert torch.equal(part, x)


def test_same_seed_same_copies_and_order_matters():
    x = random(3, 3, 40, 41)
    names = ['jitter', 'scale_shift', 'pixel_noise']
    a, b = (augment(x, names, Generator().manual_seed(3), 0.) for _ in range(2))
    assert torch.equal(a, b)
    assert not torch.equal(a, augment(x, names, Generator().manual_seed(4), 0.))
    doubled = augment(x, ['tile', 'flip'], Generator().manual_seed(3), 0.)
    assert doubled.shape == (3, 3, 80, 82)
    assert augment(x, [], Generator(), 0.) is x


def test_all_let_gradients_through():
    for name in AUGMENTATIONS:
        x = random(2, 3, 6, 7).requires_grad_()
        augment(x, [name], Generator().manual_seed(0), 0.2).sum().backward()
        assert x.grad.abs().sum() > 0, name


def test_unknown_name():
    with pytest.raises(ValueError, match="augmentation 'blur': expected some of .'jitter'"):
        augment(random(1, 3, 4, 4), ['jitter', 'blur'], Generator(), 0.)
