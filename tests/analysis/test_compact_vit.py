"""The classifier that needs no OpenMMLab is that of the configs."""
import pytest
import torch
from protocol_twins import batch, build, config_of, timm_names, twins

from locat_mmseg.analysis.compact_vit import ARCHITECTURES, build_compact_vit
from locat_mmseg.analysis.features import pooled_features


@pytest.mark.parametrize('architecture', ARCHITECTURES)
def test_parameters_are_those_of_the_config(architecture):
    theirs = timm_names(build(config_of(architecture, 'baseline')))
    ours = build_compact_vit(100, **ARCHITECTURES[architecture])
    assert {name: p.shape for name, p in ours.named_parameters()} == {
        name: p.shape for name, p in theirs.items()}


@pytest.mark.parametrize('architecture', ARCHITECTURES)
def test_logits_and_features_are_those_of_the_config(architecture):
    _, theirs, ours = twins(architecture, 'baseline')
    images = torch.randn(3, 3, 32, 32)
    pooled, = theirs.extract_feat(images)
    torch.testing.assert_close(pooled_features(ours, images), pooled)
    torch.testing.assert_close(ours(images), theirs.head((pooled, )))
    if 'prr' in ARCHITECTURES[architecture]:  # what PRR does can be seen
        assert (pooled - ours.norm(ours.forward_features(images))[:, 0]).abs().max() > 1e-2


def test_backbone_of_a_config_loads_the_weights(tmp_path):
    _, theirs, ours = twins('locatvit', 'baseline')
    torch.save(ours.state_dict(), tmp_path / 'weights.pth')
    for parameter in theirs.backbone.parameters():
        parameter.data.zero_()
    theirs.backbone.init_cfg = dict(type='Pretrained', checkpoint=str(tmp_path / 'weights.pth'))
    theirs.backbone.init_weights()
    images = batch(2)[0].float()
    torch.testing.assert_close(theirs.extract_feat(images)[0], pooled_features(ours, images))


def test_one_seed_gives_the_same_plain_weights():
    models = []
    for name in ('vit', 'vit-prr', 'locatvit'):
        torch.manual_seed(3)
        models.append(build_compact_vit(10, **ARCHITECTURES[name]).state_dict())
    for model in models[1:]:
        assert all(torch.equal(model[name], weight) for name, weight in models[0].items())


@pytest.mark.parametrize('architecture', ['vit', 'locatvit'])
def test_unfused_attention_is_the_same(architecture):
    switches = ARCHITECTURES[architecture]
    models = []
    for fused_attn in (True, False):
        torch.manual_seed(0)
        models.append(build_compact_vit(10, fused_attn=fused_attn, **switches))
        assert all(block.attn.fused_attn == fused_attn for block in models[-1].blocks)
    images = torch.randn(2, 3, 32, 32)
    torch.testing.assert_close(models[0](images), models[1](images))
