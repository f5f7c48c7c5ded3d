"""Measures of spatial information against loops, and their means over pictures and layers."""
import pytest
import torch
from tiny_pictures import picture_model, tiny_resnet
from torch.nn import functional as F

from locat_mmseg.analysis.feature_hooks import FeatureReader
from locat_mmseg.analysis.feature_layers import feature_layers
from locat_mmseg.analysis.spatial_information import (draw_curves, mean_cosine, relative_std,
                                                      spatial_information, spread)


def noise(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_mean_cosine_is_that_of_all_pairs():
    x = noise(3, 7, 5)
    for tokens, found in zip(x, mean_cosine(x)):
        pairs = [F.cosine_similarity(tokens[i], tokens[j], dim=0)
                 for i in range(7) for j in range(7) if i != j]
        assert found.item() == pytest.approx(torch.stack(pairs).mean().item())
    assert mean_cosine(x[:, :1]).tolist() == [1, 1, 1]
    torch.testing.assert_close(mean_cosine(x[:, :1].expand(-1, 4, -1)), torch.ones(3).double())


def test_relative_std_by_hand():
    x = torch.tensor([[[1., -2., 0.], [3., -2., 0.]]])  # (1, two patches, three features)
    torch.testing.assert_close(relative_std(x), torch.tensor([[0.5, 0., 0.]]))
    cancelling = torch.tensor([[[1.], [-1.]]])
    assert relative_std(cancelling).item() == pytest.approx(1e6)


def test_spread_takes_tokens_and_maps():
    x = noise(2, 3, 4, 5)
    for a, b in zip(spread(x).values(), spread(x.flatten(1, 2)).values()):
        assert torch.equal(a, b)
    ratios = relative_std(x.flatten(1, 2).float())
    assert spread(x)['relative_std'].tolist() == ratios.median(1).values.tolist()
    assert spread(x)['relative_std_mean'].tolist() == ratios.mean(1).tolist()


@pytest.mark.parametrize('family', ['vit', 'locatvit', 'LocAtSwin'])
def test_means_over_pictures_by_layer(family):
    model = picture_model(family)
    x = torch.rand(5, 3, *model.size, generator=torch.Generator().manual_seed(0))
    done = []
    curves = spatial_information(model, x.split(2), report=done.append)
    assert done == [2, 4, 5]
    for kind in ('hidden', 'block'):
        layers = feature_layers(model, kind)
        features = FeatureReader(model, layers)(x)
        assert [point['name'] for point in curves[kind]] == [layer.name for layer in layers]
        for point, values in zip(curves[kind], features):
            for name, expected in spread(values).items():
                assert point[name] == pytest.approx(expected.mean().item(), rel=1e-3)


def test_mixing_tokens_is_seen():
    """A last block that gives all patches the same leaves no spatial information."""
    model = picture_model('vit')
    block = model.core.blocks[1]
    block.forward = lambda x, **kwargs: x.mean(1, keepdim=True).expand_as(x).contiguous()
    curve = spatial_information(model, [torch.rand(2, 3, *model.size)], ['block'])['block']
    assert curve[1]['cosine'] == pytest.approx(1, abs=1e-5) and curve[0]['cosine'] < 0.999
    assert curve[1]['relative_std'] == pytest.approx(0, abs=1e-5)
    assert curve[0]['relative_std'] > 0.01


def test_channels_of_a_cnn_and_drawing(tmp_path):
    model = tiny_resnet()
    curves = spatial_information(model, [torch.rand(2, 3, 64, 64)], ['channel'])
    assert len(curves['channel']) == 5
    draw_curves({'ResNet': curves, 'again': curves}, tmp_path / 'curves.png')
    assert (tmp_path / 'curves.png').stat().st_size > 2000


def test_no_pictures():
    with pytest.raises(ValueError, match='no pictures: expected at least one batch'):
        spatial_information(picture_model('vit'), [])
