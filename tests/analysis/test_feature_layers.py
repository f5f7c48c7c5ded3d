"""Features are found in every family and are what the family computes."""
import re

import pytest
import torch
from timm.models.cait import Cait
from timm.models.xcit import Xcit
from tiny_pictures import MEAN, SHELLS, STD, TIMM, picture_model, pictures, tiny_resnet
from tiny_timm import tiny_vit
from torch import nn
from torch.nn import functional as F

from locat_mmseg.analysis.feature_hooks import FeatureReader, pool
from locat_mmseg.analysis.feature_layers import feature_layers, pick_layers
from locat_mmseg.analysis.picture_model import PictureModel

NUM_LAYERS = dict(vit=2, locatvit=2, deit=2, clip=2, eva=2, coat=10, convit=3, pit=3, swin=4,
                  locatswin=4, twins_pcpvt=4, twins_svt=5, LocAtViT=3, LocAtSwin=4, LocAtTIMM=3)
PREFIX = dict(vit=1, locatvit=1, deit=2, clip=1, eva=1, coat=1, pit=2, LocAtViT=1, LocAtTIMM=5)
each_family = pytest.mark.parametrize('family', [*TIMM, *SHELLS])


def outputs_of(model, x, wanted):
    """What the modules whose names match gave, call by call."""
    found = []
    handles = [module.register_forward_hook(lambda m, args, out: found.append(out))
               for name, module in model.core.named_modules() if re.fullmatch(wanted, name)]
    model(x)
    for handle in handles:
        handle.remove()
    return found


@each_family
def test_hidden_features_are_what_the_activation_function_gave(family):
    model = picture_model(family)
    x = pictures(model)
    layers = feature_layers(model)
    found = FeatureReader(model, layers)(x)
    assert len(found) == NUM_LAYERS[family]
    # EVA multiplies with a gate; what comes out of it passes its dropout, off here.
    expected = outputs_of(model, x, r'.*mlp\.drop1' if family == 'eva' else r'.*mlp\d?\.act')
    assert len(expected) == len(found)
    for number, (a, b) in enumerate(zip(found, expected)):
        prefix = PREFIX.get(family, int(family == 'convit' and number == 2))
        torch.testing.assert_close(a, b[:, prefix:])


@pytest.mark.parametrize('family', ['vit', 'deit', 'pit', 'twins_pcpvt'])
def test_queries_keys_values_are_those_that_attention_gets(family, monkeypatch):
    model = picture_model(family)
    x = pictures(model)
    calls = []
    original = F.scaled_dot_product_attention

    def noted(q, k, v, **kwargs):
        calls.append((q, k, v))
        return original(q, k, v, **kwargs)
    monkeypatch.setattr(F, 'scaled_dot_product_attention', noted)
    model(x)
    attended = list(calls)
    for part, kind in enumerate(('queries', 'keys', 'values')):
        found = FeatureReader(model, feature_layers(model, kind))(x)
        assert len(found) == len(attended)
        for a, call in zip(found, attended):
            b = call[part].transpose(1, 2).flatten(2)[:, PREFIX.get(family, 0):]
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize('family, name, order', [
    ('coat', r'.*factoratt_crpe\d?\.qkv', 'qkv'), ('convit', r'blocks\.2\.attn\.qkv', 'qkv'),
    ('convit', r'blocks\.[01]\.attn\.qk', 'qk'), ('convit', r'blocks\.[01]\.attn\.v', 'v'),
    ('LocAtViT', r'.*attn\.qkv', 'qkv'), ('locatswin', r'.*attn\.qkv', 'qkv'),
    ('swin', r'.*attn\.qkv', 'qkv'), ('twins_svt', r'blocks\.1\.1\.attn\.q', 'q')])
def test_queries_keys_values_are_outputs_of_the_projections(family, name, order):
    model = picture_model(family)
    x = pictures(model)
    expected = outputs_of(model, x, name)
    for part, kind in (('q', 'queries'), ('k', 'keys'), ('v', 'values')):
        if part not in order:
            continue
        layers = [layer for layer in feature_layers(model, kind) if re.fullmatch(
            name.rpartition('\\.')[0], layer.name)]
        found = FeatureReader(model, layers)(x)
        assert len(found) == len(expected)
        for layer, a, b in zip(layers, found, expected):
            b = b.chunk(len(order), -1)[order.index(part)]
            b = b.reshape(len(x), -1, b.shape[-1])[:, layer.num_prefix_tokens:]
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


def test_eva_has_biases_beside_its_projection():
    model = picture_model('eva')
    x = pictures(model)
    attn = model.core.blocks[0].attn
    inputs = []
    handle = attn.register_forward_pre_hook(lambda m, args: inputs.append(args[0]))
    model(x)
    handle.remove()
    weights = dict(zip(('queries', 'keys', 'values'), attn.qkv.weight.split(48)))
    biases = dict(queries=attn.q_bias, keys=attn.k_bias, values=attn.v_bias)
    for kind, weight in weights.items():
        expected = inputs[0] @ weight.T + biases[kind]
        found = FeatureReader(model, feature_layers(model, kind)[:1])(x)[0]
        torch.testing.assert_close(found, expected[:, 1:], rtol=1e-4, atol=1e-4)


@each_family
def test_attention_output_and_heads(family):
    model = picture_model(family)
    x = pictures(model)
    found = FeatureReader(model, feature_layers(model, 'attention'))(x)
    heads = FeatureReader(model, feature_layers(model, 'head'))(x)
    projected = outputs_of(model, x, r'.*(attn|factoratt_crpe\d?)\.proj')
    assert len(found) == len(heads) == len(projected) == NUM_LAYERS[family]
    for layer, a, h, b in zip(feature_layers(model, 'attention'), found, heads, projected):
        b = b.reshape(len(x), -1, b.shape[-1])[:, layer.num_prefix_tokens:]
        torch.testing.assert_close(layer.module(a), b, rtol=1e-4, atol=1e-4)
        d = a.shape[-1] // h.shape[-1]
        torch.testing.assert_close(h[..., 1 % h.shape[-1]],
                                   a[..., 1 % h.shape[-1] * d:][..., :d].mean(-1))


def test_block_features_are_what_timm_gives():
    model = picture_model('vit')
    x = pictures(model)
    normed = (x - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(STD).view(3, 1, 1)
    expected = model.core.forward_intermediates(normed, output_fmt='NLC', intermediates_only=True)
    found = FeatureReader(model, feature_layers(model, 'block'))(x)
    torch.testing.assert_close(found, expected)


def test_channels_of_a_cnn():
    model = tiny_resnet()
    x = pictures(model)
    layers = feature_layers(model, 'channel')
    assert [layer.name for layer in layers] == ['act1', 'layer1', 'layer2', 'layer3', 'layer4']
    found = FeatureReader(model, layers)(x)
    expected = outputs_of(model, x, r'layer3')[0]
    torch.testing.assert_close(found[3], expected.permute(0, 2, 3, 1))
    torch.testing.assert_close(pool(found[3]), expected.mean((2, 3)))


def test_logits_of_classes_and_of_pixels():
    model = picture_model('vit')
    x = pictures(model)
    found, = FeatureReader(model, feature_layers(model, 'logit'))(x)
    torch.testing.assert_close(found[:, 0], model(x))
    segmentor = PictureModel(nn.Conv2d(3, 5, 3), MEAN, STD)
    found, = FeatureReader(segmentor, feature_layers(segmentor, 'logit'))(x)
    torch.testing.assert_close(pool(found), segmentor(x).mean((2, 3)))


def test_an_attention_pool_is_no_layer():
    model = PictureModel(tiny_vit(global_pool='map', class_token=False), MEAN, STD)
    assert len(feature_layers(model)) == len(feature_layers(model, 'keys')) == 2


def test_mistakes():
    model = picture_model('vit')
    with pytest.raises(ValueError, match="kind='query': expected one of .'hidden', 'queries'"):
        feature_layers(model, 'query')
    with pytest.raises(ValueError, match="ResNet has no layer of kind 'hidden'.*kind='channel'"):
        feature_layers(tiny_resnet())
    with pytest.raises(ValueError, match="VisionTransformer has no layer of kind 'channel'"):
        feature_layers(model, 'channel')
    headless = PictureModel(tiny_vit(num_classes=0), MEAN, STD)
    with pytest.raises(ValueError, match="no layer of kind 'logit'"):
        feature_layers(headless, 'logit')


def test_pick_layers():
    layers = feature_layers(picture_model('pit'))
    assert pick_layers(layers, ['all']) == [0, 1, 2]
    assert pick_layers(layers, ['2', '-3']) == [2, 0]
    for wrong in ('3', '-4', 'x', '1.5'):
        with pytest.raises(ValueError, match=f'layer {wrong}: expected numbers from 0 to 2, or'):
            pick_layers(layers, [wrong])


@pytest.mark.parametrize('core', [
    Cait(img_size=32, embed_dim=16, depth=1, num_heads=2),
    Xcit(img_size=32, embed_dim=16, depth=1, num_heads=2)])
def test_families_whose_class_token_joins_late_are_refused(core):
    model = PictureModel(core, (0.5, ) * 3, (0.5, ) * 3)
    with pytest.raises(ValueError, match='adds its class token in .*: take a ViT, DeiT'):
        feature_layers(model)
    assert len(feature_layers(model, 'logit')) == 1
