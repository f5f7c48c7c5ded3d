"""The yardstick computes what `add_gaug` computes."""
import pytest
import torch
from tiny_timm import parameter_gradients, strengthen, tiny_swin, tiny_vit

from locat_mmseg.addon import add_gaug
from locat_mmseg.analysis.dense_gaussian import DenseGaussianAugment, add_dense_gaug


@pytest.mark.parametrize('build, shape', [
    (lambda: tiny_vit(img_size=(48, 80), reg_tokens=2), (2, 3, 48, 80)),
    (tiny_swin, (2, 3, 56, 56)),
])
def test_same_output_and_gradients_as_the_separable_form(build, shape):
    separable = strengthen(add_gaug(build())).eval().double()
    dense = add_dense_gaug(build()).eval().double()
    dense.load_state_dict(separable.state_dict())
    images = torch.randn(shape, dtype=torch.float64)
    outputs = [model(images) for model in (separable, dense)]
    torch.testing.assert_close(outputs[1], outputs[0], rtol=1e-10, atol=1e-10)
    gradients = [parameter_gradients(model, out.square().sum())
                 for model, out in zip((separable, dense), outputs, strict=True)]
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-8, atol=1e-8)


def test_other_grid_is_refused():
    with pytest.raises(ValueError, match=r'built for the grid \(2, 3\), the input has \(3, 2\)'):
        DenseGaussianAugment(4, (2, 3))(torch.randn(1, 1, 6, 4), (3, 2))
