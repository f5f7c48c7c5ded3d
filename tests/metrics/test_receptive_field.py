"""Effective receptive field: of convolutions with known kernels, and of maps typed by hand."""
import pytest
import torch
from torch.nn import functional as F

from locat_mmseg.metrics import central_gradient, receptive_area


def test_gradient_of_a_convolution_is_its_kernel():
    image = torch.rand(2, 3, 7, 9, requires_grad=True)
    kernel = torch.arange(1., 10).view(1, 1, 3, 3).expand(1, 3, 3, 3)
    features = torch.cat([F.conv2d(image, kernel, padding=1)] * 2, dim=1)
    expected = torch.zeros(2, 7, 9)
    expected[:, 2:5, 3:6] = 6 * kernel[0, 0]  # three input and two output channels
    torch.testing.assert_close(central_gradient(features, image), expected)
    central_gradient(features, image)  # the graph is still there


def test_area_typed_by_hand():
    contributions = torch.tensor([[[8., 1.], [1., 0.]], [[1., 1.], [1., 1.]]])
    assert receptive_area(contributions).tolist() == [0.25, 0.5]
    assert receptive_area(contributions, 0.85).tolist() == [0.5, 1.]
    assert receptive_area(contributions, 0.95).tolist() == [0.75, 1.]


@pytest.mark.parametrize('mass', [0, 1, -0.1, 50])
def test_mass_outside_of_the_range_is_refused(mass):
    with pytest.raises(ValueError, match=f'mass={mass}: expected a share between 0 and 1'):
        receptive_area(torch.ones(1, 2, 2), mass)
