"""Captured attention: the weights of a slow formula, the fused outputs, everything restored."""
import copy

import pytest
import timm
import torch
from tiny_backbones import each_backbone, images
from tiny_timm import TINY_SEQUENCE, randomize, tiny, tiny_swin, tiny_vit
from timm.layers import PatchEmbed
from torch import nn

from locat_mmseg.addon import add_gaug
from locat_mmseg.analysis import capture_attention
from locat_mmseg.analysis.capture import allowed_pairs

# Name in timm, prefix tokens, image (height, width), arguments beside the tiny ones.
SEQUENCE_MODELS = [
    ('vit_tiny_patch16_224', 1, (48, 80), {'dynamic_img_size': True}),
    ('vit_base_patch16_reg4_gap_256', 4, (64, 64), {}),
    ('vit_small_patch14_reg4_dinov2', 5, (56, 56), {'img_size': 56}),
    ('deit_tiny_distilled_patch16_224', 2, (64, 64), {}),
    ('vit_small_patch16_18x2_224', 1, (64, 64), {}),
    ('vit_base_patch16_siglip_224', 0, (64, 64), {}),
    ('vit_tiny_r_s16_p8_224', 1, (64, 64), {}),
    ('eva02_tiny_patch14_224', 1, (56, 56), {'img_size': 56}),
    ('vit_small_patch16_dinov3', 5, (64, 96), {'dynamic_img_size': True}),
    ('vit_small_patch16_rope_224', 1, (64, 64), {}),
]


def fused(model: nn.Module) -> nn.Module:
    """Let every layer use the fused kernel, also Swin's, whose default is the explicit path."""
    for module in model.modules():
        if hasattr(module, 'fused_attn'):
            module.fused_attn = True
    return model.eval()


def randomized(model: nn.Module) -> nn.Module:
    """Every parameter matters: layer scales start near 0 and would hide the attention."""
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.2)
    return model


@pytest.mark.parametrize('gaug', [False, True], ids=['plain', 'gaug'])
@pytest.mark.parametrize('name, prefix, size, kwargs', SEQUENCE_MODELS,
                         ids=[name for name, *_ in SEQUENCE_MODELS])
def test_outputs_equal_the_fused_path_and_rows_sum_to_one(name, prefix, size, kwargs, gaug):
    model = tiny(name, **kwargs)
    model = fused(randomized(add_gaug(model) if gaug else model))
    batch = torch.randn(2, 3, *size)
    with torch.no_grad():
        expected = model(batch)
        with capture_attention(model) as layers:
            actual = model(batch)
    assert (actual - expected).abs().max() < 1e-5 * max(1, expected.abs().max())
    assert [layer.depth for layer in layers] == list(range(len(layers)))
    patch = 32 if '_r_s16_p8' in name else 14 if 'patch14' in name else 16
    grid = size[0] // patch, size[1] // patch
    for layer in layers:
        num_tokens = prefix + grid[0] * grid[1]
        assert (layer.grid, layer.num_prefix_tokens) == (grid, prefix)
        assert layer.stride == (patch, patch)
        assert layer.weights.shape == (2, 3, num_tokens, num_tokens)
        torch.testing.assert_close(layer.weights.sum(-1), torch.ones(2, 3, num_tokens))
        assert layer.allowed is None and not layer.windowed


def test_weights_equal_the_definition():
    model = tiny_vit().eval()
    inputs = {}
    for name in ('blocks.0', 'blocks.1'):
        block = model.get_submodule(name)
        block.attn.register_forward_pre_hook(
            lambda _, args, name=name: inputs.update({f'{name}.attn': args[0]}))
    with torch.no_grad(), capture_attention(model) as layers:
        model(torch.randn(2, 3, 64, 64))
    assert [layer.name for layer in layers] == ['blocks.0.attn', 'blocks.1.attn']
    for layer in layers:
        attn = model.get_submodule(layer.name)
        q, k, _ = attn.qkv(inputs[layer.name]).chunk(3, -1)
        for head in range(3):
            part = slice(16 * head, 16 * head + 16)
            logits = torch.einsum('bic,bjc->bij', q[..., part], k[..., part]) / 4
            torch.testing.assert_close(layer.weights[:, head], logits.softmax(-1))


@pytest.mark.parametrize('gaug', [False, True], ids=['plain', 'gaug'])
@pytest.mark.parametrize('size', [(56, 56), (40, 90)])
def test_windows(size, gaug):
    model = tiny_swin(window_size=4)
    model = fused(randomized(add_gaug(model) if gaug else model))
    batch = torch.randn(2, 3, *size)
    model.set_input_size(size)
    with torch.no_grad():
        expected = model(batch)
        with capture_attention(model) as layers:
            actual = model(batch)
    assert (actual - expected).abs().max() < 1e-5 * max(1, expected.abs().max())
    assert [layer.name for layer in layers] == [
        f'layers.{stage}.blocks.{block}.attn' for stage in (0, 1) for block in (0, 1)]
    assert [layer.stride for layer in layers] == [(4, 4), (4, 4), (8, 8), (8, 8)]
    for layer in layers:
        windows, heads, n, _ = layer.weights.shape
        assert layer.windowed and n == layer.grid[0] * layer.grid[1]
        assert layer.allowed.shape == (windows // 2, n, n)
        # Pairs parted by the shift get no weight, those inside all of what padding leaves.
        parted = ~layer.allowed & layer.allowed.any(-1)[:, :, None] & layer.allowed.any(-2)[:, None]
        assert (layer.weights.unflatten(0, (2, -1)).transpose(1, 2)[:, :, parted] < 1e-30).all()


@each_backbone
@pytest.mark.parametrize('size', [(40, 24), (33, 47)])
def test_registered_backbones(build, size):
    """Images of any size, padded to whole patches."""
    backbone = fused(randomize(build()))
    image, = images(size)
    with torch.no_grad():
        expected = backbone(image)
        with capture_attention(backbone) as layers:
            actual = backbone(image)
    for one, other in zip(actual, expected):
        assert (one - other).abs().max() < 1e-5 * max(1, other.abs().max())
    assert len(layers) == len(attentions(backbone)) > 2


def attentions(model: nn.Module) -> list[nn.Module]:
    return [module for module in model.modules() if hasattr(module, 'fused_attn')]


def test_allowed_pairs_typed_by_hand():
    """A map of 1 x 3 in windows of 1 x 2: the second window holds one token and one of padding."""
    assert allowed_pairs((1, 3), (1, 2), None).tolist() == [
        [[True, True], [True, True]], [[True, False], [False, False]]]
    mask = torch.tensor([[[0., -100.], [-100., 0.]], [[0., 0.], [0., 0.]]])
    assert allowed_pairs((1, 3), (1, 2), mask).tolist() == [
        [[True, False], [False, True]], [[True, False], [False, False]]]


@pytest.mark.parametrize('wrapped', [
    lambda: timm.create_model('vit_tiny_patch16_224', features_only=True, **{
        **TINY_SEQUENCE, 'out_indices': (0, 1)}),
    lambda: timm.create_model('swin_tiny_patch4_window7_224', features_only=True, img_size=56,
                              depths=(1, 1), embed_dim=24, num_heads=(2, 4), out_indices=(0, 1)),
    lambda: nn.ModuleDict({'backbone': tiny_vit(), 'head': nn.Linear(2, 2)})['backbone'],
], ids=['features_only vit', 'features_only swin', 'child'])
def test_models_that_hold_a_backbone(wrapped):
    model = wrapped().eval()
    with capture_attention(model) as layers:
        model(torch.randn(1, 3, *([56, 56] if 'FeatureListNet' in str(type(model)) else [64, 64])))
    assert len(layers) == 2


def test_a_consumer_gets_one_layer_at_a_time_and_the_list_the_newest_pass():
    model = tiny_vit().eval()
    seen = []
    with capture_attention(model, lambda layer: seen.append((layer.depth, layer.grid))) as kept:
        for size in ((64, 64), (32, 80)):
            model(torch.randn(1, 3, *size))
    assert kept == []
    assert seen == [(0, (4, 4)), (1, (4, 4)), (0, (2, 5)), (1, (2, 5))]
    with capture_attention(model) as layers:
        for size in ((64, 64), (32, 80)):
            model(torch.randn(1, 3, *size))
    assert [layer.grid for layer in layers] == [(2, 5), (2, 5)]


@pytest.mark.parametrize('make', [tiny_vit, tiny_swin, lambda: add_gaug(tiny_vit())])
def test_everything_is_restored_also_after_an_exception(make):
    model = make().train()
    size = model.patch_embed.img_size

    def state():
        return {name: (module.training, getattr(module, 'fused_attn', None),
                       len(module._forward_hooks), len(module._forward_pre_hooks))
                for name, module in model.named_modules()}

    before, weights = state(), copy.deepcopy(model.state_dict())
    with pytest.raises(RuntimeError, match='of the consumer'), capture_attention(model, fail):
        model(torch.randn(1, 3, *size))
    assert state() == before
    with capture_attention(model) as layers:
        model(torch.randn(1, 3, *size))
        assert state() != before
    assert state() == before and layers
    for name, value in model.state_dict().items():
        assert torch.equal(value, weights[name])


def fail(layer):
    raise RuntimeError('of the consumer')


def test_weights_are_those_before_dropout():
    model = tiny_vit(attn_drop_rate=0.9).train()
    with capture_attention(model) as layers:
        model(torch.randn(1, 3, 64, 64))
    torch.testing.assert_close(layers[1].weights.sum(-1), torch.ones(1, 3, 17))


def test_gradients_flow_and_recomputation_is_left_out():
    gradients = []
    for checkpointing in (False, True):
        model = add_gaug(tiny_vit())
        model.set_grad_checkpointing(checkpointing)
        seen = []
        with capture_attention(model, seen.append):
            model(torch.ones(1, 3, 64, 64)).sum().backward()
        assert [layer.depth for layer in seen] == [0, 1]
        assert not any(layer.weights.requires_grad for layer in seen)
        gradients.append(model.blocks[0].attn.qkv.weight.grad)
    torch.testing.assert_close(*gradients)


def test_compiled_models_run_eagerly_meanwhile():
    model = tiny_vit().eval()
    batch = torch.randn(1, 3, 64, 64)
    compiled = torch.compile(model, backend='eager', dynamic=False)
    with torch.no_grad():
        expected = compiled(batch)
        with capture_attention(compiled) as layers:
            actual = compiled(batch)
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-5)
    assert len(layers) == 2


def test_nested_captures_are_refused():
    model = tiny_vit()
    with capture_attention(model):
        with pytest.raises(ValueError, match='VisionTransformer is open already'):
            capture_attention(model).__enter__()
        with capture_attention(tiny_vit()):
            pass
    with capture_attention(model):
        pass


class Embedded(nn.Module):
    """A patch embedding before anything."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.patch_embed = PatchEmbed(8, 4, 3, 8)
        self.layer = layer


@pytest.mark.parametrize('make, message', [
    (lambda: nn.Linear(2, 2), 'torch.nn.modules.linear.Linear holds no timm model'),
    (lambda: timm.create_model('resnet18'), 'resnet.ResNet holds no timm model'),
    (lambda: nn.ModuleDict({'student': tiny_vit(), 'teacher': tiny_vit()}),
     'several backbones: student, teacher; pass one'),
    (lambda: timm.create_model('swinv2_tiny_window8_256'),
     r'Found: timm.models.swin_transformer_v2.WindowAttention; supported: .*EvaAttention'),
    (lambda: timm.create_model('beit_base_patch16_224', depth=1),
     'Found: timm.models.beit.Attention;'),
    (lambda: timm.create_model('vit_base_patch16_xp_224', depth=1),
     'Found: timm.models.vision_transformer.ParallelScalingBlock;'),
    (lambda: Embedded(nn.Linear(2, 2)), 'Found: none'),
    (lambda: Embedded(timm.layers.Attention(8)), 'does not tell the grid of its tokens'),
])
def test_models_without_readable_weights_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        capture_attention(make()).__enter__()
