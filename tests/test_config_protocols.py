"""The training protocols: what is switched on, what is held equal, and that each part is exact."""
from itertools import product

import mmpretrain.datasets  # noqa: F401
import mmpretrain.models  # noqa: F401
import numpy as np
import pytest
import torch
from config_helpers import leaves_in, load
from mmcv.transforms import Compose
from mmengine.config import Config
from mmengine.registry import MODELS, DefaultScope
from mmengine.runner import set_random_seed
from mmpretrain.structures import DataSample
from PIL import Image
from torch import nn
from torch.nn.functional import cross_entropy
from torchvision.transforms import functional as F

FOLDER = 'cutmix_locality'
NAMES = leaves_in(FOLDER)
# Of each condition: AutoAugment (colour jitter on Tiny-ImageNet), CutMix, label smoothing.
CONDITIONS = {
    'baseline': (False, False, False), 'modern': (True, True, True),
    'autoaugment': (True, False, False), 'cutmix': (False, True, False),
    'label-smoothing': (False, False, True), 'no-autoaugment': (False, True, True),
    'no-cutmix': (True, False, True), 'no-label-smoothing': (True, True, False)}
AUGMENT = {'cifar10': dict(type='CIFARAutoAugment'), 'cifar100': dict(type='CIFARAutoAugment'),
           'tiny-imagenet': dict(type='ColorJitter', brightness=0.4, contrast=0.4, saturation=0.4,
                                 hue=0.1),
           'in1k': dict(type='AutoAugment', policies='imagenet')}
CROP = {'cifar10': dict(type='RandomCrop', crop_size=32, padding=4),
        'tiny-imagenet': dict(type='RandomCrop', crop_size=64, padding=8),
        'in1k': dict(type='RandomResizedCrop', scale=224, backend='pillow',
                     interpolation='bicubic')}
CROP['cifar100'] = CROP['cifar10']
CIFAR100 = [f'{FOLDER}/vit-compact_{condition}_cifar100' for condition in CONDITIONS]


def parts(name: str) -> tuple[str, str, str]:
    """Model, condition and data set of a config's name."""
    return tuple(name.removeprefix(f'{FOLDER}/').split('_'))


def steps(cfg: Config) -> list[dict]:
    return cfg.train_dataloader.dataset.pipeline


def build(cfg: Config) -> nn.Module:
    cfg.model.data_preprocessor = cfg.data_preprocessor
    with DefaultScope.overwrite_default_scope('mmpretrain'):
        return MODELS.build(cfg.model)


def test_all_conditions_are_there():
    compact = {f'{FOLDER}/{model}-compact_{condition}_{data}' for model, condition, data in product(
        ('vit', 'locatvit'), ('baseline', 'modern'), ('cifar10', 'cifar100', 'tiny-imagenet'))}
    eight = {f'{FOLDER}/{model}-compact_{condition}_cifar100'
             for model, condition in product(('vit', 'locatvit'), CONDITIONS)}
    large = {f'{FOLDER}/{model}-{size}_{condition}_in1k' for model, size, condition in product(
        ('vit', 'locatvit'), 'ts', ('baseline', 'modern'))}
    assert set(NAMES) == compact | eight | large
    assert len(set(CONDITIONS.values())) == 8


@pytest.mark.parametrize('name', NAMES)
def test_switches_are_as_the_name_says(name):
    model, condition, data = parts(name)
    augment, cutmix, smoothing = CONDITIONS[condition]
    cfg = load(name)
    assert steps(cfg) == [
        *[dict(type='LoadImageFromFile')] * ('cifar' not in data), CROP[data],
        dict(type='RandomFlip', prob=0.5), *[AUGMENT[data]] * augment, dict(type='PackInputs')]
    assert cfg.model.train_cfg == dict(augments=[dict(type='CutMix', alpha=1.)],
                                       probs=float(cutmix))
    assert cfg.model.head.loss == dict(
        type='LabelSmoothLoss', label_smooth_val=0.1 if smoothing else 0., mode='original')
    assert cfg.model.backbone.gaug == cfg.model.neck.refine == model.startswith('locat')


@pytest.mark.parametrize('name', NAMES)
def test_all_else_is_held_equal(name):
    model, _, data = parts(name)
    cfg, baseline = (load(n).to_dict() for n in (
        name, f'{FOLDER}/{model.removeprefix("locat")}_baseline_{data}'))
    for each in (cfg, baseline):
        del each['train_dataloader']['dataset']['pipeline'], each['model']['train_cfg']['probs']
        del each['model']['head']['loss']['label_smooth_val'], each['model']['neck']['refine']
        del each['model']['backbone']['gaug']
    assert cfg == baseline


def test_schedule():
    cfg = load(CIFAR100[0])
    assert cfg.optim_wrapper.optimizer == dict(
        type='AdamW', lr=1e-3, betas=(0.9, 0.999), weight_decay=0.05)
    assert cfg.optim_wrapper.type == 'BFloat16OptimWrapper'
    assert cfg.optim_wrapper.clip_grad == dict(max_norm=1.)
    assert cfg.train_cfg.max_epochs == 200 and cfg.randomness.seed == 0
    assert 'save_best' not in cfg.default_hooks.checkpoint  # the last epoch's weights count
    for data, processes in (('cifar10', 1), ('cifar100', 1), ('tiny-imagenet', 1), ('in1k', 8)):
        size = 't' if data == 'in1k' else 'compact'
        batch = load(f'{FOLDER}/vit-{size}_modern_{data}').train_dataloader.batch_size
        assert batch * processes == 256 == cfg.auto_scale_lr.base_batch_size


@pytest.mark.parametrize('name, size, parameters', [
    ('vit-compact_baseline_cifar100', 32, 2_417_956),
    ('vit-compact_baseline_tiny-imagenet', 64, 2_464_904),
    ('locatvit-compact_modern_cifar10', 32, None), ('vit-t_baseline_in1k', 224, 5_717_416)])
def test_model(name, size, parameters):
    model = build(load(f'{FOLDER}/{name}'))
    if parameters:
        assert sum(p.numel() for p in model.parameters()) == parameters
    tokens, = model.backbone(torch.zeros(1, 3, size, size))
    assert tokens.shape == (1, 1 + (14 * 14 if size == 224 else 8 * 8), 192)
    assert not any(m.p for m in model.modules() if isinstance(m, nn.Dropout))
    assert not any('DropPath' in type(m).__name__ for m in model.modules())


def test_the_eight_conditions_start_from_the_same_weights():
    first = None
    for name in CIFAR100:
        cfg = load(name)
        set_random_seed(cfg.randomness.seed)
        model = build(cfg)
        model.init_weights()
        weights = torch.cat([p.detach().flatten() for p in model.parameters()])
        first = weights if first is None else first
        assert torch.equal(weights, first), name


# ---- the parts are exact ----

def batch(count: int, size: int = 32) -> dict:
    """Images of one grey each, which tells whose pixel it is; labels 0 to count - 1."""
    inputs = torch.arange(count, dtype=torch.uint8).view(-1, 1, 1, 1).expand(-1, 3, size, size)
    return dict(inputs=inputs.clone(),
                data_samples=[DataSample().set_gt_label(label) for label in range(count)])


def mixed(name: str, count: int = 6) -> tuple[torch.Tensor, torch.Tensor]:
    """The origin (N, H, W) of each pixel of a training batch, and its labels (N, classes)."""
    cfg = load(name)
    cfg.data_preprocessor.update(mean=[0.] * 3, std=[1.] * 3)
    out = build(cfg).data_preprocessor(batch(count), training=True)
    assert (out['inputs'] == out['inputs'][:, :1]).all()
    return out['inputs'][:, 0].long(), torch.stack([s.gt_score for s in out['data_samples']])


def test_cutmix_pastes_one_box_and_mixes_labels_by_its_area():
    areas = []
    for seed in range(25):
        np.random.seed(seed)
        torch.manual_seed(seed)
        origin, labels = mixed(CIFAR100[3])
        partner = origin.flatten(1).amax(1), origin.flatten(1).amin(1)
        own = torch.arange(6)
        pasted = origin != own[:, None, None]
        box = pasted.any(0)
        area = box.float().mean()
        height, width = box.any(1).sum(), box.any(0).sum()
        assert height * width == box.sum()  # a rectangle, the same one in all images
        for image in range(6):
            other = partner[0][image] if partner[0][image] != image else partner[1][image]
            assert set(origin[image][box].unique().tolist()) <= {other.item()}
            wanted = (1 - area) * torch.eye(100)[image] + area * torch.eye(100)[other]
            torch.testing.assert_close(labels[image], wanted)
        areas.append(area.item())
    assert sum(area > 0 for area in areas) >= 23  # every batch, but for empty boxes
    assert max(areas) > 0.5 > 0.2 > min(areas)


def test_no_mixing_without_cutmix():
    origin, labels = mixed(CIFAR100[0])
    assert (origin == torch.arange(6)[:, None, None]).all()
    assert torch.equal(labels, torch.eye(100)[:6])


@pytest.mark.parametrize('name, smoothing', [(CIFAR100[0], 0.), (CIFAR100[1], 0.1)])
def test_loss_is_cross_entropy_of_the_mixed_labels(name, smoothing):
    head = build(load(name)).head
    torch.manual_seed(0)
    features, targets = torch.randn(4, 192), torch.rand(4, 100).softmax(-1)
    samples = [DataSample().set_gt_score(target) for target in targets]
    torch.testing.assert_close(head.loss((features, ), samples)['loss'], cross_entropy(
        head.fc(features), targets, label_smoothing=smoothing))


def test_colour_jitter_is_torchvisions_on_the_channel_order_it_gets():
    cfg = load(f'{FOLDER}/vit-compact_modern_tiny-imagenet')
    assert cfg.data_preprocessor.to_rgb  # images are loaded as BGR
    with DefaultScope.overwrite_default_scope('mmpretrain'):
        jitter, = Compose([step for step in steps(cfg) if step.type == 'ColorJitter']).transforms
    jitter._rand_params = lambda: ([3, 0, 2, 1], 1.3, 0.7, 1.2, 0.08)
    rgb = np.random.default_rng(0).integers(0, 256, (8, 9, 3), np.uint8)
    bgr = jitter(dict(img=rgb[..., ::-1].copy()))['img']
    image = F.adjust_brightness(F.adjust_hue(Image.fromarray(rgb), 0.08), 1.3)
    wanted = np.asarray(F.adjust_contrast(F.adjust_saturation(image, 1.2), 0.7))
    assert np.abs(bgr[..., ::-1].astype(int) - wanted).max() <= 1


@pytest.mark.parametrize('name', NAMES)
def test_dumped_config_reads_back(name, tmp_path, quick_runner):
    cfg = load(name)
    cfg.dump(tmp_path / 'dumped.py')
    again = Config.fromfile(tmp_path / 'dumped.py')
    assert again.to_dict() == cfg.to_dict()
    with DefaultScope.overwrite_default_scope('mmpretrain'):
        assert len(Compose(steps(again)).transforms) == len(steps(cfg))
