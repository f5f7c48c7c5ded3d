"""Reading features: maps in their places, a forward pass that stops, no hook that stays."""
import pytest
import torch
from tiny_pictures import SHELLS, TIMM, picture_model, pictures
from torch import nn

from locat_mmseg.analysis.feature_hooks import FeatureReader, as_map, pool
from locat_mmseg.analysis.feature_layers import feature_layers

# (height, width) of the maps of the first and the last layer.
GRIDS = dict(vit=[(4, 4)] * 2, locatvit=[(4, 4)] * 2, deit=[(4, 4)] * 2, clip=[(2, 2)] * 2,
             eva=[(4, 4)] * 2, coat=[(16, 16), (2, 2)], convit=[(4, 4)] * 2, pit=[(7, 7), (2, 2)],
             swin=[(14, 14), (7, 7)], locatswin=[(14, 14), (7, 7)], twins_pcpvt=[(16, 16), (2, 2)],
             twins_svt=[(16, 16), (2, 2)], LocAtViT=[(5, 3)] * 2, LocAtSwin=[(16, 16), (4, 4)],
             LocAtTIMM=[(4, 3)] * 2)
each_family = pytest.mark.parametrize('family', [*TIMM, *SHELLS])


@each_family
def test_maps_have_the_grid_of_the_layer(family):
    model = picture_model(family)
    x = pictures(model)
    for kind in ('hidden', 'block'):
        found = FeatureReader(model, feature_layers(model, kind))(x)
        if family == 'coat' and kind == 'block':
            assert len(found) == 4  # without the parallel blocks
        grids = [tuple(as_map(f, model.core, model.size).shape[1:3]) for f in found]
        assert [grids[0], grids[-1]] == GRIDS[family]


def test_maps_keep_places():
    """A bright patch at (row 3, column 1) of 5 x 3 is where it was."""
    model = picture_model('LocAtViT')
    x = torch.full((1, 3, *model.size), 0.5)
    y = x.clone()
    y[..., 24:32, 8:16] = 1
    layer = feature_layers(model, 'block')[:1]
    model.core.blocks[0].attn.proj.weight.data.zero_()  # no mixing
    before, after = (as_map(FeatureReader(model, layer)(p)[0], model.core, model.size)
                     for p in (x, y))
    changed = (before - after).abs().sum(-1)[0] > 1e-3
    assert changed.nonzero().tolist() == [[3, 1]]


def test_a_map_that_is_not_square_of_a_family_that_tells_no_grid():
    core = nn.Module()
    assert as_map(torch.zeros(1, 24, 5), core, (64, 96)).shape == (1, 4, 6, 5)
    assert as_map(torch.zeros(1, 24, 5), core, (96, 64)).shape == (1, 6, 4, 5)
    with pytest.raises(ValueError, match='23 tokens form no grid of the proportions of 64 x 96'):
        as_map(torch.zeros(1, 23, 5), core, (64, 96))


def test_the_forward_pass_stops_at_the_layer():
    model = picture_model('vit')
    model.core.blocks[1].forward = None  # would fail
    found, = FeatureReader(model, feature_layers(model)[:1])(pictures(model))
    assert found.shape == (2, 16, 192)
    model.core.blocks[0].mlp.fc2.forward = None  # nor is anything behind the features computed
    FeatureReader(model, feature_layers(model)[:1])(pictures(model))


def test_no_hook_stays_also_after_an_error():
    model = picture_model('vit')
    layers = feature_layers(model)

    def fail(features):
        raise KeyError('reduce')
    with pytest.raises(KeyError):
        FeatureReader(model, layers, reduce=fail)(pictures(model))
    FeatureReader(model, layers)(pictures(model))
    assert not any(m._forward_pre_hooks or m._forward_hooks for m in model.modules())
    assert model(pictures(model)).shape == (2, 7)


def test_features_have_gradients_with_respect_to_pictures_alone():
    model = picture_model('locatvit')
    x = pictures(model).requires_grad_()
    FeatureReader(model, feature_layers(model)[1:])(x)[0].sum().backward()
    assert (x.grad != 0).float().mean() > 0.9
    assert all(p.grad is None for p in model.parameters())


def test_reduce_is_applied_to_each_layer():
    model = picture_model('pit')
    x = pictures(model)
    layers = feature_layers(model)
    plain = FeatureReader(model, layers)(x)
    assert [p.tolist() for p in FeatureReader(model, layers, reduce=pool)(x)] == \
        [p.mean(1).tolist() for p in plain]


def test_a_size_that_the_model_does_not_take():
    model = picture_model('pit')
    with pytest.raises(ValueError, match=r'on pictures of \(48, 64\) pixels .*built for \(64, 64'):
        FeatureReader(model, feature_layers(model))(torch.rand(1, 3, 48, 64))
