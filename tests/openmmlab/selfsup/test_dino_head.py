"""The projection head of DINO."""
import pytest
import torch
from mmengine.registry import MODELS
from tiny_timm import randomize
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

from locat_mmseg.openmmlab.selfsup.dino_head import DINOProjection


def head() -> DINOProjection:
    return randomize(MODELS.build(dict(
        type='DINOProjection', in_channels=6, out_channels=9, hidden_channels=7,
        bottleneck_channels=5)))


def test_last_layer_is_weight_normalised_with_lengths_of_one():
    projection = head()
    x = torch.randn(4, 6)
    bottleneck = projection.mlp(x)
    bottleneck = bottleneck / bottleneck.pow(2).sum(-1, keepdim=True).sqrt()
    last = weight_norm(nn.Linear(5, 9, bias=False))
    last.parametrizations.weight.original0.data.fill_(1)
    last.parametrizations.weight.original1.data.copy_(projection.last_layer.weight)
    torch.testing.assert_close(projection((torch.zeros(1), x)), last(bottleneck))
    assert projection((x, )).abs().max() <= 1


def test_only_the_direction_of_a_weight_counts():
    projection = head()
    x = torch.randn(4, 6)
    before = projection((x, ))
    projection.last_layer.weight.data[3] *= 7
    torch.testing.assert_close(projection((x, )), before)


def test_layers():
    layers = [(type(layer).__name__, *(p.shape for p in layer.parameters()))
              for layer in head().mlp]
    assert layers == [('Linear', (7, 6), (7, )), ('GELU', ), ('Linear', (7, 7), (7, )),
                      ('GELU', ), ('Linear', (5, 7), (5, ))]
    assert head().last_layer.bias is None and head().out_channels == 9


def test_initial_weights():
    projection = DINOProjection(64, 128)
    projection.init_weights()
    for layer in (projection.mlp[0], projection.mlp[2], projection.last_layer):
        assert layer.weight.std().item() == pytest.approx(0.02, rel=0.05)
    assert not projection.mlp[0].bias.any()


@pytest.mark.parametrize('shape', [(4, 5), (4, 6, 2, 2)])
def test_refuses_other_features(shape):
    with pytest.raises(ValueError, match=r'features of shape \(4, .*expected \(B, 6\): set head.in'
                                         '_channels'):
        head()((torch.zeros(shape), ))
