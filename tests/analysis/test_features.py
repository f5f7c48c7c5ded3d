"""Features of timm models against hooks on their blocks."""
import pytest
import timm
import torch
from tiny_timm import strengthen, tiny, tiny_swin, tiny_vit
from torch import nn

from locat_mmseg.addon import add_gaug
from locat_mmseg.analysis.features import (default_stage, num_stages, patch_features,
                                           pooled_features, stage_features, stride_of)

IMAGES = torch.randn(2, 3, 64, 96, generator=torch.Generator().manual_seed(0))


def output_of(model, module, images):
    """What a module of the model gives in a forward pass."""
    seen = []
    handle = module.register_forward_hook(lambda module, args, output: seen.append(output))
    with torch.no_grad():
        model.eval()(images)
    handle.remove()
    return seen[0]


@pytest.mark.parametrize('gaug', [False, True])
@pytest.mark.parametrize('kwargs', [{}, dict(reg_tokens=4)], ids=['vit', 'regvit'])
def test_a_vit_gives_its_last_block_before_the_norm(gaug, kwargs):
    model = tiny_vit(**kwargs)
    nn.init.normal_(model.norm.weight)
    if gaug:
        strengthen(add_gaug(model))
    tokens = output_of(model, model.blocks[-1], IMAGES)[:, model.num_prefix_tokens:]
    with torch.no_grad():
        maps = patch_features(model, IMAGES)
        first = patch_features(model, IMAGES, stage=0)
    assert maps.shape == (2, 48, 4, 6) and stride_of(model) == 16
    torch.testing.assert_close(maps.flatten(2).transpose(1, 2), tokens)
    tokens = output_of(model, model.blocks[0], IMAGES)[:, model.num_prefix_tokens:]
    torch.testing.assert_close(first.flatten(2).transpose(1, 2), tokens)


def test_a_swin_gives_its_last_stage_but_one():
    model = tiny_swin(depths=(1, 1, 1, 1), num_heads=(2, 2, 2, 2))
    images = IMAGES[..., :56, :56]
    with torch.no_grad():
        maps = patch_features(model, images)
    stage = output_of(model, model.layers[2], images)
    torch.testing.assert_close(maps, stage.permute(0, 3, 1, 2))
    assert (default_stage(model), stride_of(model), stride_of(model, 0)) == (2, 16, 4)


def test_a_convolutional_pyramid():
    model = timm.create_model('resnet10t', num_classes=0)
    with torch.no_grad():
        maps = patch_features(model.eval(), IMAGES)
    assert maps.shape == (2, 256, 4, 6) and stride_of(model) == 16


def test_all_stages_of_a_pruned_model():
    model = tiny_vit(depth=3)
    model.prune_intermediate_layers([1], prune_norm=True)
    assert num_stages(model) == 2 and default_stage(model) == 1
    with torch.no_grad():
        maps = stage_features(model, IMAGES)
    assert len(maps) == 2
    torch.testing.assert_close(maps[1], patch_features(model, IMAGES))


@pytest.mark.parametrize('name', ['vit_tiny_patch16_224', 'vit_small_patch14_reg4_dinov2',
                                  'eva02_tiny_patch14_224'])
def test_pooled_is_what_the_classifier_sees(name):
    model = tiny(name, img_size=56 if '14' in name else 64, num_classes=7).eval()
    images = IMAGES[..., :model.patch_embed.img_size[0], :model.patch_embed.img_size[1]]
    with torch.no_grad():
        torch.testing.assert_close(model.head(pooled_features(model, images)), model(images))


def test_no_such_stage():
    with pytest.raises(ValueError, match='stage 2 of a VisionTransformer of 2 blocks or stages: '
                                         'expected -2 to 1'):
        patch_features(tiny_vit(), IMAGES, stage=2)


def test_a_model_without_features():
    model = nn.Linear(1, 1)
    with pytest.raises(ValueError, match='Linear has no forward_intermediates'):
        stage_features(model, IMAGES)
