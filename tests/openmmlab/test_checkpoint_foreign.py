"""Checkpoints of other projects through init_cfg: our backbone computes what theirs computes."""
from collections.abc import Callable
from pathlib import Path

import mmpretrain.models.backbones as mmpretrain
import mmseg.models.backbones as mmseg
import pytest
import torch
from tiny_timm import randomize
from torch import Tensor, nn

from locat_mmseg.openmmlab.backbones import LocAtSwin, LocAtTIMM, LocAtViT, TimmBackbone
from locat_mmseg.openmmlab.checkpoint import load_backbone

SIZE = (32, 48)
ARCH = dict(embed_dims=24, num_layers=3, num_heads=3)
SWIN = dict(embed_dims=12, depths=(2, 2), num_heads=(3, 3))
TIMM = dict(img_size=SIZE, patch_size=8, embed_dim=24, depth=3, num_heads=3)


def save(model: nn.Module, path: Path) -> str:
    """As a project's Runner saves it: a model with a backbone and a head."""
    weights = {f'backbone.{name}': weight for name, weight in model.state_dict().items()}
    torch.save(dict(meta={}, state_dict={**weights, 'head.fc.bias': torch.ones(2)}), path)
    return str(path)


def compare(theirs: nn.Module, ours: TimmBackbone, path: Path,
            translate: Callable[[Tensor], Tensor] = lambda x: x) -> None:
    """Random weights of theirs, saved, loaded into ours: equal outputs on random images."""
    randomize(theirs).eval()
    report = load_backbone(ours.eval(), save(theirs, path), 'backbone.')
    assert not report.missing and not report.unexpected and not report.resampled
    x = torch.randn(2, 3, *SIZE, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected, actual = theirs(x), ours(x)
    assert len(expected) == len(actual)
    for a, b in zip(actual, expected):
        torch.testing.assert_close(a, translate(b), rtol=1e-4, atol=1e-4)


def mmpretrain_vit(cls: type = mmpretrain.VisionTransformer, **kwargs) -> nn.Module:
    return cls(dict(ARCH, feedforward_channels=96), img_size=SIZE, patch_size=8,
               **{'out_type': 'raw', **kwargs})


def mmseg_vit(**kwargs) -> nn.Module:
    return mmseg.VisionTransformer(SIZE, 8, embed_dims=24, num_layers=3, num_heads=3,
                                   norm_cfg=dict(type='LN', eps=1e-6), **kwargs)


def vit(**kwargs) -> LocAtViT:
    return LocAtViT(ARCH, img_size=SIZE, patch_size=8, **{'gaug': False, **kwargs})


def swin(**kwargs) -> LocAtSwin:
    return LocAtSwin(SWIN, img_size=SIZE, patch_size=2, window_size=4,
                     **{'gaug': False, 'out_indices': (0, 1), **kwargs})


def dinov2(name: str) -> LocAtTIMM:
    return LocAtTIMM(name, TIMM, gaug=False, out_type='tokens')


VITS = {
    'tokens': (mmpretrain_vit, lambda: vit(out_type='tokens')),
    'maps': (lambda: mmpretrain_vit(out_type='featmap', out_indices=[0, 2], final_norm=False),
             lambda: vit(out_indices=(0, 2))),
    'average pooling': (lambda: mmpretrain_vit(with_cls_token=False, final_norm=False),
                        lambda: vit(class_token=False, final_norm=False, out_type='tokens')),
    'layer scale': (lambda: mmpretrain_vit(layer_scale_init_value=1.),
                    lambda: dinov2('vit_small_patch14_dinov2')),
    'SwiGLU': (lambda: mmpretrain_vit(layer_scale_init_value=1.,
                                      layer_cfgs=dict(ffn_type='swiglu_fused')),
               lambda: dinov2('vit_giant_patch14_dinov2')),
    'distilled DeiT': (lambda: mmpretrain_vit(mmpretrain.DistilledVisionTransformer),
                       lambda: dinov2('deit_tiny_distilled_patch16_224')),
    'CLIP': (lambda: mmpretrain_vit(pre_norm=True),
             lambda: LocAtTIMM('vit_base_patch16_clip_224', dict(TIMM, norm_layer=None),
                               gaug=False, out_type='tokens')),
    'mmseg without patch bias': (lambda: mmseg_vit(out_indices=(0, 1, 2)),
                                 lambda: vit(out_indices=(0, 1, 2))),
    'mmseg with patch bias': (lambda: mmseg_vit(out_indices=(1, 2), patch_bias=True),
                              lambda: vit(out_indices=(1, 2))),
}


@pytest.mark.parametrize('name', VITS)
def test_vit(name: str, tmp_path: Path):
    theirs, ours = (build() for build in VITS[name])
    compare(theirs, ours, tmp_path / 'their.pth')


def test_mmseg_swin(tmp_path: Path):
    """With the norm after each stage; all its maps are larger than a window."""
    theirs = mmseg.SwinTransformer(64, embed_dims=12, patch_size=2, window_size=4, depths=(2, 2),
                                   num_heads=(3, 3), strides=(2, 2), out_indices=(0, 1))
    compare(theirs, swin(), tmp_path / 'their.pth')


def test_mmpretrain_swin(tmp_path: Path):
    """Its only norm is the final one."""
    arch = dict(SWIN, depths=[2, 2], num_heads=[3, 3])
    theirs = mmpretrain.SwinTransformer(arch, SIZE, 2, window_size=4, out_indices=(1, ))
    compare(theirs, swin(out_type='tokens'), tmp_path / 'their.pth',
            lambda x: x.flatten(2).transpose(1, 2))


def test_only_gaug_is_missing(tmp_path: Path):
    backbone = vit(gaug=True)
    report = load_backbone(backbone, save(mmpretrain_vit(), tmp_path / 'their.pth'), 'backbone.')
    assert report.missing == sorted(name.removeprefix('model.') for name in backbone.state_dict()
                                    if '.gaug.' in name)
    assert len(report.missing) == 12
    assert set(report.unused) == {'norm.weight', 'norm.bias', 'head.fc.bias'}


def test_tables_and_positions_of_another_size_are_resampled(tmp_path: Path):
    theirs = mmseg.SwinTransformer(64, embed_dims=12, patch_size=2, window_size=4, depths=(2, 2),
                                   num_heads=(3, 3), strides=(2, 2), out_indices=(0, 1))
    backbone = LocAtSwin(SWIN, img_size=64, patch_size=2, window_size=6, out_indices=(0, 1))
    report = load_backbone(backbone, save(theirs, tmp_path / 'swin.pth'), 'backbone.')
    assert [text.rpartition('table ')[2] for text in report.resampled] \
        == ['(49, 3) -> (121, 3)'] * 4
    their_vit = mmpretrain.VisionTransformer(dict(ARCH, feedforward_channels=96), 32, 8)
    report = load_backbone(vit(gaug=True), save(their_vit, tmp_path / 'vit.pth'), 'backbone.')
    assert report.resampled == ['pos_embed (1, 17, 24) -> (1, 25, 24)']


@pytest.mark.parametrize('theirs', [
    lambda: mmpretrain.ResNet(18, stem_channels=8, base_channels=8), mmpretrain_vit,
    lambda: mmseg.MixVisionTransformer(embed_dims=8, num_layers=[1] * 4)])
def test_a_file_of_another_model_is_refused(theirs: Callable[[], nn.Module], tmp_path: Path):
    backbone = swin(gaug=True)
    before = {name: weight.clone() for name, weight in backbone.state_dict().items()}
    with pytest.raises(ValueError, match='not of this SwinTransformer|of another shape'):
        load_backbone(backbone, save(theirs(), tmp_path / 'other.pth'), 'backbone.')
    assert all(torch.equal(w, before[name]) for name, w in backbone.state_dict().items())


def test_norms_of_other_stages_are_refused(tmp_path: Path):
    theirs = mmseg.SwinTransformer(64, embed_dims=12, patch_size=2, window_size=4, depths=(2, 2),
                                   num_heads=(3, 3), strides=(2, 2), out_indices=(0, 1))
    file = save(theirs, tmp_path / 'a.pth')
    with pytest.raises(ValueError, match='In the file but not in the model: out_norms.0.bias, out'):
        load_backbone(swin(out_norm=False), file, 'backbone.')
    with pytest.raises(ValueError, match=r'shape are out_norms.0.bias \(12,\) instead of \(24,\)'):
        load_backbone(swin(out_indices=1), file, 'backbone.')
    three = LocAtSwin(dict(embed_dims=12, depths=(1, 1, 1), num_heads=(3, 3, 3)), img_size=32,
                      patch_size=2, window_size=4, out_indices=(1, 2))
    state = {name: weight for name, weight in three.state_dict().items()
             if not name.startswith('out_norms.1.')}
    torch.save(state, tmp_path / 'b.pth')
    with pytest.raises(ValueError, match='other out_indices: its norms lack out_norms.1.bias, out'):
        load_backbone(three, str(tmp_path / 'b.pth'))


# --- DINO and DINOv2 -----------------------------------------------------------------------------

@pytest.mark.parametrize('wrap', ['module.backbone.', 'backbone.'])
def test_dino_teacher(wrap: str, tmp_path: Path):
    """A checkpoint of DINO's training: the teacher is taken, not the student."""
    teacher, student = randomize(vit(out_type='tokens')), randomize(vit(out_type='tokens'), 1)
    file = tmp_path / 'checkpoint.pth'
    torch.save({key: {**{wrap + name.removeprefix('model.'): weight
                         for name, weight in model.state_dict().items()},
                      wrap.replace('backbone', 'head') + 'last_layer.weight_v': torch.ones(2)}
                for key, model in (('student', student), ('teacher', teacher))}
               | dict(epoch=3, optimizer={}), file)
    backbone = vit(gaug=True, out_type='tokens')
    report = load_backbone(backbone, str(file), 'backbone.')
    assert report.unused == ['head.last_layer.weight_v'] and len(report.missing) == 12
    assert all(torch.equal(weight, teacher.state_dict()[name])
               for name, weight in backbone.state_dict().items() if '.gaug.' not in name)
    with pytest.raises(ValueError, match="is a whole model; .*prefix='backbone.'"):
        load_backbone(backbone, str(file))


def test_dinov2_teacher(tmp_path: Path):
    """In chunks of blocks, with the token of masked training and two heads."""
    source = randomize(dinov2('vit_small_patch14_dinov2'))
    teacher = {}
    for name, weight in source.model.state_dict().items():
        teacher['backbone.' + name.replace('blocks.', 'blocks.0.')] = weight
    torch.save(dict(teacher={**teacher, 'backbone.mask_token': torch.zeros(1, 24),
                             'dino_head.last_layer.weight_v': torch.ones(2),
                             'ibot_head.mlp.0.bias': torch.ones(2)}), tmp_path / 'teacher.pth')
    backbone = LocAtTIMM('vit_small_patch14_dinov2', TIMM, out_type='tokens')
    report = load_backbone(backbone, str(tmp_path / 'teacher.pth'), 'backbone.')
    assert set(report.unused) == {'mask_token', 'dino_head.last_layer.weight_v',
                                  'ibot_head.mlp.0.bias'}
    assert all(torch.equal(weight, source.state_dict()[name])
               for name, weight in backbone.state_dict().items() if '.gaug.' not in name)
