"""Names of other projects: against timm's own filters, and by hand."""
import re

import pytest
import timm
import torch
from timm.models import swin_transformer, vision_transformer
from tiny_timm import random_weights, tiny, tiny_swin
from torch import Tensor, nn

from locat_mmseg.addon.foreign_weights import merge_order, to_timm

StateDict = dict[str, Tensor]


def assert_same(actual: StateDict, expected: StateDict) -> None:
    assert actual.keys() == expected.keys()
    assert all(torch.equal(weight, expected[name]) for name, weight in actual.items())


def test_names_of_timm_and_of_a_shell_stay():
    for model in (tiny('vit_tiny_patch16_224'), tiny_swin(), tiny('vit_small_patch14_reg4_dinov2')):
        state = random_weights(model)
        before = dict(state)
        assert_same(to_timm(state), state)
        assert_same(to_timm({f'model.{name}': weight for name, weight in state.items()}), state)
        assert state.keys() == before.keys()


def test_swin_as_its_authors_publish_it():
    """They downsample at the end of a stage and store the index of the relative positions."""
    model = tiny_swin()
    state = random_weights(model)
    authors = {re.sub(r'layers\.1\.downsample', 'layers.0.downsample', name).replace(
        'head.fc.', 'head.'): weight for name, weight in state.items()}
    assert 'layers.0.downsample.norm.bias' in authors and 'head.weight' in authors
    assert_same(to_timm(authors), state)
    assert_same(to_timm(authors), swin_transformer.checkpoint_filter_fn(authors, model))
    # Sliced for three stages: all of them move by one.
    assert to_timm({f'layers.{i}.downsample.reduction.weight': torch.tensor(i) for i in (0, 1)}
                   ) == {f'layers.{i + 1}.downsample.reduction.weight': i for i in (0, 1)}


def dinov2(model: nn.Module) -> StateDict:
    """A state dict as DINOv2 names it; registers and class token have their own entries."""
    state = random_weights(model)
    if 'reg_token' in state:
        state['register_tokens'] = state.pop('reg_token')
        state['pos_embed'] = torch.cat([torch.full((1, 1, 48), 0.5), state['pos_embed']], dim=1)
    return {**state, 'mask_token': torch.zeros(1, 48)}


def test_dinov2_with_and_without_registers():
    for name in ('vit_small_patch14_dinov2', 'vit_small_patch14_reg4_dinov2'):
        model = timm.create_model(name, img_size=56, embed_dim=48, depth=2, num_heads=3)
        state = dinov2(model)
        expected = vision_transformer.checkpoint_filter_fn(dict(state), model)
        actual = to_timm(state)
        assert actual.pop('mask_token').shape == (1, 48)  # left for the report
        assert_same(actual, expected)
        model.load_state_dict(actual)
        if 'register_tokens' in state:
            assert torch.equal(actual['cls_token'], state['cls_token'] + 0.5)


def test_dinov2_from_sharded_training_with_swiglu():
    """Blocks lie in chunks, where they keep their number."""
    names = ['blocks.0.0.norm1.weight', 'blocks.0.1.mlp.w12.bias', 'blocks.1.2.mlp.w3.weight',
             'cls_token', 'mask_token']
    assert list(to_timm({name: torch.zeros(1) for name in names})) == [
        'blocks.0.norm1.weight', 'blocks.1.mlp.fc1.bias', 'blocks.2.mlp.fc2.weight', 'cls_token',
        'mask_token']


def test_other_models_stay_as_they_are():
    """They fail by their names when they are loaded."""
    for names in (['stages.0.downsample.conv.weight', 'patch_embed.projection.weight'],
                  ['register_tokens', 'embeddings.x'], ['layer1.0.conv1.weight']):
        state = {name: torch.zeros(3, 3, 3, 3) for name in names}
        assert len(to_timm(state)) >= len(state)


def test_blocks_inside_blocks_of_other_models_keep_their_names():
    names = ['blocks.0.1.attn.qkv.weight', 'blocks.1.1.attn.qkv.weight', 'head.weight']  # Twins
    assert list(to_timm({name: torch.zeros(1) for name in names})) == names


def test_order_of_merged_channels():
    """Channel c of the pixel in row r, column k of a 2 x 2 patch, written as 100 c + 10 r + k."""
    openmmlab = torch.tensor([0, 1, 10, 11, 100, 101, 110, 111])
    timms = [0, 100, 10, 110, 1, 101, 11, 111]
    assert merge_order(openmmlab).tolist() == timms
    assert merge_order(openmmlab.expand(3, 8)).tolist() == [timms] * 3
    with pytest.raises(ValueError, match='multiple of 4 channels, these weights have 6'):
        merge_order(openmmlab[:6])


def test_names_of_openmmlab():
    """By hand; tests of whole models are those of init_cfg."""
    pairs = {
        'patch_embed.projection.weight': 'patch_embed.proj.weight',
        'layers.0.ln1.weight': 'blocks.0.norm1.weight',
        'layers.11.attn.qkv.bias': 'blocks.11.attn.qkv.bias',
        'layers.0.attn.attn.in_proj_bias': 'blocks.0.attn.qkv.bias',
        'layers.0.attn.attn.out_proj.weight': 'blocks.0.attn.proj.weight',
        'layers.0.attn.gamma1.weight': 'blocks.0.ls1.gamma',
        'layers.0.ffn.layers.0.0.weight': 'blocks.0.mlp.fc1.weight',
        'layers.0.ffn.layers.1.bias': 'blocks.0.mlp.fc2.bias',
        'layers.0.ffn.gamma2.weight': 'blocks.0.ls2.gamma',
        'pre_norm.weight': 'norm_pre.weight', 'ln1.bias': 'norm.bias', 'ln2.bias': 'fc_norm.bias',
        'pos_embed': 'pos_embed', 'cls_token': 'cls_token',
    }
    state = {name: torch.zeros(2, 3, 4, 4) for name in pairs}
    assert list(to_timm(state)) == list(pairs.values())


def test_a_patch_embedding_without_bias():
    state = to_timm({'patch_embed.projection.weight': torch.ones(5, 3, 4, 4)})
    assert torch.equal(state['patch_embed.proj.bias'], torch.zeros(5))
    clip = to_timm({'patch_embed.projection.weight': torch.ones(5, 3, 4, 4),
                    'pre_norm.weight': torch.ones(5)})
    assert 'patch_embed.proj.bias' not in clip  # there timm has none either


def test_norms_of_a_swin():
    def norms(*stages: int) -> list[str]:
        state = {'patch_embed.projection.weight': torch.zeros(1, 3, 2, 2),
                 'patch_embed.projection.bias': torch.zeros(1), 'stages.0.x': torch.zeros(1),
                 **{f'norm{stage}.weight': torch.zeros(1) for stage in stages}}
        return [name for name in to_timm(state) if name.endswith('.weight')][1:]
    assert norms(0, 1, 2, 3) == [f'out_norms.{i}.weight' for i in range(4)]
    assert norms(1, 3) == ['out_norms.0.weight', 'out_norms.1.weight']
    assert norms(3) == ['norm.weight']
