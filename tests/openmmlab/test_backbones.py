"""The registered backbones: outputs at any size, any timm model by name, wrong arguments."""
from collections.abc import Callable

import pytest
import torch
from mmengine.registry import MODELS
from tiny_backbones import (SIZES, TINY, TINY_SWIN, dinov2, each_backbone, each_vit, gradients,
                            images, jumbo, swin, vit)
from tiny_timm import randomize
from torch import nn
from torch.nn import functional as F

from locat_mmseg.addon import GAugAttention
from locat_mmseg.openmmlab.backbones import LocAtSwin, LocAtTIMM, LocAtViT, TimmBackbone


@pytest.mark.parametrize('size', SIZES)
@each_vit
def test_vit_shapes(build: Callable[..., LocAtViT], size: tuple[int, int]):
    x, = images(size)
    featmap = build(out_indices=(0, 2)).eval()
    tokens = build(out_type='tokens').eval()
    patch = featmap.model.patch_embed.patch_size[0]
    h, w = -(-size[0] // patch), -(-size[1] // patch)
    assert [tuple(out.shape) for out in featmap(x)] == [(2, 24, h, w)] * 2
    out, = tokens(x)
    assert out.shape == (2, featmap.model.num_prefix_tokens + h * w, 24)
    assert isinstance(featmap(x), tuple)


@pytest.mark.parametrize('size', SIZES)
def test_swin_shapes(size: tuple[int, int]):
    x, = images(size)
    h, w = -(-size[0] // 2), -(-size[1] // 2)
    expected = []
    for channels in (12, 24, 48):
        expected.append((2, channels, h, w))
        h, w = -(-h // 2), -(-w // 2)
    assert [tuple(out.shape) for out in swin().eval()(x)] == expected
    tokens, = swin(out_type='tokens').eval()(x)
    assert tokens.shape == (2, expected[-1][2] * expected[-1][3], 48)


def test_cifar_sizes():
    """Patches of 4 pixels at 32 pixels; Swin with patches of 2 pixels and windows of 4, 4, 4, 2."""
    x, = images((32, 32))
    assert LocAtViT('tiny', img_size=32, patch_size=4).eval()(x)[0].shape == (2, 192, 8, 8)
    backbone = LocAtSwin(dict(embed_dims=12, depths=(2, 2, 2, 2), num_heads=(3, 3, 6, 6)),
                         img_size=32, patch_size=2, window_size=4).eval()
    assert [tuple(out.shape[1:]) for out in backbone(x)] == [(12, 16, 16), (24, 8, 8), (48, 4, 4),
                                                             (96, 2, 2)]
    windows = [stage.blocks[0].attn.gaug.grid for stage in backbone.model.layers]
    assert windows == [(4, 4), (4, 4), (4, 4), (2, 2)]


@each_backbone
def test_images_of_another_number_of_channels(build: Callable[..., TimmBackbone]):
    with pytest.raises(ValueError, match=r'images have 1 channels, LocAt\w+ takes 3: set in_cha'):
        build()(torch.zeros(1, 1, 56, 56))


@each_vit
def test_maps_are_block_outputs_and_tokens_are_normed(build: Callable[..., LocAtViT]):
    featmap = randomize(build(out_indices=-1)).eval()
    tokens = build(out_type='tokens').eval()
    weights = featmap.state_dict()
    tokens.load_state_dict(weights, strict=False)
    norm = getattr(tokens.model, 'norm_patches', tokens.model.norm)  # Jumbo's is of its own
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    x, = images((40, 24) if build is not dinov2 else (28, 56))
    block_output, = featmap(x)
    patches = block_output.flatten(2).transpose(1, 2)
    expected = F.layer_norm(patches, (24, ), norm.weight, norm.bias, norm.eps)
    torch.testing.assert_close(tokens(x)[0][:, featmap.model.num_prefix_tokens:], expected)


def test_tokens_without_final_norm_are_block_outputs():
    x, = images((40, 24))
    kwargs = dict(class_token=False, final_norm=False)
    featmap = randomize(vit(**kwargs)).eval()
    tokens = vit(**kwargs, out_type='tokens').eval()
    tokens.load_state_dict(featmap.state_dict())
    assert torch.equal(*tokens(x), featmap(x)[0].flatten(2).transpose(1, 2))
    assert not any('norm.' in name for name in tokens.state_dict() if 'blocks' not in name)


def test_swin_norm_after_each_map():
    backbone = randomize(swin()).eval()
    bare = swin(out_norm=False).eval()
    bare.load_state_dict({name: weight for name, weight in backbone.state_dict().items()
                          if 'out_norms' not in name})
    x, = images((40, 24))
    for norm, actual, feature in zip(backbone.out_norms, backbone(x), bare(x), strict=True):
        expected = F.layer_norm(feature.permute(0, 2, 3, 1), feature.shape[1:2], norm.weight,
                                norm.bias, norm.eps).permute(0, 3, 1, 2)
        torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize('out_indices, expected', [
    (-1, (2, )), (0, (0, )), ((0, -1), (0, 2)), ([-3, -2], (0, 1)), (range(3), (0, 1, 2))])
def test_out_indices(out_indices, expected: tuple[int, ...]):
    x, = images((32, 32))
    every = randomize(vit(out_indices=(0, 1, 2))).eval()
    some = vit(out_indices=out_indices).eval()
    some.load_state_dict(every.state_dict(), strict=False)
    assert some.out_indices == expected
    for actual, index in zip(some(x), expected, strict=True):
        assert torch.equal(actual, every(x)[index])


@pytest.mark.parametrize('out_indices', [3, -4, (), (2, 1), (1, 1), (-1, 0)])
def test_out_indices_refused(out_indices):
    with pytest.raises(ValueError, match=r'ascending indices from 0 to 2 .* for 3 blocks'):
        vit(out_indices=out_indices)


def test_gaug_grid_overrides_the_grid_of_img_size():
    """A model built for larger images reads GAug's weights as those of the smaller grid."""
    small, large = vit(img_size=32, pos_embed=False), vit(img_size=64, gaug_grid=4, pos_embed=False)
    for name, grid in (('img_size', small), ('gaug_grid', large)):
        assert [block.attn.gaug.grid for block in grid.model.blocks] == [(4, 4)] * 3, name
    large.load_state_dict(randomize(small).state_dict())
    x, = images((64, 48))
    assert torch.equal(*large.eval()(x), *small.eval()(x))
    assert vit(img_size=(32, 64)).model.blocks[0].attn.gaug.grid == (4, 8)


# --- any timm model by name ----------------------------------------------------------------------

BY_NAME = {
    'vit_tiny_patch16_224': dict(img_size=64),
    'deit_tiny_distilled_patch16_224': dict(img_size=64),
    'vit_small_patch14_dinov2.lvd142m': dict(img_size=56),
    'vit_base_patch16_clip_224': dict(img_size=64),
    'vit_base_patch16_siglip_224': dict(img_size=64),
    'eva02_tiny_patch14_224': dict(img_size=56),
    'vit_small_patch16_dinov3': dict(img_size=64),
    'vit_small_patch16_rope_mixed_224': dict(img_size=64),
}


@pytest.mark.parametrize('gaug', [True, False])
@pytest.mark.parametrize('name', BY_NAME)
def test_timm_by_name(name: str, gaug: bool):
    timm_args = dict(BY_NAME[name], embed_dim=24, depth=2, num_heads=3)
    x, = images((50, 70))
    featmap = LocAtTIMM(name, timm_args, gaug=gaug, out_indices=(0, 1)).train()
    assert [tuple(out.shape) for out in featmap(x)] == [(2, 24, 4, 5)] * 2
    assert not [n for n, grad in gradients(featmap, x).items() if grad is None]
    assert any('.gaug.' in n for n in featmap.state_dict()) == gaug
    tokens, = LocAtTIMM(name, timm_args, gaug=gaug, out_type='tokens').eval()(x)
    assert tokens.shape == (2, featmap.model.num_prefix_tokens + 20, 24)
    assert max(featmap.get_layer_depth(n)[0] for n, _ in featmap.named_parameters()) == 2


class SharperGAugAttention(GAugAttention):
    """A user's variant of the twin."""


def test_attn_names_the_twin(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(MODELS._module_dict, 'SharperGAugAttention', SharperGAugAttention)
    timm_args = dict(img_size=32, embed_dim=24, depth=2, num_heads=3)
    backbone = LocAtTIMM('vit_tiny_patch16_224', timm_args, attn='SharperGAugAttention')
    assert type(backbone.model.blocks[1].attn) is SharperGAugAttention
    with pytest.raises(ValueError, match="attn='GAugAttentoin' is in no registry"):
        LocAtTIMM('vit_tiny_patch16_224', timm_args, attn='GAugAttentoin')
    with pytest.raises(ValueError, match='GAugEvaAttention.*expected it or a subclass'):
        LocAtTIMM('vit_tiny_patch16_224', timm_args, attn='GAugEvaAttention')


@pytest.mark.parametrize('name, timm_args, message', [
    ('vit_tiny_patch16', {}, "'vit_tiny_patch16' is no model of timm.*vit_tiny_patch16_224"),
    ('resnet18', {}, 'resnet18 cannot be a LocAtTIMM backbone.*Expected a ViT'),
    ('swinv2_tiny_window8_256', {}, 'it is a SwinTransformerV2, expected a ViT'),
    ('vit_tiny_patch16_224', dict(features_only=True), 'it is a FeatureGetterNet'),
    ('vit_tiny_patch16_224', dict(pretrained=True), 'weights come through init_cfg'),
    ('vit_tiny_patch16_224', dict(embed_dims=24), "unexpected keyword argument 'embed_dims'"),
])
@pytest.mark.parametrize('gaug', [True, False])
def test_timm_by_name_refused(name: str, timm_args: dict, message: str, gaug: bool):
    with torch.device('meta'), pytest.raises(ValueError, match=message):
        LocAtTIMM(name, timm_args, gaug=gaug)


# --- wrong arguments -----------------------------------------------------------------------------

@pytest.mark.parametrize('build, message', [
    (lambda: LocAtViT('huge'), "arch='huge': expected one of .*'base'.*or a dict"),
    (lambda: LocAtSwin('small'), "arch='small': expected one of .*'base', 'tiny'"),
    (lambda: LocAtViT(dict(embed_dims=24)), r"also needs \['num_layers', 'num_heads'\]"),
    (lambda: LocAtViT(dict(TINY, mlp_raito=2)), r"unknown \['mlp_raito'\]"),
    (lambda: LocAtSwin(dict(TINY_SWIN, mlp_ratio=2)), r"unknown \['mlp_ratio'\]"),
    (lambda: LocAtViT('jumbo-tiny', num_registers=4, rope=True),
     "arch='jumbo-tiny' is a Jumbo.*; leave out num_registers, rope$"),
    (lambda: jumbo(class_token=False), 'is a Jumbo.*; leave out class_token$'),
    (lambda: jumbo(final_norm=False), 'is a Jumbo.*; leave out final_norm$'),
    (lambda: LocAtViT(dict(TINY, num_class_tokens=0)), 'num_class_tokens=0: expected at least'),
    (lambda: LocAtViT('tiny', refine=False), "arch='tiny' is no Jumbo.*leave out refine"),
    (lambda: LocAtViT(dict(TINY, jumbo_mlp_ratio=2)), 'is no Jumbo.* and jumbo_mlp_ratio'),
    (lambda: vit(out_type='cls_token'), "out_type='cls_token': expected one of .*featmap"),
    (lambda: vit(gaug_grid=(4, 0)), r'gaug_grid=\(4, 0\): expected a positive integer or a pair'),
])
def test_arguments_refused(build: Callable[[], TimmBackbone], message: str):
    with pytest.raises(ValueError, match=message):
        build()
