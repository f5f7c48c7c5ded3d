"""The registered backbones are timm's: the same parameters, and without GAug the same bits."""
import re
from collections.abc import Callable
from functools import partial

import pytest
import timm
import torch
from timm.models.eva import Eva
from timm.models.swin_transformer import SwinTransformer
from timm.models.vision_transformer import VisionTransformer
from tiny_backbones import SIZES, dinov2, each_backbone, images, swin, vit
from tiny_timm import randomize
from torch import nn
from torch.nn import functional as F

from locat_mmseg.openmmlab.backbones import LocAtSwin, LocAtTIMM, LocAtViT, TimmBackbone


def shapes(module: nn.Module) -> dict[str, torch.Size]:
    """Of every parameter, by name."""
    return {name: parameter.shape for name, parameter in module.named_parameters()}


NAMED = {
    'tiny': ({}, 'vit_tiny_patch16_224', {}),
    'small': ({}, 'vit_small_patch16_224', {}),
    'base': ({}, 'vit_base_patch16_224', {}),
    'compact': ({}, 'vit_tiny_patch16_224', dict(depth=8, num_heads=8, mlp_ratio=2)),
    'registers': (dict(arch='small', num_registers=4), 'vit_small_patch16_224',
                  dict(reg_tokens=4)),
    'rope': (dict(arch='small', rope=True), 'vit_small_patch16_rope_mixed_224', {}),
    'rope-base': (dict(arch='base', rope=True), 'vit_base_patch16_rope_mixed_224', {}),
    'cifar': (dict(arch='tiny', img_size=32, patch_size=4), 'vit_tiny_patch16_224',
              dict(img_size=32, patch_size=4)),
    'average': (dict(arch='tiny', class_token=False, final_norm=False), 'vit_tiny_patch16_224',
                dict(class_token=False, global_pool='avg', fc_norm=False, final_norm=False)),
}


@pytest.mark.parametrize('name', NAMED)
def test_named_vits_are_timms_and_gaug(name: str):
    kwargs, timm_name, timm_kwargs = NAMED[name]
    with torch.device('meta'):
        backbone = LocAtViT(**{'arch': name, **kwargs}, out_type='tokens')
        plain = timm.create_model(timm_name, num_classes=0, **timm_kwargs)
    head_dim = plain.embed_dim // plain.blocks[0].attn.num_heads
    expected = shapes(plain)
    for i in range(len(plain.blocks)):
        for linear, size in (('log_var', 2), ('log_alpha', 1)):
            expected[f'blocks.{i}.attn.gaug.{linear}.weight'] = (size, head_dim)
            expected[f'blocks.{i}.attn.gaug.{linear}.bias'] = (size, )
    assert shapes(backbone) == {f'model.{name}': shape for name, shape in expected.items()}


@pytest.mark.parametrize('arch', ['tiny', 'base'])
def test_named_swins_are_timms_and_gaug(arch: str):
    with torch.device('meta'):
        backbone = LocAtSwin(arch, out_type='tokens')
        plain = timm.create_model(f'swin_{arch}_patch4_window7_224', num_classes=0)
    twin_names = {name.removeprefix('model.'): shape for name, shape in shapes(backbone).items()}
    gaug = {name: shape for name, shape in twin_names.items() if '.gaug.' in name}
    assert {name: s for name, s in twin_names.items() if name not in gaug} == shapes(plain)
    depth = {'tiny': 12, 'base': 24}[arch]
    assert sum(shape.numel() for shape in gaug.values()) == depth * 3 * (32 + 1)


def test_gaug_adds_2340_parameters_to_the_base_model():
    with torch.device('meta'):
        counts = [sum(p.numel() for p in LocAtViT('base', gaug=gaug).parameters())
                  for gaug in (True, False)]
    assert counts[0] - counts[1] == 2340


def test_rope_vit_starts_with_small_layer_scale_and_without_position_embedding():
    model = vit(rope=True).model
    assert model.pos_embed is None
    assert all((gamma == 1e-5).all() for block in model.blocks
               for gamma in (block.gamma_1, block.gamma_2))
    # Temperature 10, a head width of 8: wave vectors of length 1 and 10^(-4/8), turned at random.
    lengths = model.rope.freqs.square().sum(dim=0).sqrt()
    torch.testing.assert_close(lengths, torch.tensor([1, 10 ** -0.5] * 2).expand_as(lengths))


def test_without_position_embedding_the_class_token_stays():
    backbone = vit(pos_embed=False, out_type='tokens').eval()
    assert backbone.model.pos_embed is None
    assert shapes(backbone)['model.cls_token'] == (1, 1, 24)
    assert backbone(*images((32, 32)))[0].shape == (2, 17, 24)


# --- plain twin: timm to the bit -----------------------------------------------------------------

def plain_vit(**kwargs) -> VisionTransformer:
    return VisionTransformer(img_size=32, patch_size=8, embed_dim=24, depth=3, num_heads=3,
                             mlp_ratio=2, num_classes=0, dynamic_img_size=True, **kwargs)


PLAIN = {
    'vit': (vit, plain_vit, 8),
    'registers': (partial(vit, num_registers=4), partial(plain_vit, reg_tokens=4), 8),
    'no class token': (partial(vit, class_token=False, final_norm=False),
                       partial(plain_vit, class_token=False, final_norm=False, fc_norm=False,
                               global_pool='avg'), 8),
    'no position embedding': (partial(vit, pos_embed=False),
                              partial(plain_vit, pos_embed='none'), 8),
    'rope': (partial(vit, rope=True),
             lambda: Eva(img_size=32, patch_size=8, embed_dim=24, depth=3, num_heads=3,
                         global_pool='token',
                         mlp_ratio=2, num_classes=0, dynamic_img_size=True, attn_type='rope',
                         use_rot_pos_emb=True, rope_type='mixed', rope_temperature=10.,
                         rope_grid_indexing='xy', init_values=1e-5, use_abs_pos_emb=False), 8),
    'swin': (partial(swin, out_norm=False),
             lambda: SwinTransformer(img_size=32, patch_size=2, window_size=4, embed_dim=12,
                                     depths=(1, 2, 1), num_heads=(3, 3, 6), num_classes=0,
                                     strict_img_size=False), 2),
    'dinov2 by name': (dinov2, lambda: timm.create_model(
        'vit_small_patch14_reg4_dinov2', img_size=56, embed_dim=24, depth=3, num_heads=3,
        dynamic_img_size=True), 14),
    'swin by name': (
        lambda **kwargs: LocAtTIMM('swin_tiny_patch4_window7_224', dict(
            img_size=56, embed_dim=12, depths=(2, 1), num_heads=(3, 3)), **kwargs),
        lambda: timm.create_model('swin_tiny_patch4_window7_224', img_size=56, embed_dim=12,
                                  depths=(2, 1), num_heads=(3, 3), strict_img_size=False), 4),
}


@pytest.mark.parametrize('size', SIZES)
@pytest.mark.parametrize('name', PLAIN)
def test_without_gaug_equals_plain_timm_to_the_bit(name: str, size: tuple[int, int]):
    build, build_plain, patch = PLAIN[name]
    plain = randomize(build_plain()).eval()
    depth = len(plain.feature_info)
    x, = images(size)
    padded = F.pad(x, (0, -size[1] % patch, 0, -size[0] % patch))
    featmap = build(gaug=False, out_indices=tuple(range(depth))).eval()
    tokens = build(gaug=False, out_type='tokens').eval()
    for backbone in (featmap, tokens):  # timm's names; the final norm is pruned from the maps
        left = backbone.load_state_dict(plain.state_dict(), strict=False)
        assert not left.missing_keys
        assert {re.sub(r'model\.(norm|fc_norm|head).*', r'\1', key)
                for key in left.unexpected_keys} <= {'norm', 'head'}
    with torch.no_grad():
        expected = plain.forward_intermediates(padded, intermediates_only=True,
                                               output_fmt='NCHW')
        for actual, intermediate in zip(featmap(x), expected, strict=True):
            assert torch.equal(actual, intermediate)
        expected = plain.forward_features(padded)
        assert torch.equal(*tokens(x), expected.reshape(2, -1, expected.shape[-1]))


@each_backbone
def test_same_seed_gives_the_same_plain_start(build: Callable[..., TimmBackbone]):
    """GAug comes after timm's initialisation, so the twins start from equal plain weights."""
    torch.manual_seed(0)
    plain = build(gaug=False).state_dict()
    torch.manual_seed(0)
    with_gaug = build().state_dict()
    assert len(with_gaug) > len(plain)
    assert all(torch.equal(with_gaug[name], weight) for name, weight in plain.items()
               if 'out_norms' not in name)
