"""Filters against a discrete Fourier transform written as sums."""
import cmath
import math

import pytest
import torch

from locat_mmseg.analysis.frequency import ALL, RADII, frequency_disc, high_pass, low_pass


def slow_low_pass(picture, radius):
    """Sum of the waves in the disc of a picture (H, W), frequency by frequency."""
    height, width = picture.shape
    result = torch.zeros(height, width, dtype=torch.float64)
    for u in range(-(height // 2), (height + 1) // 2):
        for v in range(-(width // 2), (width + 1) // 2):
            if math.hypot(u / (height / 2), v / (width / 2)) > radius:
                continue
            amplitude = sum(picture[y, x].item() * cmath.exp(-2j * math.pi * (
                u * y / height + v * x / width)) for y in range(height) for x in range(width))
            for y in range(height):
                for x in range(width):
                    wave = cmath.exp(2j * math.pi * (u * y / height + v * x / width))
                    result[y, x] += (amplitude * wave).real / (height * width)
    return result


@pytest.mark.parametrize('size', [(5, 7), (6, 9), (7, 4)])
@pytest.mark.parametrize('radius', [0., 0.35, 0.8, 1.1])
def test_filters_against_sums(size, radius):
    torch.manual_seed(0)
    pictures = torch.rand(2, 1, *size, dtype=torch.float64)
    for picture, low, high in zip(pictures, low_pass(pictures, radius),
                                  high_pass(pictures, radius)):
        expected = slow_low_pass(picture[0], radius)
        torch.testing.assert_close(low[0], expected.clamp(0, 1))
        torch.testing.assert_close(high[0], (picture[0] - expected + picture.mean()).clamp(0, 1))


@pytest.mark.parametrize('size', [(31, 47), (32, 32), (64, 49)])
def test_a_radius_of_sqrt_2_holds_everything(size):
    torch.manual_seed(0)
    pictures = torch.rand(2, 3, *size)
    assert frequency_disc(*size, ALL).all()
    assert (low_pass(pictures, ALL) - pictures).abs().max() < 1e-6
    assert (high_pass(pictures, 0) - pictures).abs().max() < 1e-6
    mean = pictures.mean((-2, -1), keepdim=True).expand_as(pictures)
    assert (low_pass(pictures, 0) - mean).abs().max() < 1e-6
    assert (high_pass(pictures, ALL) - mean).abs().max() < 1e-6


def test_a_disc_by_hand():
    # 4 rows have the frequencies 0, 1/2, -1, -1/2 of the highest; 6 columns 0, 1/3, 2/3, 1
    assert frequency_disc(4, 6, 0.67).int().tolist() == [[1, 1, 1, 0], [1, 1, 0, 0], [0, 0, 0, 0],
                                                         [1, 1, 0, 0]]
    assert frequency_disc(4, 6, 1).int().tolist() == [[1, 1, 1, 1], [1, 1, 1, 0], [1, 0, 0, 0],
                                                      [1, 1, 1, 0]]


def test_a_larger_radius_keeps_more():
    counts = [frequency_disc(45, 31, radius).sum().item() for radius in RADII]
    assert counts == sorted(set(counts)) and counts[-1] == 45 * 16


@pytest.mark.parametrize('radius', [-0.1, math.nan])
def test_no_such_radius(radius):
    with pytest.raises(ValueError, match=r'expected 0 \(the mean colour alone\) to sqrt\(2\)'):
        low_pass(torch.rand(3, 8, 8), radius)
