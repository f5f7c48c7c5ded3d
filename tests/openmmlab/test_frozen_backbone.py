"""Frozen backbones from configs, checkpoints and timm."""
import pytest
import timm
import torch
from mmcv.transforms import TRANSFORMS
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope
from mmseg.structures import SegDataSample
from tiny_models import SWIN, VIT, build, classifier, segmentor

from locat_mmseg.openmmlab.frozen_backbone import (FrozenBackbone, from_config, from_timm,
                                                   normalize_for)

BATCH = dict(inputs=[torch.randint(256, (3, 32, 48), generator=torch.Generator().manual_seed(i))
                     .byte() for i in range(2)], data_samples=[SegDataSample()] * 2)


def config(scope, model, **extra):
    return Config(dict(default_scope=scope, model=model, **extra))


def save(model, path):
    torch.save(dict(state_dict=model.state_dict(), meta={}), path)
    return str(path)


@pytest.mark.parametrize('backbone', [VIT, SWIN], ids=['vit', 'swin'])
def test_a_classifier_is_read_as_it_predicts(tmp_path, backbone):
    cfg = config('mmpretrain', classifier(backbone))
    model = build('mmpretrain', classifier(backbone), seed=3).eval()
    frozen = from_config(cfg, save(model, tmp_path / 'a.pth'), with_neck=True)
    with torch.no_grad():
        images = model.data_preprocessor(BATCH, False)['inputs']
        expected, = model.extract_feat(images)
    found, samples = frozen.pooled(BATCH)
    assert not frozen.training and len(samples) == 2
    torch.testing.assert_close(found, expected)


def test_a_classifier_s_checkpoint_fits_a_segmentor_s_config(tmp_path):
    """Its blocks' outputs before the norm, without the class token."""
    model = build('mmpretrain', classifier(VIT), seed=3).eval()
    frozen = from_config(config('mmseg', segmentor(VIT)), save(model, tmp_path / 'a.pth'))
    images = frozen.preprocessor(BATCH, False)['inputs']
    with torch.no_grad():
        expected = model.backbone.model.forward_intermediates(
            images, indices=[1], intermediates_only=True)[0]
    maps, _ = frozen.patch_maps(BATCH)  # the segmentor has the first two blocks only
    assert maps.shape == (2, 24, 4, 6) and frozen.stride == 8
    torch.testing.assert_close(maps, expected)


@pytest.mark.parametrize('prefix', ['teacher.backbone.', 'teacher.backbone'])
def test_a_prefix_selects_a_part_of_the_checkpoint(tmp_path, prefix):
    model = build('mmpretrain', classifier(VIT), seed=3)
    weights = {f'teacher.{name}': weight for name, weight in model.state_dict().items()}
    torch.save(weights, tmp_path / 'a.pth')
    cfg = config('mmpretrain', classifier(VIT))
    frozen = from_config(cfg, str(tmp_path / 'a.pth'), prefix=prefix)
    for name, weight in model.backbone.state_dict().items():
        assert torch.equal(frozen.backbone.state_dict()[name], weight)


def test_a_neck_with_weights_is_loaded(tmp_path):
    kwargs = dict(pool='avg', norm=True)
    model = build('mmpretrain', classifier(VIT, **kwargs))
    torch.nn.init.normal_(model.neck.fc_norm.weight)
    cfg = config('mmpretrain', classifier(VIT, **kwargs))
    frozen = from_config(cfg, save(model, tmp_path / 'a.pth'), with_neck=True)
    assert torch.equal(frozen.neck.fc_norm.weight, model.neck.fc_norm.weight)
    other = {f'teacher.{name}': weight + 1 for name, weight in model.state_dict().items()}
    torch.save({**model.state_dict(), **other}, tmp_path / 'c.pth')
    teacher = from_config(cfg, str(tmp_path / 'c.pth'), 'teacher.backbone.', with_neck=True)
    assert torch.equal(teacher.neck.fc_norm.weight, model.neck.fc_norm.weight + 1)
    save(model.backbone, tmp_path / 'b.pth')
    with pytest.raises(ValueError, match='b.pth does not fit: .*PRRPool: Missing key.*fc_norm'):
        from_config(cfg, str(tmp_path / 'b.pth'), with_neck=True)


@pytest.mark.parametrize('other', [dict(VIT, img_size=64), dict(VIT, patch_size=4)])
def test_a_checkpoint_of_another_model_is_refused(tmp_path, other):
    path = save(build('mmpretrain', classifier(other)), tmp_path / 'a.pth')
    with pytest.raises(ValueError, match='GAug parameters of a|for patches of 4 x 4 pixels'):
        from_config(config('mmpretrain', classifier(VIT)), path)


FOREIGN = dict(type='VisionTransformer', img_size=(32, 48), patch_size=8, embed_dims=16,
               num_layers=2, num_heads=2, out_indices=(0, 1))


def test_a_backbone_of_mmseg(tmp_path):
    model = build('mmseg', FOREIGN, seed=3)
    model.eval()  # gives None here
    cfg = config('mmseg', dict(segmentor(VIT), backbone=FOREIGN))
    frozen = from_config(cfg, save(model, tmp_path / 'a.pth'), stage=0)
    images = frozen.preprocessor(BATCH, False)['inputs']
    with torch.no_grad():
        expected = model(images)
    torch.testing.assert_close(frozen.patch_maps(BATCH)[0], expected[0])
    assert frozen.stride == 8 and frozen.timm_model is None
    weights = model.state_dict()
    weights.pop('cls_token')
    torch.save(weights, tmp_path / 'b.pth')
    with pytest.raises(ValueError, match='b.pth does not fit: .*Missing key.*cls_token'):
        from_config(cfg, str(tmp_path / 'b.pth'))


def test_random_weights_are_announced():
    with pytest.warns(UserWarning, match='the features are those of random weights'):
        from_config(config('mmpretrain', classifier(VIT)))


def test_tokens_need_a_neck():
    model = dict(classifier(VIT), neck=None)
    with pytest.warns(UserWarning):
        frozen = from_config(config('mmpretrain', model), with_neck=True)
    with pytest.raises(ValueError, match=r"tokens of shape \(2, 25, 24\).*add neck=dict\(type="):
        frozen.pooled(BATCH)


# ---- timm ----

DATA = dict(train_dataloader=dict(dataset=dict(type='X', pipeline=[])), test_dataloader=dict(
    dataset=dict(type='X', pipeline=[dict(type='LoadImageFromFile'), dict(type='PackInputs')])))
PREPROCESSOR = dict(type='SegDataPreProcessor', mean=[1.] * 3, std=[2.] * 3, bgr_to_rgb=True)


def test_a_timm_model_with_its_own_mean_and_std(tmp_path):
    model = timm.create_model('vit_tiny_patch16_224', num_classes=5, dynamic_img_size=True)
    torch.save(model.state_dict(), tmp_path / 'a.pth')
    model.reset_classifier(0)
    model.patch_embed.dynamic_img_pad = True
    cfg = config('mmseg', dict(data_preprocessor=PREPROCESSOR), **DATA)
    frozen = from_timm('vit_tiny_patch16_224.augreg_in21k', str(tmp_path / 'a.pth'), cfg)
    images = (torch.stack(BATCH['inputs']).float()[:, [2, 1, 0]] / 255 - .5) / .5
    images = torch.nn.functional.pad(images, (0, 0, 0, 8))[:, :, :32]
    with torch.no_grad():
        expected = model.eval()(images)
    torch.testing.assert_close(frozen.pooled(BATCH)[0], expected, atol=1e-4, rtol=1e-4)
    assert frozen.patch_maps(BATCH)[0].shape == (2, 192, 2, 3) and frozen.stride == 16


@pytest.mark.parametrize('files', [False, True], ids=['arrays', 'files'])
@pytest.mark.parametrize('kind, key', [('ClsDataPreprocessor', 'to_rgb'), (
    'SegDataPreProcessor', 'bgr_to_rgb'), ('SegDataPreProcessor', 'rgb_to_bgr')])
@pytest.mark.parametrize('swaps', [False, True])
@pytest.mark.parametrize('to_rgb', [None, False, True])
def test_a_timm_model_gets_red_first(files, kind, key, swaps, to_rgb):
    """Whatever the config does with the channels."""
    red = torch.tensor([200., 100., 50.])[:, None, None].expand(3, 32, 32)
    normalize = [] if to_rgb is None else [dict(type='Normalize', mean=[1.] * 3, std=[2.] * 3,
                                                to_rgb=to_rgb)]
    load = [dict(type='LoadImageFromFile')] if files else []
    loader = dict(dataset=dict(type='X', pipeline=[*load, *normalize, dict(type='PackInputs')]))
    scope = 'mmseg' if kind.startswith('Seg') else 'mmpretrain'
    cfg = config(scope, dict(data_preprocessor={'type': kind, key: swaps}), test_dataloader=loader)
    init_default_scope(scope)
    model = timm.create_model('test_vit')
    model.pretrained_cfg.update(mean=(.1, .2, .3), std=(.4, .5, .6))
    preprocessor = MODELS.build(normalize_for(model, cfg))
    image = red.flip(0) if files else red
    for step in cfg.test_dataloader.dataset.pipeline:
        if step.type == 'Normalize':
            image = TRANSFORMS.build(step)(dict(img=image.permute(1, 2, 0).numpy().copy()))['img']
            image = torch.from_numpy(image).permute(2, 0, 1)
    images = preprocessor(dict(inputs=[image], data_samples=[SegDataSample()]), False)
    mean, std = (torch.tensor(values)[:, None, None] for values in ((.1, .2, .3), (.4, .5, .6)))
    torch.testing.assert_close(images['inputs'][0], (red / 255 - mean) / std, atol=1e-4, rtol=1e-4)


def test_a_pipeline_that_normalises_gets_timm_s_numbers():
    data = Config(DATA).to_dict()
    data['test_dataloader']['dataset']['pipeline'][0] = (
        dict(type='Normalize', mean=[1.] * 3, std=[2.] * 3, to_rgb=False))
    cfg = config('mmpretrain', dict(data_preprocessor=dict(num_classes=3)), **data)
    frozen = from_timm('resnet10t', 'random', cfg)
    normalize = cfg.test_dataloader.dataset.pipeline[0]
    assert normalize.mean == pytest.approx([123.675, 116.28, 103.53])
    assert normalize.std == pytest.approx([58.395, 57.12, 57.375])
    assert normalize.to_rgb is False
    assert not frozen.preprocessor._enable_normalize


@pytest.mark.parametrize('name', ['swin_tiny_patch4_window7_224', 'resnet10t'])
def test_other_families_of_timm(name):
    cfg = config('mmseg', dict(data_preprocessor=PREPROCESSOR), **DATA)
    frozen = from_timm(name, 'random', cfg)
    batch = dict(inputs=[torch.zeros(3, 64, 64)], data_samples=[SegDataSample()])
    assert frozen.patch_maps(batch)[0].shape[-2:] == (4, 4)
    assert frozen.pooled(batch)[0].ndim == 2


def test_a_timm_model_of_one_size():
    cfg = config('mmseg', dict(data_preprocessor=PREPROCESSOR), **DATA)
    frozen = from_timm('mixer_s32_224', 'random', cfg)
    for read in (frozen.pooled, frozen.patch_maps):
        with pytest.raises(ValueError, match='MlpMixer takes no images of 32 x 48 pixels .*224.*: '
                                             'set --img-size'):
            read(BATCH)


def test_rows_that_are_no_whole_number_of_pixels():
    class Odd(torch.nn.Conv2d):
        def forward(self, images):
            return (torch.zeros(1, 2, 15, 15), )
    frozen = FrozenBackbone(Odd(3, 2, 1), torch.nn.Identity())
    with pytest.raises(ValueError, match='the backbone makes 15 rows of 224 pixels'):
        frozen.stride
