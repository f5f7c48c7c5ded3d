"""What strict=False allows, patch embeddings for other channels, other families of timm."""
import copy

import pytest
import timm
import torch
from tiny_timm import random_weights, tiny_swin, tiny_vit
from torch import nn

from locat_mmseg.addon import add_gaug, load_weights


def vit(**kwargs) -> nn.Module:
    """With GAug, on 4 x 4 patches of 16 pixels."""
    return add_gaug(tiny_vit(**kwargs))


# --- channels of the patch embedding -------------------------------------------------------------

@pytest.mark.parametrize('half', [False, True])
def test_a_patch_embedding_for_rgb_serves_other_channels(half: bool):
    """Repeated and scaled to the same sum over a grey picture; one channel takes the sum."""
    source = random_weights(vit())
    if half:
        source = {name: weight.half() for name, weight in source.items()}
    kernel = source['patch_embed.proj.weight'].float()
    for channels, expected in [(1, kernel.sum(1, keepdim=True)), (2, kernel[:, :2] * 3 / 2),
                               (5, kernel[:, [0, 1, 2, 0, 1]] * 3 / 5)]:
        model = vit(in_chans=channels)
        report = load_weights(model, source)
        torch.testing.assert_close(model.patch_embed.proj.weight.data, expected,
                                   **(dict(rtol=1e-3, atol=1e-3) if half else {}))
        assert report.resampled == [
            f'patch_embed.proj.weight (48, 3, 16, 16) -> (48, {channels}, 16, 16)']


def test_a_patch_embedding_for_other_channels_is_refused():
    with pytest.raises(ValueError, match='for images of 4 channels, the model takes 3'):
        load_weights(vit(), random_weights(vit(in_chans=4)))


# --- strict=False --------------------------------------------------------------------------------

def test_on_purpose_anything_may_be_missing_or_unexpected():
    source, model = random_weights(tiny_vit(depth=1)), tiny_vit()
    source['extra'] = source.pop('norm.weight')
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(ValueError, match='load what fits on purpose with strict=False'):
        load_weights(model, source)
    report = load_weights(model, source, may_leave={'unheard'}, strict=False)
    assert report.unexpected == ['extra'] and not report.unused
    block = [name for name in before if name.startswith('blocks.1.')]
    assert report.missing == sorted([*block, 'norm.weight'])
    for name, weight in model.state_dict().items():
        assert torch.equal(weight, before[name] if name in report.missing else source[name]), name
    assert 'unexpected: extra; not used: none' in str(report)


def test_on_purpose_gaug_may_go_but_its_grid_must_be_right():
    report = load_weights(tiny_vit(), random_weights(vit()), strict=False)
    assert len(report.unexpected) == 8 and all('.gaug.' in name for name in report.unexpected)
    with pytest.raises(ValueError, match='GAug parameters of a 4 x 4 grid'):
        load_weights(vit(img_size=128, depth=1), random_weights(vit()), strict=False)
    with pytest.raises(ValueError, match='patches of 16 x 16 pixels'):
        load_weights(vit(patch_size=8, img_size=32), random_weights(vit()), strict=False)
    with pytest.raises(ValueError, match='cls_token has shape'):
        load_weights(tiny_vit(), {'cls_token': torch.zeros(1, 1, 24)}, strict=False)


def test_something_must_fit():
    with pytest.raises(ValueError, match='not of this VisionTransformer'):
        load_weights(vit(), {'conv1.weight': torch.zeros(3)}, strict=False)


def test_indices_and_mask_tokens_are_no_weights():
    index = 'layers.0.blocks.0.attn.relative_position_index'
    source = {**random_weights(tiny_swin()), index: torch.zeros(2), 'mask_token': torch.zeros(1)}
    assert load_weights(tiny_swin(), source).unused == [index, 'mask_token']


# --- other families ------------------------------------------------------------------------------

def test_a_cnn_may_lack_the_counters_of_its_norms_only():
    model = timm.create_model('resnet10t')
    weights = random_weights(model)
    counters = [name for name in weights if name.endswith('num_batches_tracked')]
    report = load_weights(model, {name: weight for name, weight in weights.items()
                                  if name not in counters})
    assert report.missing == sorted(counters)
    assert torch.equal(model.state_dict()['fc.weight'], weights['fc.weight'])
    del weights['bn1.running_mean']
    with pytest.raises(ValueError, match='not of this ResNet.*in the file: bn1.running_mean. Bui'):
        load_weights(model, weights)


def test_position_embeddings_of_other_families_are_not_resampled():
    small, large = (timm.create_model('pit_ti_224', img_size=size, base_dims=(8, 8, 8),
                                      depth=(1, 1, 1)) for size in (64, 96))
    with pytest.raises(ValueError, match='pos_embed has shape .* in the file and'):
        load_weights(small, large.state_dict())
