"""The registered backbones: plain timm to the bit, shapes, freezing, pruning, training."""
import copy
import pickle
import re
from collections.abc import Callable
from functools import partial

import pytest
import timm
import torch
from mmengine.model import ExponentialMovingAverage, PretrainedInit
from timm.models.eva import Eva
from timm.models.swin_transformer import SwinTransformer
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn
from torch.nn import functional as F

from locat_mmseg.addon import GAugAttention
from locat_mmseg.openmmlab.backbones import LocAtSwin, LocAtTIMM, LocAtViT, TimmBackbone

TINY = dict(embed_dims=24, num_layers=3, num_heads=3, mlp_ratio=2)
TINY_SWIN = dict(embed_dims=12, depths=(1, 2, 1), num_heads=(3, 3, 6))
SIZES = [(32, 32), (40, 24), (33, 47), (5, 70)]


def vit(**kwargs) -> LocAtViT:
    """Depth 3, patches of 8 pixels, pre-training grid 4 x 4."""
    return LocAtViT(TINY, **{'img_size': 32, 'patch_size': 8, **kwargs})


def swin(**kwargs) -> LocAtSwin:
    """Three stages of 1, 2 and 1 blocks, patches of 2 pixels, windows of 4 x 4."""
    return LocAtSwin(TINY_SWIN, **{'img_size': 32, 'patch_size': 2, 'window_size': 4,
                                   'out_indices': (0, 1, 2), **kwargs})


def dinov2(**kwargs) -> LocAtTIMM:
    return LocAtTIMM('vit_small_patch14_reg4_dinov2', dict(
        img_size=56, embed_dim=24, depth=3, num_heads=3), **kwargs)


VITS = {'vit': vit, 'regvit': partial(vit, num_registers=4), 'ropevit': partial(vit, rope=True),
        'dinov2': dinov2}
BACKBONES = {**VITS, 'swin': swin}
each_backbone = pytest.mark.parametrize('build', BACKBONES.values(), ids=BACKBONES.keys())
each_vit = pytest.mark.parametrize('build', VITS.values(), ids=VITS.keys())


def randomize(module: nn.Module, seed: int = 0) -> nn.Module:
    """Give every parameter a random value, so that none of them is without effect."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in module.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator) * 0.3
    return module


def images(*sizes: tuple[int, int]) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(2, 3, *size, generator=generator) for size in sizes]


def gradients(backbone: nn.Module, *inputs: Tensor) -> dict[str, Tensor | None]:
    """Gradients of a loss that weighs every number of every output differently."""
    backbone.zero_grad()
    outputs = [output for x in inputs for output in backbone(x)]
    sum((output * torch.linspace(-1, 1, output.numel()).view_as(output)).sum()
        for output in outputs).backward()
    return {name: p.grad for name, p in backbone.named_parameters()}


def shapes(module: nn.Module) -> dict[str, torch.Size]:
    return {name: parameter.shape for name, parameter in module.named_parameters()}


# --- named architectures ---------------------------------------------------------------------

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


# --- outputs -----------------------------------------------------------------------------------

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


@each_vit
def test_maps_are_block_outputs_and_tokens_are_normed(build: Callable[..., LocAtViT]):
    featmap = randomize(build(out_indices=-1)).eval()
    tokens = build(out_type='tokens').eval()
    weights = featmap.state_dict()
    tokens.load_state_dict(weights, strict=False)
    norm = tokens.model.norm
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


# --- freezing ------------------------------------------------------------------------------------

def is_frozen(frozen_stages: int, name: str) -> bool:
    """Whether ``frozen_stages`` of 3 covers a parameter or module, by its name."""
    if name.startswith('out_norms') or frozen_stages < 0:
        return False
    stage = re.match(r'model\.(?:blocks|layers)\.(\d+)', name)
    if stage is None and name.split('.')[1] != 'norm':
        return True  # stem, tokens, position embedding
    return frozen_stages > (int(stage.group(1)) if stage else 2)


@pytest.mark.parametrize('out_type', ['featmap', 'tokens'])
@pytest.mark.parametrize('frozen_stages', [-1, 0, 1, 2, 3])
@each_backbone
def test_frozen_stages(build: Callable[..., TimmBackbone], frozen_stages: int, out_type: str):
    backbone = build(frozen_stages=frozen_stages, out_type=out_type)
    assert backbone.train() is backbone
    outputs = backbone(images((56, 28))[0].requires_grad_(frozen_stages == 3))
    trainable = frozen_stages < 3 or backbone.out_norms is not None
    assert all(output.requires_grad == trainable for output in outputs)
    if trainable:
        sum(output.sum() for output in outputs).backward()
    for name, parameter in backbone.named_parameters():
        assert parameter.requires_grad != is_frozen(frozen_stages, name), name
        assert (parameter.grad is None) == is_frozen(frozen_stages, name), name
    modes = {name: module.training for name, module in backbone.model.named_modules() if name}
    del modes['blocks' if hasattr(backbone.model, 'blocks') else 'layers']  # partly frozen
    assert modes == {name: not is_frozen(frozen_stages, f'model.{name}') for name in modes}
    assert backbone.eval() is backbone
    assert not any(module.training for module in backbone.modules())


def test_frozen_swin_trains_its_norms_only():
    backbone = swin(frozen_stages=3).train()
    trained = {name for name, p in gradients(backbone, *images((32, 32))).items() if p is not None}
    assert trained == {f'out_norms.{i}.{kind}' for i in range(3) for kind in ('weight', 'bias')}
    plain = swin(frozen_stages=3, out_norm=False).train()
    assert not any(output.requires_grad for output in plain(*images((32, 32))))


def test_frozen_stages_counts_what_pruning_leaves():
    """With only the first two blocks in use, two frozen blocks are the whole backbone."""
    assert not vit(out_indices=1, frozen_stages=2)(*images((32, 32)))[0].requires_grad


@pytest.mark.parametrize('frozen_stages', [-2, 4])
def test_frozen_stages_refused(frozen_stages: int):
    with pytest.raises(ValueError, match=f'frozen_stages={frozen_stages}.*or up to 3'):
        vit(frozen_stages=frozen_stages)


# --- pruning -------------------------------------------------------------------------------------

@pytest.mark.parametrize('kwargs', [dict(out_indices=1), dict(out_indices=(0, 2)),
                                    dict(out_type='tokens')], ids=str)
@each_backbone
def test_every_parameter_gets_a_gradient(build: Callable[..., TimmBackbone], kwargs: dict):
    """So DistributedDataParallel needs no find_unused_parameters."""
    backbone = build(**kwargs).train()
    missing = [name for name, grad in gradients(backbone, *images((40, 24))).items()
               if grad is None]
    assert not missing


def test_pruned_keys():
    block = {name.removeprefix('model.blocks.2.') for name in vit().state_dict()
             if name.startswith('model.blocks.2.')}
    head = {'head.weight', 'head.bias'}
    norm = {'norm.weight', 'norm.bias'}
    assert vit(out_type='tokens').pruned_keys == head
    assert vit().pruned_keys == head | norm
    assert vit(out_indices=(0, 1)).pruned_keys \
        == head | norm | {f'blocks.2.{name}' for name in block}
    assert vit(final_norm=False).pruned_keys == head | {'fc_norm.weight', 'fc_norm.bias'}
    assert {name for name in swin(out_indices=(0, 1)).pruned_keys
            if not name.startswith('layers.2.')} == norm | {'head.fc.weight', 'head.fc.bias'}


# --- training ------------------------------------------------------------------------------------

@pytest.mark.parametrize('frozen_stages', [-1, 1])
@each_backbone
def test_checkpointing_gives_equal_gradients(build: Callable[..., TimmBackbone],
                                             frozen_stages: int):
    """Also for two image sizes in one step, whose blocks are recomputed in the backward pass."""
    sizes = [(56, 28), (28, 28)] if build is dinov2 else [(40, 24), (24, 24)]
    stored = randomize(build(frozen_stages=frozen_stages)).train()
    recomputed = build(frozen_stages=frozen_stages, with_cp=True).train()
    recomputed.load_state_dict(stored.state_dict())
    calls = count_calls(recomputed.stages[-1])
    expected = gradients(stored, *images(*sizes))
    actual = gradients(recomputed, *images(*sizes))
    assert calls() > len(sizes)  # it does recompute
    for name, gradient in expected.items():
        if gradient is None:
            assert actual[name] is None
        else:
            torch.testing.assert_close(actual[name], gradient, msg=name)


def count_calls(module: nn.Module) -> Callable[[], int]:
    """Count the calls of the first attention layer's projection in ``module``."""
    calls = []
    qkv = next(child for name, child in module.named_modules() if name.endswith('attn.qkv'))
    original = qkv.forward

    def forward(x: Tensor) -> Tensor:
        calls.append(1)
        return original(x)

    qkv.forward = forward
    return lambda: len(calls)


@each_backbone
def test_drop_path_acts_in_training_only(build: Callable[..., TimmBackbone]):
    x, = images((56, 28))
    x = x.repeat(4, 1, 1, 1)
    if build is dinov2:
        backbone = LocAtTIMM('vit_small_patch14_reg4_dinov2', dict(
            img_size=56, embed_dim=24, depth=3, num_heads=3, drop_path_rate=0.8))
    else:
        backbone = build(drop_path_rate=0.8)
    randomize(backbone).train()
    assert not torch.equal(backbone(x)[-1], backbone(x)[-1])
    backbone.eval()
    assert torch.equal(backbone(x)[-1], backbone(x)[-1])


def test_drop_path_grows_linearly_and_spares_frozen_blocks():
    backbone = randomize(vit(drop_path_rate=0.5, frozen_stages=2, out_indices=(1, 2))).train()
    rates = [getattr(block.drop_path1, 'drop_prob', 0.) for block in backbone.model.blocks]
    assert rates == pytest.approx([0., 0.25, 0.5])
    x = images((32, 32))[0].repeat(8, 1, 1, 1)
    first, second = backbone(x), backbone(x)
    assert torch.equal(first[0], second[0])
    assert not torch.equal(first[1], second[1])


@pytest.mark.parametrize('clone', [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))],
                         ids=['deepcopy', 'pickle'])
@each_backbone
def test_copies_keep_a_grid_of_their_own(build: Callable[..., TimmBackbone], clone: Callable):
    """24 patches may be 4 x 6 or 6 x 4: copy and original must not read each other's grid."""
    tall, wide = images((84, 56), (56, 84)) if build is dinov2 else images((48, 32), (32, 48))
    original = randomize(build()).eval()
    expected = original(tall)[-1], original(wide)[-1]
    twin = clone(original)
    assert torch.equal(twin(tall)[-1], expected[0])
    assert torch.equal(original(wide)[-1], expected[1])
    # Without its own grid the copy's attention would read the original's latest one.
    assert torch.equal(twin(tall)[-1], expected[0])


def test_exponential_moving_average():
    backbone = randomize(vit()).eval()
    average = ExponentialMovingAverage(backbone, momentum=0.25)
    before = {name: weight.clone() for name, weight in backbone.state_dict().items()}
    randomize(backbone, seed=5)
    average.update_parameters(backbone)  # the first update copies
    randomize(backbone, seed=6)
    start = copy.deepcopy(average.module.state_dict())
    average.update_parameters(backbone)
    for name, weight in average.module.state_dict().items():
        torch.testing.assert_close(weight, 0.75 * start[name] + 0.25 * backbone.state_dict()[name])
        assert not torch.equal(weight, before[name])
    assert torch.isfinite(average(*images((40, 24)))[0]).all()


@each_backbone
def test_bfloat16_autocast(build: Callable[..., TimmBackbone]):
    backbone = build().train()
    x, = images((56, 28))
    expected = [output.detach() for output in backbone(x)]
    with torch.autocast('cpu', dtype=torch.bfloat16):
        outputs = backbone(x)
        loss = sum(output.float().square().mean() for output in outputs)
    loss.backward()
    for output, full in zip(outputs, expected, strict=True):
        assert (output - full).norm() < 0.03 * full.norm()
    grads = [p.grad for p in backbone.parameters()]
    assert all(grad is not None and torch.isfinite(grad).all() for grad in grads)


# --- weights -------------------------------------------------------------------------------------

@each_backbone
def test_state_dict_round_trip_under_three_spellings(build: Callable[..., TimmBackbone]):
    """The shell's own names, timm's and the reference's, also below 'backbone.'."""
    weights = randomize(build()).state_dict()
    spellings = {'own': weights,
                 'timm': {name.removeprefix('model.'): w for name, w in weights.items()}}
    for state_dict in spellings.values():
        names = list(state_dict)
        backbone = build()
        backbone.load_state_dict(state_dict)
        whole = nn.ModuleDict(dict(backbone=build(), neck=nn.Linear(2, 2)))
        whole.load_state_dict({**{f'backbone.{name}': w for name, w in state_dict.items()},
                               'neck.weight': torch.eye(2), 'neck.bias': torch.zeros(2)})
        for loaded in (backbone, whole['backbone']):
            assert all(torch.equal(loaded.state_dict()[name], w) for name, w in weights.items())
        assert list(state_dict) == names  # the caller's dict is untouched


def test_timms_initialisation_is_not_repeated():
    backbone = vit()
    before = copy.deepcopy(backbone.state_dict())
    backbone.init_weights()
    assert backbone.is_init
    assert all(torch.equal(before[name], w) for name, w in backbone.state_dict().items())


@pytest.mark.parametrize('kind', ['Pretrained', PretrainedInit])
def test_loaded_weights_win_over_drawn_ones(kind: str | type, tmp_path):
    source = randomize(vit())
    torch.save(source.state_dict(), tmp_path / 'weights.pth')
    backbone = vit(init_cfg=[dict(type=kind, checkpoint=str(tmp_path / 'weights.pth')),
                             dict(type='Constant', layer=['Conv2d', 'Linear'], val=7.)])
    backbone.init_weights()
    assert all(torch.equal(source.state_dict()[name], w)
               for name, w in backbone.state_dict().items())
    drawn = vit(init_cfg=dict(type='Constant', layer='Conv2d', val=7.))
    drawn.init_weights()
    assert (drawn.model.patch_embed.proj.weight == 7).all()


# --- layer depth ---------------------------------------------------------------------------------

@each_vit
def test_layer_depth_of_vits(build: Callable[..., LocAtViT]):
    backbone = build(out_type='tokens')
    for name, _ in backbone.named_parameters():
        block = re.match(r'model\.blocks\.(\d+)\.', name)
        if block:
            expected = int(block.group(1)) + 1
        else:  # the final norm goes with the last block, all else is in front of the first
            expected = 3 if name.startswith('model.norm.') else 0
        assert backbone.get_layer_depth(f'backbone.{name}', 'backbone.') == (expected, 5), name
    assert backbone.get_layer_depth('head.layers.weight', 'backbone.') == (4, 5)


def test_layer_depth_of_swin():
    """Stages of 1, 2 and 1 blocks; a patch merging belongs to the block that follows it."""
    backbone = swin()
    first_block = {'0': 1, '1': 2, '2': 4}
    for name, _ in backbone.named_parameters():
        parts = name.split('.')
        if parts[0] == 'out_norms':
            expected = 5
        elif parts[1] == 'patch_embed':
            expected = 0
        else:
            expected = first_block[parts[2]] + (int(parts[4]) if parts[3] == 'blocks' else 0)
        assert backbone.get_layer_depth(f'backbone.{name}', 'backbone.') == (expected, 6), name
        assert backbone.get_layer_depth(name) == (expected, 6), name


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
    from mmengine.registry import MODELS
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
    (lambda: vit(out_type='cls_token'), "out_type='cls_token': expected one of .*featmap"),
    (lambda: vit(gaug_grid=(4, 0)), r'gaug_grid=\(4, 0\): expected a positive integer or a pair'),
])
def test_arguments_refused(build: Callable[[], TimmBackbone], message: str):
    with pytest.raises(ValueError, match=message):
        build()
