"""The configs hold the numbers of their recipes."""
import math
import re

import mmpretrain.datasets  # noqa: F401
import mmpretrain.models  # noqa: F401
import mmseg.datasets
import numpy as np
import pytest
import torch
from config_helpers import leaves_in, load
from mmcv.transforms import Compose
from mmengine.registry import MODELS, DefaultScope

HALF = ([127.5] * 3, [127.5] * 3)
IMAGENET = ([123.675, 116.28, 103.53], [58.395, 57.12, 57.375])
# data set: classes, crop, scale of the test, iterations of UPerNet
SEGMENTATION = {'ade20k': (150, 512, (2048, 512), 160000),
                'pascal-context59': (59, 480, (520, 520), 80000),
                'coco-stuff164k': (171, 512, (2048, 512), 160000)}
VIT_WIDTHS = dict(t=192, s=384, b=768)
SWIN_WIDTHS = dict(t=[96, 192, 384, 768], b=[128, 256, 512, 1024])
UPERNET = leaves_in('locat') + leaves_in('baseline')
PROBE = leaves_in('probe') + leaves_in('probe/ablation')
PRETRAIN = leaves_in('pretrain') + leaves_in('pretrain/ablation')


def data_of(name: str) -> str:
    return name.rpartition('_')[2]


def widths_of(name: str) -> list[int]:
    """Channels of the four maps of a backbone."""
    size = re.search('(?:vit|jumbo|swin)-([tsb])_', name)[1]
    return SWIN_WIDTHS[size] if 'swin' in name else [VIT_WIDTHS[size]] * 4


def normalisation(name: str) -> tuple[list[float], list[float]]:
    """Mean and standard deviation of pre-training: ImageNet's for Swin and RoPE, else 0.5."""
    return IMAGENET if 'swin' in name or 'rope' in name else HALF


def step_of(pipeline: list[dict], kind: str) -> dict:
    return next(step for step in pipeline if step['type'] == kind)


@pytest.mark.parametrize('name', UPERNET + PROBE)
def test_segmentation_data(name):
    cfg = load(name)
    classes, crop, scale, _ = SEGMENTATION[data_of(name)]
    dataset = getattr(mmseg.datasets, cfg.train_dataloader.dataset.type)
    assert len(dataset.METAINFO['classes']) == classes
    heads = [cfg.model[key] for key in ('decode_head', 'auxiliary_head') if key in cfg.model]
    assert {head.num_classes for head in heads} == {classes}
    train = cfg.train_dataloader.dataset.pipeline
    assert step_of(train, 'RandomCrop') == dict(
        type='RandomCrop', crop_size=(crop, crop), cat_max_ratio=0.75)
    assert step_of(train, 'RandomResize') == dict(
        type='RandomResize', scale=scale, ratio_range=(0.5, 2.0), keep_ratio=True)
    assert [step.type for step in train[-3:]] == [
        'RandomFlip', 'PhotoMetricDistortion', 'PackSegInputs']
    preprocessor = cfg.model.data_preprocessor
    assert preprocessor.size == (crop, crop) and preprocessor.bgr_to_rgb
    assert (preprocessor.mean, preprocessor.std) == normalisation(name)
    assert (preprocessor.pad_val, preprocessor.seg_pad_val) == (0, 255)
    test = cfg.test_dataloader.dataset
    assert step_of(test.pipeline, 'Resize') == dict(type='Resize', scale=scale, keep_ratio=True)
    assert cfg.test_dataloader == cfg.val_dataloader and cfg.test_dataloader.batch_size == 1
    assert cfg.model.test_cfg.mode == 'whole'
    resizes, flips = step_of(cfg.tta_pipeline, 'TestTimeAug').transforms[:2]
    assert [step.scale[1] / scale[1] for step in resizes] == [0.5, 0.75, 1.0, 1.25, 1.5, 1.75]
    assert [step.prob for step in flips] == [0., 1.]


@pytest.mark.parametrize('name', UPERNET)
def test_upernet_recipe(name):
    cfg = load(name)
    iterations = SEGMENTATION[data_of(name)][-1]
    assert cfg.train_cfg.max_iters == iterations and cfg.train_cfg.type == 'IterBasedTrainLoop'
    assert cfg.optim_wrapper.optimizer == dict(
        type='AdamW', lr=6e-5, betas=(0.9, 0.999), weight_decay=0.01)
    assert cfg.train_dataloader.batch_size == 2 and cfg.auto_scale_lr.base_batch_size == 16
    warmup, poly = cfg.param_scheduler
    assert (warmup.type, warmup.start_factor, warmup.begin, warmup.end) == (
        'LinearLR', 1e-6, 0, 1500)
    assert (poly.type, poly.power, poly.eta_min, poly.begin, poly.end) == (
        'PolyLR', 1., 0., 1500, iterations)
    model = cfg.model
    assert model.decode_head.pool_scales == (1, 2, 3, 6) and model.decode_head.channels == 512
    assert model.decode_head.dropout_ratio == 0.1 and model.decode_head.norm_cfg.type == 'SyncBN'
    assert model.auxiliary_head.type == 'FCNHead'
    assert model.auxiliary_head.loss_decode.loss_weight == 0.4
    widths = widths_of(name)
    if 'swin' in name:
        assert model.backbone.out_indices == (0, 1, 2, 3) and model.backbone.out_norm
        assert model.backbone.drop_path_rate == 0.3 and 'neck' not in model
        assert (model.auxiliary_head.in_index, model.auxiliary_head.in_channels) == (2, widths[2])
    else:
        assert model.backbone.out_indices == (2, 5, 8, 11) and model.backbone.drop_path_rate == 0.
        assert model.neck == dict(type='MultiLevelNeck', scales=[4, 2, 1, 0.5],
                                  in_channels=widths, out_channels=widths[0])
        assert (model.auxiliary_head.in_index, model.auxiliary_head.in_channels) == (3, widths[3])
    assert model.decode_head.in_channels == widths


@pytest.mark.parametrize('name', PROBE)
def test_probe_recipe(name):
    cfg = load(name)
    assert cfg.train_cfg.max_iters == 20000 and cfg.train_dataloader.batch_size == 32
    assert cfg.optim_wrapper == dict(type='OptimWrapper', optimizer=dict(
        type='AdamW', lr=1e-3, betas=(0.9, 0.999), weight_decay=0.01))
    head, backbone = cfg.model.decode_head, cfg.model.backbone
    assert (head.type, head.num_convs, head.kernel_size, head.channels, head.concat_input,
            head.dropout_ratio) == ('FCNHead', 1, 1, 512, False, 0.)
    assert head.norm_cfg == dict(type='GN', num_groups=1) and head.act_cfg == dict(type='GELU')
    assert 'neck' not in cfg.model and 'auxiliary_head' not in cfg.model
    assert head.in_channels == widths_of(name)[-1]
    if 'swin' in name:
        assert (backbone.out_indices, backbone.frozen_stages) == ((3, ), 4)
        assert backbone.out_norm is False
    else:
        assert (backbone.out_indices, backbone.frozen_stages) == (-1, 12)


@pytest.mark.parametrize('name', PRETRAIN)
def test_pretraining_recipe(name):
    cfg, data = load(name), data_of(name)
    classes = {'in1k': 1000, 'mini-imagenet': 100, 'cifar100': 100}[data]
    assert cfg.data_preprocessor.num_classes == cfg.model.head.num_classes == classes
    epochs, warmup, lr = (600, 120, 5e-4) if data == 'mini-imagenet' else (300, 20, 1e-3)
    assert cfg.train_cfg.max_epochs == epochs and cfg.auto_scale_lr.base_batch_size == 1024
    assert cfg.train_dataloader.batch_size * 8 == 1024
    assert cfg.optim_wrapper.optimizer == dict(
        type='AdamW', lr=lr, betas=(0.9, 0.999), weight_decay=0.05)
    assert cfg.optim_wrapper.clip_grad == dict(max_norm=5.0)
    assert cfg.optim_wrapper.type == 'OptimWrapper'
    assert [item.end for item in cfg.param_scheduler] == [warmup, epochs]
    assert cfg.param_scheduler[0].start_factor * lr == pytest.approx(1e-7)
    size, width = name.split('/')[-1].split('_')[0][-1], widths_of(name)[-1]
    assert cfg.model.backbone.drop_path_rate == dict(t=0.1, s=0.2, b=0.4)[size]
    assert cfg.model.neck.embed_dims == width
    class_tokens = 6 if 'jumbo' in name else 1
    assert cfg.model.neck.get('num_class_tokens', 1) == class_tokens
    assert cfg.model.head.in_channels == class_tokens * width
    assert cfg.model.neck.num_heads * (32 if 'swin' in name else 64) == width
    assert cfg.model.train_cfg.augments == [
        dict(type='Mixup', alpha=0.8), dict(type='CutMix', alpha=1.0)]
    assert cfg.model.head.loss == dict(
        type='LabelSmoothLoss', label_smooth_val=0.1, mode='original')
    if 'jumbo' in name:
        init = cfg.model.head.init_cfg
        assert (init.type, init.val, init.layer) == ('Constant', 0, 'Linear') and len(init) == 4
        assert init.bias == pytest.approx(-math.log(classes), abs=1e-4)
    else:
        assert cfg.model.head.init_cfg.std == pytest.approx(2e-5 if 'rope' in name else 0.02)
    assert cfg.get('find_unused_parameters', False) == ('jumbo' in name)
    assert cfg.model.neck.num_prefix_tokens == (
        0 if 'swin' in name or 'avgpool' in name else 5 if 'regvit' in name else class_tokens)
    check_pretraining_images(cfg, name, data)


def check_pretraining_images(cfg, name: str, data: str) -> None:
    backbone, train = cfg.model.backbone, cfg.train_dataloader.dataset.pipeline
    test = cfg.test_dataloader.dataset.pipeline
    mean, std = normalisation(name)
    if data == 'cifar100':
        assert (backbone.img_size, backbone.patch_size) == (32, 2 if 'swin' in name else 4)
        assert backbone.get('window_size') == (4 if 'swin' in name else None)
        assert step_of(train, 'RandomCrop') == dict(type='RandomCrop', crop_size=32, padding=4)
    else:
        crops = [branch[0] for branch in step_of(train, 'RandomChoice').transforms]
        assert [crop.interpolation for crop in crops] == ['bilinear', 'bicubic']
        assert {(crop.type, crop.scale, crop.crop_ratio_range) for crop in crops} == {
            ('RandomResizedCrop', 224, (0.08, 1.0))}
        assert (step_of(test, 'ResizeEdge').scale, step_of(test, 'ResizeEdge').edge,
                step_of(test, 'ResizeEdge').interpolation) == (248, 'short', 'bicubic')
        assert step_of(test, 'CenterCrop').crop_size == 224
    kinds = [step.type for step in train]
    for pipeline in (train, test):
        normalize = step_of(pipeline, 'Normalize')
        assert (normalize.mean, normalize.std) == (mean, std)
        assert normalize.to_rgb == (data != 'cifar100')  # that data set holds RGB images
    assert kinds.index('torchvision/RandomErasing') > kinds.index('Normalize')
    augments = [branch[0] for branch in train[kinds.index('Normalize') - 1].transforms]
    fill = [round(value) for value in (mean if data == 'cifar100' else mean[::-1])]
    assert augments == [
        dict(type='RandAugment', policies='timm_increasing', num_policies=2, magnitude_level=9,
             magnitude_std=0.5, hparams=dict(pad_val=fill, interpolation=method))
        for method in ('bilinear', 'bicubic')]


def test_random_erasing_fills_one_box_with_normal_noise():
    """After normalisation, so that the noise is not clipped to what a pixel can hold."""
    pipeline = load('pretrain/vit-t_in1k').train_dataloader.dataset.pipeline
    start = [step.type for step in pipeline].index('Normalize')
    with DefaultScope.overwrite_default_scope('mmpretrain'):
        steps = Compose(pipeline[start:-1])
    torch.manual_seed(0)
    images = [steps(dict(img=np.full((40, 60, 3), 51, np.uint8)))['img'] for _ in range(400)]
    plain = torch.tensor(51 / 127.5 - 1)
    noise, erased = [], 0
    for image in images:
        box = (image - plain).abs().amax(0) > 1e-6
        if box.any():
            erased += 1
            height, width = box.any(1).sum().item(), box.any(0).sum().item()
            assert box.sum() == height * width
            assert 0.015 < height * width / box.numel() < 0.35
            assert 0.25 < height / width < 4
            noise.append(image[:, box].flatten())
    assert 0.19 < erased / len(images) < 0.31
    noise = torch.cat(noise)
    assert noise.mean().abs() < 0.02 and (noise.std() - 1).abs() < 0.02
    assert noise.min() < -3 and noise.max() > 3


def test_loss_smooths_the_mixed_target():
    with DefaultScope.overwrite_default_scope('mmpretrain'):
        loss = MODELS.build(load('pretrain/vit-t_in1k').model.head.loss)
    scores = torch.tensor([[2., 0.5, -1., 0.]])
    mixed = torch.tensor([[0.7, 0., 0.3, 0.]])
    target = torch.tensor([[0.7 * 0.9 + 0.025, 0.025, 0.3 * 0.9 + 0.025, 0.025]])
    torch.testing.assert_close(loss(scores, mixed), -(target * scores.log_softmax(-1)).sum())


@pytest.mark.parametrize('name', leaves_in('dino'))
def test_dino_recipe(name):
    cfg, large = load(name), 'in1k' in name
    model, loss = cfg.model, cfg.model.loss
    assert (model.get('num_global_crops', 2), model.base_momentum) == (2, 0.004)
    assert (loss.student_temp, loss.center_momentum) == (0.1, 0.9)
    warmup = (0.04, 0.07, 30) if 'cifar100' in name else (0.04, 0.04, 0)
    assert (loss.get('initial_teacher_temp', 0.04), loss.teacher_temp,
            loss.get('warmup_epochs', 0)) == warmup
    assert (model.head.hidden_channels, model.head.bottleneck_channels,
            model.head.out_channels) == ((2048, 256, 65536) if large else (512, 128, 1024))
    backbone = model.backbone
    assert (backbone.img_size, backbone.patch_size) == ((224, 16) if large else (32, 4))
    assert backbone.drop_path_rate == 0.1 and backbone.out_type == 'tokens'
    assert model.neck.embed_dims == model.head.in_channels
    assert cfg.train_cfg == dict(by_epoch=True, max_epochs=10 if 'shapes' in name else 100)
    assert cfg.optim_wrapper == dict(
        type='OptimWrapper', paramwise_cfg=dict(flat_decay_mult=0.), clip_grad=dict(max_norm=3.0),
        optimizer=dict(type='AdamW', lr=5e-4, betas=(0.9, 0.999), weight_decay=0.04))
    assert cfg.auto_scale_lr == dict(enable=True, base_batch_size=256)
    assert [hook.type for hook in cfg.custom_hooks] == [
        'PreflightHook', 'StrictCheckpointHook', 'FreezeLayerHook']
    check_crops(cfg, large)


def check_crops(cfg, large: bool) -> None:
    views = step_of(cfg.train_dataloader.dataset.pipeline, 'MultiView')
    assert views.num_views == [1, 1, 8 if large else 4]
    crops = [step_of(view, 'RandomResizedCrop') for view in views.transforms]
    assert [(crop.scale, crop.crop_ratio_range) for crop in crops] == [
        (224 if large else 32, (0.4, 1.0))] * 2 + [(96 if large else 16, (0.05, 0.4))]
    for view, solarize in zip(views.transforms, (0, 0.2, 0)):
        assert step_of(view, 'RandomFlip').prob == 0.5
        jitter = step_of(view, 'RandomApply')
        assert jitter.prob == 0.8 and jitter.transforms == [dict(
            type='ColorJitter', brightness=0.4, contrast=0.4, saturation=0.2, hue=0.1)]
        assert step_of(view, 'RandomGrayscale').prob == 0.2
        found = [step.prob for step in view if step.type == 'Solarize']
        assert found == ([solarize] if solarize else [])
    blurs = [step.prob for view in views.transforms for step in view if step.type == 'GaussianBlur']
    assert blurs == ([1.0, 0.1, 0.5] if large else [])
    rgb = cfg.train_dataloader.dataset.type == 'CIFAR100'  # that data set holds RGB images
    assert cfg.data_preprocessor == dict(type='SelfSupDataPreprocessor', mean=HALF[0], std=HALF[1],
                                         **({} if rgb else dict(to_rgb=True)))
