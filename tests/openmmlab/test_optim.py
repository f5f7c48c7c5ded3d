"""Layer-wise learning-rate decay and weight decay of the groups that the constructors make."""
import pytest
import torch
from mmengine.config import Config
from mmengine.optim import OptimWrapper, build_optim_wrapper
from mmengine.registry import MODELS, init_default_scope
from torch import nn

import locat_mmseg  # noqa: F401  registers what the configs name

RATE, LR, DECAY = 0.5, 1e-3, 0.05
VIT = dict(type='LocAtViT', arch=dict(embed_dims=24, num_layers=3, num_heads=3), img_size=32,
           patch_size=8, num_registers=2)
SWIN = dict(type='LocAtSwin', arch=dict(embed_dims=12, depths=(1, 2), num_heads=(3, 3)),
            img_size=32, patch_size=2, window_size=4, out_indices=(0, 1))
ROPE = dict(VIT, rope=True)
JUMBO = dict(VIT, num_registers=0, arch=dict(VIT['arch'], num_class_tokens=3))
# As in configs/_base_/schedules.
NO_DECAY = {name: dict(decay_mult=0.) for name in (
    'pos_embed', 'cls_token', 'reg_token', 'relative_position_bias_table', 'rope.freqs')}


def segmentor(backbone: dict, channels: int) -> nn.Module:
    return build('mmseg', dict(
        type='EncoderDecoder', backbone=backbone,
        decode_head=dict(type='FCNHead', in_channels=channels, in_index=0, channels=8, num_convs=1,
                         num_classes=3, norm_cfg=dict(type='BN'))))


def classifier(backbone: dict, channels: int, **neck) -> nn.Module:
    return build('mmpretrain', dict(
        type='ImageClassifier', backbone=dict(backbone, out_type='tokens'),
        neck=dict(type='PRRPool', embed_dims=channels, num_heads=3, **neck),
        head=dict(type='LinearClsHead', in_channels=channels, num_classes=3)))


def build(scope: str, cfg: dict) -> nn.Module:
    init_default_scope(scope)
    return MODELS.build(Config(cfg)._cfg_dict)


def optim_wrapper(model: nn.Module, constructor: str, **paramwise) -> OptimWrapper:
    return build_optim_wrapper(model, Config(dict(
        type='OptimWrapper', optimizer=dict(type='AdamW', lr=LR, weight_decay=DECAY),
        constructor=constructor, paramwise_cfg=dict(layer_decay_rate=RATE, **paramwise)))._cfg_dict)


def settings(model: nn.Module, wrapper: OptimWrapper, key: str) -> dict[str, float]:
    """lr or weight_decay by parameter name."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    return {names[id(parameter)]: group[key]
            for group in wrapper.optimizer.param_groups for parameter in group['params']}


SEGMENTATION = 'SegLearningRateDecayOptimWrapperConstructor'
CLASSIFICATION = 'LearningRateDecayOptimWrapperConstructor'
# Powers of the rate by the first matching part of a name: the head trains at the full rate, the
# last block at rate^1, the stem at rate^(number of blocks + 1).
VIT_POWERS = {'decode_head': 0, 'head': 0, 'blocks.2': 1, 'blocks.1': 2, 'blocks.0': 3,
              'model.norm': 1, 'model.jumbo_mlp': 1, 'model.': 4}
SWIN_POWERS = {'decode_head': 0, 'head': 0, 'out_norms': 0, 'layers.1.blocks.1': 1,
               'layers.1': 2, 'layers.0': 3, 'model.norm': 1, 'patch_embed': 4}
MODELS_AND_POWERS = {
    'segmentation vit': (lambda: segmentor(VIT, 24), SEGMENTATION, VIT_POWERS),
    'segmentation rope': (lambda: segmentor(ROPE, 24), SEGMENTATION, VIT_POWERS),
    'segmentation jumbo': (lambda: segmentor(JUMBO, 24), SEGMENTATION, VIT_POWERS),
    'segmentation swin': (lambda: segmentor(SWIN, 12), SEGMENTATION, SWIN_POWERS),
    'classification vit': (lambda: classifier(VIT, 24, num_prefix_tokens=3), CLASSIFICATION,
                           VIT_POWERS),
    'classification rope': (lambda: classifier(ROPE, 24, num_prefix_tokens=3), CLASSIFICATION,
                            VIT_POWERS),
    'classification jumbo': (lambda: classifier(JUMBO, 24, num_prefix_tokens=3), CLASSIFICATION,
                             VIT_POWERS),
    'classification swin': (lambda: classifier(SWIN, 24, pool='avg', num_prefix_tokens=0),
                            CLASSIFICATION, SWIN_POWERS),
}


@pytest.mark.parametrize('name', MODELS_AND_POWERS)
def test_layer_decay(name: str):
    build_model, constructor, powers = MODELS_AND_POWERS[name]
    model = build_model()
    rates = settings(model, optim_wrapper(model, constructor), 'lr')
    assert rates.keys() == {name for name, _ in model.named_parameters()}
    for name, rate in rates.items():
        power = next(power for part, power in powers.items()
                     if name.startswith(part) or name.removeprefix('backbone.').startswith(part)
                     or f'.{part}' in name)
        assert rate == pytest.approx(LR * RATE ** power), name


def test_neck_trains_at_the_full_rate():
    model = classifier(dict(VIT, final_norm=False), 24, pool='avg', num_prefix_tokens=3, norm=True)
    rates = settings(model, optim_wrapper(model, CLASSIFICATION), 'lr')
    assert rates['neck.fc_norm.weight'] == LR


@pytest.mark.parametrize('constructor', [SEGMENTATION, 'DefaultOptimWrapperConstructor'])
@pytest.mark.parametrize('backbone', [VIT, ROPE, JUMBO, SWIN],
                         ids=['vit', 'rope', 'jumbo', 'swin'])
def test_no_weight_decay(backbone: dict, constructor: str):
    """Norms by type, embeddings, tokens, tables and frequencies by name; all else decays."""
    model = segmentor(backbone, 12 if backbone is SWIN else 24)
    paramwise = dict(norm_decay_mult=0., custom_keys=NO_DECAY)
    decay = settings(model, optim_wrapper(model, constructor, **paramwise), 'weight_decay')
    norms = (nn.LayerNorm, nn.BatchNorm2d)
    free = {f'{prefix}.{name}' for prefix, module in model.named_modules()
            for name, _ in module.named_parameters(recurse=False) if isinstance(module, norms)}
    by_name = {name for name, _ in model.named_parameters()
               if name.endswith(('pos_embed', 'cls_token', 'reg_token', 'bias_table', 'freqs'))}
    assert by_name and free
    assert {name for name, value in decay.items() if value == 0} == free | by_name
    assert {value for name, value in decay.items() if name not in free | by_name} == {DECAY}


def test_frozen_parameters_are_left_out():
    model = segmentor(dict(VIT, frozen_stages=1), 24)
    trained = settings(model, optim_wrapper(model, SEGMENTATION), 'lr')
    assert trained.keys() == {name for name, p in model.named_parameters() if p.requires_grad}
    assert not any('blocks.0' in name or 'embed' in name for name in trained)
    assert trained['backbone.model.blocks.1.norm1.weight'] == pytest.approx(LR * RATE ** 2)


def test_a_step_moves_the_stem_less_than_the_head():
    """AdamW's first step is lr times the sign of the gradient."""
    model = segmentor(VIT, 24)
    wrapper = optim_wrapper(model, SEGMENTATION)
    watched = {'stem': model.backbone.model.patch_embed.proj.bias,
               'head': model.decode_head.conv_seg.bias}
    before = {name: parameter.detach().clone() for name, parameter in watched.items()}
    output = model.decode_head(model.backbone(torch.randn(2, 3, 32, 32)))
    wrapper.update_params(output.square().mean())
    # Plus decoupled weight decay of lr * 0.05 * value, zero for biases that start at zero.
    moved = {name: (parameter - before[name]).abs().max().item()
             for name, parameter in watched.items()}
    assert moved['head'] == pytest.approx(LR, rel=0.02)
    assert moved['stem'] == pytest.approx(LR * RATE ** 4, rel=0.02)


def test_a_backbone_without_depth_is_refused():
    model = build('mmseg', dict(
        type='EncoderDecoder', backbone=dict(type='ResNetV1c', depth=18, norm_cfg=dict(type='BN')),
        decode_head=dict(type='FCNHead', in_channels=512, channels=8, num_classes=3)))
    with pytest.raises(ValueError, match='backbone with get_layer_depth .*ResNetV1c in Encoder'):
        optim_wrapper(model, SEGMENTATION)
    with pytest.raises(ValueError, match='got NoneType in Linear'):
        optim_wrapper(nn.Linear(2, 2), SEGMENTATION)
