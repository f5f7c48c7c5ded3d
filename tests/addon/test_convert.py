"""`add_gaug` on timm's models: against reference runs, against the plain model, and refused."""
import copy
import pickle

import pytest
import timm
import torch
from golden import load_golden, relative_error
from tiny_timm import (gaussians, parameter_gradients, strengthen, switch_off, tiny, tiny_swin,
                       tiny_vit)
from torch import nn

from locat_mmseg.addon import (GAugAttention, GAugAttentionRope, GAugEvaAttention,
                               GAugWindowAttention, add_gaug)
from locat_mmseg.layers import PatchRefinement, refine

# Name in timm, prefix tokens, arguments beside the tiny ones.
SEQUENCE_MODELS = [
    ('vit_tiny_patch16_224', 1, {}),
    ('vit_tiny_patch16_224', 1, {'global_pool': 'prr'}),
    ('vit_base_patch16_gap_224', 0, {}),
    ('vit_base_patch16_reg4_gap_256', 4, {}),
    ('vit_base_patch16_rpn_224', 0, {}),
    ('vit_small_patch16_18x2_224', 1, {}),  # parallel attention in each block
    ('vit_tiny_r_s16_p8_224', 1, {}),  # convolutional stem
    ('vit_small_patch14_dinov2', 1, {'img_size': 56}),
    ('vit_small_patch14_reg4_dinov2', 5, {'img_size': 56}),
    ('vit_base_patch16_clip_quickgelu_224', 1, {}),
    ('vit_base_patch16_siglip_224', 0, {}),  # attention pooling
    ('aimv2_large_patch14_224', 0, {'img_size': 56}),
    ('beit3_base_patch16_224', 1, {}),  # norm inside the attention
    ('deit_tiny_distilled_patch16_224', 2, {}),
    ('deit3_small_patch16_224', 1, {}),
    ('eva_large_patch14_196', 1, {'img_size': 56}),
    ('eva_giant_patch14_224', 1, {'img_size': 56}),
    ('eva02_tiny_patch14_224', 1, {'img_size': 56}),
    ('eva02_base_patch16_clip_224', 1, {}),
    ('vit_small_patch16_dinov3', 5, {}),
    ('vit_small_patch16_dinov3_qkvb', 5, {}),
    ('vit_small_patch16_rope_224', 1, {}),
    ('vit_small_patch16_rope_mixed_ape_224', 1, {}),
    ('vit_medium_patch16_rope_reg1_gap_256', 1, {}),
    ('vit_pe_core_tiny_patch16_384', 1, {}),
]

REFUSED = {
    'naflexvit_base_patch16_gap': 'naflexvit.NaFlexVit does not tell the grid of its tokens',
    'vit_base_patch16_xp_224': 'timm.models.vision_transformer.ParallelScalingBlock',
    'vit_dwee_patch16_reg1_gap_256': 'timm.layers.diff_attention.DiffAttention',
    'beit_base_patch16_224': 'timm.models.beit.Attention',
    'samvit_base_patch16': 'timm.models.vision_transformer_sam.Attention',
    'test_vit_relpos': 'timm.models.vision_transformer_relpos.RelPosAttention',
    'swinv2_tiny_window8_256': 'timm.models.swin_transformer_v2.WindowAttention',
    'cait_xxs24_224': 'timm.models.cait.ClassAttn',
    'hiera_tiny_224': 'timm.models.hiera.MaskUnitAttention',
    'mvitv2_tiny': 'timm.models.mvitv2.MultiScaleAttention',
    'pit_ti_224': 'timm.models.pit.PoolingVisionTransformer does not tell the grid of its tokens',
    'resnet18': 'timm.models.resnet.ResNet. Attention found: none',
}


def randomised(model: nn.Module) -> nn.Module:
    """Let every parameter matter: layer scales start near 0 and would hide the attention."""
    torch.manual_seed(0)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.5)
    return model


def check_conversion(plain: nn.Module) -> nn.Module:
    """Check gradients of the converted model, and that it equals ``plain`` when switched off."""
    model = strengthen(add_gaug(copy.deepcopy(plain)))
    image = torch.randn(2, 3, *model.patch_embed.img_size)
    out = model(image)
    assert out.isfinite().all()
    # With class-token pooling the last block's patches have no further use without PRR.
    unused = set()
    if model.global_pool == 'token':
        unused = {name for name, _ in model.blocks[-1].named_parameters(prefix='blocks.1')
                  if '.gaug.' in name}
        assert len(unused) == 4 * len(gaussians(model.blocks[-1]))
    for key, gradient in parameter_gradients(model, (out * torch.randn_like(out)).sum()).items():
        assert gradient is not None and gradient.isfinite().all(), key
        assert bool(gradient.any()) == (key not in unused), key
    model.eval(), plain.eval()
    with torch.no_grad():
        expected = plain(image)
        assert relative_error(model(image), expected) > 1e-3
        assert relative_error(switch_off(model)(image), expected) < 1e-5
    return model


@pytest.mark.parametrize('name, num_prefix_tokens, kwargs', SEQUENCE_MODELS,
                         ids=[case[0] for case in SEQUENCE_MODELS])
def test_sequence_models(name, num_prefix_tokens, kwargs):
    model = check_conversion(randomised(tiny(name, **kwargs)))
    layers = [module for module in model.modules() if isinstance(
        module, (GAugAttention, GAugAttentionRope, GAugEvaAttention))]
    assert len(layers) == (4 if '18x2' in name else 2)
    for layer in layers:
        assert layer.num_prefix_tokens == num_prefix_tokens
        assert layer.gaug.grid == model.patch_embed.grid_size
        assert layer.token_grid is layers[0].token_grid


@pytest.mark.parametrize('kwargs, windows', [
    ({}, [(7, 7)] * 4),
    ({'img_size': 32}, [(7, 7)] * 2 + [(4, 4)] * 2),  # the second stage has 4 x 4 tokens
    ({'window_size': (7, 2)}, [(7, 2)] * 4),
    ({'window_size': ((7, 7), (3, 5))}, [(7, 7)] * 2 + [(3, 5)] * 2),
])
def test_swin(kwargs, windows):
    model = check_conversion(randomised(tiny_swin(**kwargs)))
    assert [module.grid for module in gaussians(model)] == windows
    assert sum(isinstance(module, GAugWindowAttention) for module in model.modules()) == 4


@pytest.mark.parametrize('name', ['vit', 'vit_gaug_only', 'vit_prr_only', 'vit_avgpool', 'regvit',
                                  'ropevit', 'swin'])
def test_equals_the_reference(name):
    meta, state, inputs, outputs = load_golden(name)
    if name == 'swin':
        model = tiny_swin()
    elif name == 'ropevit':
        model = timm.models.eva.Eva(
            img_size=64, patch_size=8, embed_dim=48, depth=3, num_heads=3, num_classes=7,
            global_pool='token', attn_type='rope', use_rot_pos_emb=True, rope_type='mixed',
            rope_temperature=10, rope_grid_indexing='xy', init_values=0.1, use_abs_pos_emb=False,
            dynamic_img_size=True)
    else:
        kwargs = {'vit_avgpool': {'class_token': False, 'global_pool': 'avg'},
                  'regvit': {'reg_tokens': 4}}.get(name, {})
        model = tiny_vit(patch_size=8, depth=3, **kwargs)
    if name != 'vit_prr_only':
        add_gaug(model)
    model.load_state_dict(state)
    model.eval()
    for key, image in inputs.items():
        size = key.removeprefix('image_')
        with torch.no_grad():
            tokens, maps = model.forward_intermediates(image)
            if name == 'swin':
                tokens = PatchRefinement(4)(tokens.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
            elif name != 'vit_gaug_only':
                tokens = refine(tokens, meta['num_heads'])
            logits = model.forward_head(tokens)
        for index, feature_map in enumerate(maps):
            assert relative_error(feature_map, outputs[f'feat{index}_{size}']) < 1e-5
        assert relative_error(logits, outputs[f'logits_{size}']) < 1e-5
        assert len(outputs) == len(inputs) * (len(maps) + 1)


def test_vit_base_gains_2340_parameters():
    with torch.device('meta'):
        model = timm.create_model('vit_base_patch16_224')
        plain = sum(p.numel() for p in model.parameters())
        assert sum(p.numel() for p in add_gaug(model).parameters()) - plain == 2340


def test_grid_of_pretraining():
    assert gaussians(add_gaug(tiny_vit(img_size=(64, 96))))[0].grid == (4, 6)
    assert gaussians(add_gaug(tiny_vit(), gaug_grid=14))[1].grid == (14, 14)
    assert gaussians(add_gaug(tiny_vit(), gaug_grid=(8, 14)))[1].grid == (8, 14)
    assert gaussians(add_gaug(tiny_swin(), gaug_grid=12))[3].grid == (12, 12)


@pytest.mark.parametrize('make', [tiny_vit, tiny_swin])
def test_plain_weights_lack_only_gaug(make):
    plain, model = make(), add_gaug(make())
    missing, unexpected = model.load_state_dict(plain.state_dict(), strict=False)
    assert not unexpected
    assert len(missing) == 4 * len(gaussians(model)) and all('.attn.gaug.' in k for k in missing)
    other = add_gaug(make())
    strengthen(model)
    assert not any(other.load_state_dict(model.state_dict()))
    image = torch.randn(1, 3, *model.patch_embed.img_size)
    assert torch.equal(other.eval()(image), model.eval()(image))


@pytest.mark.parametrize('make', [
    tiny_vit, tiny_swin, lambda **kwargs: tiny('vit_small_patch16_rope_mixed_224', **kwargs)],
    ids=['vit', 'swin', 'rope'])
def test_features(make):
    """forward_features, forward_intermediates and both features_only wrappers give one answer."""
    plain, model = randomised(make()).eval(), randomised(make()).eval()
    assert add_gaug(model) is model
    getter = add_gaug(make(features_only=True, out_indices=(0, 1))).eval()
    image = torch.randn(1, 3, *model.patch_embed.img_size)
    with torch.no_grad():
        final, maps = model.forward_intermediates(image)
        torch.testing.assert_close(final, model.forward_features(image))
        core = getattr(getter, 'model', getter)
        assert len(gaussians(getter)) == len(gaussians(model))
        core.load_state_dict({key.replace('layers.', 'layers_') if core is getter else key: value
                              for key, value in model.state_dict().items()}, strict=False)
        for feature, expected in zip(getter(image), maps, strict=True):
            feature = feature.permute(0, 3, 1, 2) if core is getter else feature
            torch.testing.assert_close(feature, expected)
            assert expected.ndim == 4
        expected = plain.forward_intermediates(image, intermediates_only=True)
        for actual, wanted in zip(switch_off(model).forward_intermediates(
                image, intermediates_only=True), expected, strict=True):
            torch.testing.assert_close(actual, wanted, rtol=1e-4, atol=5e-5)


@pytest.mark.parametrize('duplicate', [
    copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))], ids=['deepcopy', 'pickle'])
def test_copies_have_a_grid_of_their_own(duplicate):
    model = strengthen(add_gaug(tiny_vit())).eval()
    wide, tall = torch.randn(1, 3, 64, 96), torch.randn(1, 3, 96, 64)
    with torch.no_grad():
        expected, other_expected = model(wide), model(tall)
        model(wide)
        other = duplicate(model)
        assert torch.equal(other(tall), other_expected)
        layers = [*(block.attn for block in model.blocks), *(b.attn for b in other.blocks)]
        assert [layer.token_grid.lookup(24) for layer in layers] == 2 * [(4, 6)] + 2 * [(6, 4)]
        assert torch.equal(model(wide), expected)


def test_saved_whole(tmp_path):
    model = strengthen(add_gaug(tiny_swin())).eval()
    torch.save(model, tmp_path / 'model.pth')
    other = torch.load(tmp_path / 'model.pth', weights_only=False)
    image = torch.randn(1, 3, 56, 56)
    assert torch.equal(other(image), model(image))


@pytest.mark.parametrize('make', [tiny_vit, tiny_swin])
def test_bfloat16(make):
    model = strengthen(add_gaug(make()))
    image = torch.randn(2, 3, *model.patch_embed.img_size)
    expected = model(image)
    with torch.autocast('cpu', torch.bfloat16):
        out = model(image)
    assert relative_error(out.float(), expected) < 5e-2
    gradients = parameter_gradients(model, out.square().sum())
    assert all(gradient.isfinite().all() for gradient in gradients.values())
    assert relative_error(model.bfloat16()(image.bfloat16()).float(), expected) < 5e-2


@pytest.mark.parametrize('name', REFUSED)
def test_refused_models(name):
    with torch.device('meta'):
        model = timm.create_model(name)
    before = [type(module) for module in model.modules()]
    with pytest.raises(ValueError, match=REFUSED[name]) as error:
        add_gaug(model)
    supported = (
        ['timm.models.vision_transformer.VisionTransformer', 'timm.models.eva.Eva']
        if 'does not tell' in str(error.value) else
        ['timm.layers.attention.Attention', 'timm.layers.attention.AttentionRope',
         'timm.models.eva.EvaAttention', 'timm.models.swin_transformer.WindowAttention'])
    assert all(cls in str(error.value) for cls in supported)
    assert [type(module) for module in model.modules()] == before


def test_refused_twice():
    with pytest.raises(ValueError, match='already has Gaussian attention .* call add_gaug once'):
        add_gaug(add_gaug(tiny_vit()))


@pytest.mark.parametrize('name', ['vit_tiny_patch16_224', 'vit_small_patch16_rope_224'])
def test_refused_patch_dropout(name):
    with pytest.raises(ValueError, match='drops patches in training .*patch_drop_rate=0'):
        add_gaug(tiny(name, patch_drop_rate=0.25))


def test_refused_without_an_image_size():
    with pytest.raises(ValueError, match='built without an image size.*pass img_size'):
        add_gaug(timm.models.qwen3_vit.Qwen3VitEncoder(
            img_size=None, embed_dim=32, depth=1, num_heads=2))


def test_twins_of_another_class():
    class Twin(GAugAttention):
        pass

    model = add_gaug(tiny_vit(), attn=Twin)
    assert [type(block.attn) for block in model.blocks] == [Twin, Twin]
    plain = tiny_vit()
    with pytest.raises(ValueError, match='attn=GAugEvaAttention: the twin of timm.layers.attention'
                                         '.Attention is GAugAttention; expected it or a subclass'):
        add_gaug(plain, attn=GAugEvaAttention)
    assert not gaussians(plain) and not plain.patch_embed._forward_hooks


@pytest.mark.parametrize('make', [tiny_vit, tiny_swin])
@pytest.mark.parametrize('grid', [0, (4,), 3.5])
def test_refused_grids_leave_the_model_plain(make, grid):
    model = make()
    with pytest.raises(ValueError, match=r'gaug_grid=.*expected a positive integer or a pair'):
        add_gaug(model, gaug_grid=grid)
    assert not gaussians(model)
    assert not model.patch_embed._forward_hooks
    add_gaug(model)
