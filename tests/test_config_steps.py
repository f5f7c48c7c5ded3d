"""Every config's model builds; each kind of it trains and tests a step on data of its format."""
from pathlib import Path

import mmpretrain.models  # noqa: F401
import mmseg.models  # noqa: F401
import pytest
import torch
from config_helpers import LEAVES, leaves_in, load, shrink, shrink_pixels
from fabricated_data import make_all
from mmengine.config import Config, ConfigDict
from mmengine.optim import build_optim_wrapper
from mmengine.registry import MODELS, DefaultScope
from mmengine.runner import CheckpointLoader, Runner
from mmpretrain.datasets import CIFAR10
from torch import nn

FAMILIES = ('vit-t', 'regvit-t', 'ropevit-t', 'jumbo-t', 'swin-t')
SEGMENTATION = ('ade20k', 'pascal-context59', 'coco-stuff164k')
CLASSIFICATION = ('in1k', 'mini-imagenet', 'cifar100')
CLASSES = {'ade20k': 150, 'pascal-context59': 59, 'coco-stuff164k': 171, 'in1k': 1000,
           'mini-imagenet': 100, 'cifar100': 100, 'cifar10': 10, 'tiny-imagenet': 200,
           'shapes': 10, 'shapes cls': 9, 'camvid': 11}
MILLIONS = {'vit-t': 6, 'vit-s': 22, 'vit-b': 87, 'regvit-t': 6, 'regvit-b': 87, 'ropevit-t': 6,
            'ropevit-b': 86, 'jumbo-t': 17, 'jumbo-b': 260, 'swin-t': 28, 'swin-b': 88}
SUPERVISED = [name for name in LEAVES if not name.startswith('dino/')]
KINDS = [f'{folder}_{data}' for data in SEGMENTATION for family in FAMILIES
         for folder in (f'locat/upernet_{family}', f'probe/locat{family}')]
KINDS += [f'pretrain/locat{family}_{data}' for data in CLASSIFICATION for family in FAMILIES]
KINDS += [f'pretrain/ablation/vit-t_{name}_in1k' for name in ('avgpool', 'no-pos-embed')]
KINDS += ['pretrain/jumbo-t_cifar100', 'examples/upernet_locatvit_camvid',
          'examples/upernet_locatdinov2-s_camvid', 'examples/locatdinov2-s_cifar100']
PROTOCOLS = [f'cutmix_locality/{name}' for name in (
    'vit-compact_baseline_cifar10', 'locatvit-compact_modern_cifar100',
    'locatvit-compact_modern_tiny-imagenet', 'vit-t_modern_in1k')]
KINDS += PROTOCOLS


def build(cfg: Config) -> nn.Module:
    cfg.model.backbone.init_cfg = None
    cfg.model.setdefault('data_preprocessor', cfg.get('data_preprocessor'))
    with DefaultScope.overwrite_default_scope(cfg.default_scope):
        return MODELS.build(cfg.model).eval()


def scores(model: nn.Module, size: int, device: str = 'cpu') -> torch.Tensor:
    features = model.extract_feat(torch.zeros(2, 3, size, size, device=device))
    if hasattr(model, 'auxiliary_head'):
        assert model.auxiliary_head(features).shape[1] == model.auxiliary_head.num_classes
    return (model.decode_head if hasattr(model, 'decode_head') else model.head)(features)


@pytest.mark.parametrize('folder', sorted({name.rpartition('/')[0] for name in SUPERVISED}))
def test_every_model_builds(folder):
    for name in leaves_in(folder):
        cfg = shrink(load(name))
        data = name.rpartition('_')[2] + (' cls' if name == 'quickstart/locatvit_shapes' else '')
        with torch.no_grad():
            assert scores(build(cfg), 64).shape[:2] == (2, CLASSES[data]), name


@pytest.mark.parametrize('family', MILLIONS)
def test_true_sizes_fit_together(family):
    """On the meta device, which knows shapes and holds no numbers."""
    for name in (f'locat/upernet_{family}_ade20k', f'probe/locat{family}_ade20k',
                 f'pretrain/locat{family}_in1k'):
        with torch.device('meta'), torch.no_grad():
            model = build(load(name))
            assert scores(model, 64, 'meta').shape[:2] == (2, CLASSES[name.rpartition('_')[2]])
    millions = sum(p.numel() for p in model.parameters()) / 1e6  # of the classifier, the last
    assert round(millions) == MILLIONS[family]


def decays(cfg: Config) -> dict[str, tuple[float, int, bool]]:
    """Of each trained parameter: its weight decay, its axes, whether a norm layer owns it."""
    model = build(cfg)
    optimizer = build_optim_wrapper(model, cfg.optim_wrapper).optimizer
    of = {id(p): group['weight_decay'] for group in optimizer.param_groups
          for p in group['params']}
    norms = {name for name, module in model.named_modules()
             if isinstance(module, (nn.LayerNorm, nn.GroupNorm, nn.modules.batchnorm._BatchNorm))}
    return {name: (of[id(p)], p.ndim, name.rpartition('.')[0] in norms)
            for name, p in model.named_parameters() if p.requires_grad}


TABLES = {'vit-t': {'pos_embed', 'cls_token'}, 'regvit-t': {'pos_embed', 'cls_token', 'reg_token'},
          'ropevit-t': {'freqs', 'cls_token'}, 'jumbo-t': {'pos_embed', 'cls_token'},
          'swin-t': {'relative_position_bias_table'}}


@pytest.mark.parametrize('family', FAMILIES)
def test_upernet_decays_no_norms_and_no_tables(family):
    found = decays(shrink(load(f'locat/upernet_{family}_ade20k')))
    tables = {name.rpartition('.')[2] for name, (decay, ndim, norm) in found.items()
              if decay == 0 and not norm}
    assert tables == TABLES[family]
    assert any(norm and 'decode_head' in name for name, (_, _, norm) in found.items())
    for name, (decay, ndim, norm) in found.items():
        assert decay == (0. if norm or name.rpartition('.')[2] in TABLES[family] else 0.01), name


@pytest.mark.parametrize('family', FAMILIES)
def test_pretraining_decays_matrices_only(family):
    found = decays(shrink(load(f'pretrain/locat{family}_in1k')))
    tables = {name.rpartition('.')[2] for name, (decay, ndim, _) in found.items()
              if decay == 0 and ndim > 1}
    assert tables == TABLES[family]
    for name, (decay, ndim, _) in found.items():
        table = name.rpartition('.')[2] in TABLES[family]
        assert decay == (0. if ndim == 1 or table else 0.05), name


@pytest.mark.parametrize('family', ['vit', 'locatvit'])
def test_protocols_decay_matrices_only(family):
    found = decays(shrink(load(f'cutmix_locality/{family}-compact_modern_cifar100')))
    for name, (decay, ndim, _) in found.items():
        table = name.rpartition('.')[2] in TABLES['vit-t']
        assert decay == (0. if ndim == 1 or table else 0.05), name


@pytest.mark.parametrize('family', FAMILIES)
def test_probe_trains_its_head_alone_and_decays_all_of_it(family):
    found = decays(shrink(load(f'probe/locat{family}_ade20k')))
    assert set(found) == {'decode_head.conv_seg.weight', 'decode_head.conv_seg.bias',
                          'decode_head.convs.0.conv.weight', 'decode_head.convs.0.gn.weight',
                          'decode_head.convs.0.gn.bias'}  # the 1x1 convolution has no bias
    assert {decay for decay, _, _ in found.values()} == {0.01}


def test_new_gaug_of_a_pretrained_backbone_learns_at_the_full_rate():
    cfg = shrink(load('examples/upernet_locatdinov2-s_camvid'))
    model = build(cfg)
    rates = {id(p): group['lr'] for group in build_optim_wrapper(
        model, cfg.optim_wrapper).optimizer.param_groups for p in group['params']}
    found = {'gaug': set(), 'backbone': set(), 'heads': set()}
    for name, parameter in model.named_parameters():
        part = 'gaug' if '.gaug.' in name else 'backbone' if 'backbone' in name else 'heads'
        found[part].add(round(rates[id(parameter)], 9))
    assert found == {'gaug': {1e-3}, 'backbone': {5e-5}, 'heads': {1e-3}}


@pytest.fixture(scope='module')
def data_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp('fabricated')
    make_all(folder)
    return folder


@pytest.fixture
def in_data_folder(data_folder, tmp_path, monkeypatch, quick_runner) -> Path:
    """Data under ./data as the configs expect it, without CIFAR's checksums."""
    monkeypatch.chdir(data_folder)
    monkeypatch.setattr(CIFAR10, '_check_integrity', lambda self: True)
    return tmp_path


def one_step(cfg: Config, work_dir: Path) -> Runner:
    """Set a run to one step or epoch of two images, in this process."""
    cfg.work_dir = str(work_dir)
    cfg.experiment_name = work_dir.name
    for key in ('train_dataloader', 'val_dataloader', 'test_dataloader'):
        if key in cfg:
            cfg[key].update(num_workers=0, persistent_workers=False)
    cfg.train_dataloader.batch_size = 2
    epochs = 'max_epochs' in cfg.train_cfg
    cfg.train_cfg.update({'max_epochs' if epochs else 'max_iters': 1, 'val_interval': 1})
    return Runner.from_cfg(cfg)


def train(cfg: Config, work_dir: Path) -> Runner:
    runner = one_step(cfg, work_dir)
    runner.train()
    losses = runner.message_hub.get_scalar('train/loss')._log_history
    assert len(losses) >= 1 and all(0 < loss < 100 for loss in losses)
    return runner


def train_and_test(cfg: Config, work_dir: Path) -> dict[str, float]:
    return train(cfg, work_dir).test()


def check_step(name: str, work_dir: Path) -> None:
    cfg = shrink(load(name))
    if cfg.model.type == 'EncoderDecoder':
        metrics = train_and_test(shrink_pixels(cfg), work_dir)
        assert 0 <= metrics['mIoU'] <= 100
    else:
        metrics = train_and_test(cfg, work_dir)
        assert 0 <= metrics['accuracy/top1'] <= metrics['accuracy/top5'] <= 100


@pytest.mark.parametrize('name', KINDS)
def test_step(name, in_data_folder):
    check_step(name, in_data_folder)


def test_quickstart(in_data_folder):
    """Classification, then UPerNet and a probe on its weights."""
    cfg = load('quickstart/locatvit_shapes')
    runs = {name: load(f'quickstart/{name}_locatvit_shapes') for name in ('upernet', 'probe')}
    for run in (cfg, *runs.values()):
        for key in ('train', 'val', 'test'):
            run[f'{key}_dataloader'].dataset.num_images = 4
    assert 'accuracy/top1' in train_and_test(cfg, in_data_folder / 'pretrain')
    weights = str(in_data_folder / 'pretrain/epoch_1.pth')
    for name, run in runs.items():
        run.model.backbone.init_cfg.checkpoint = weights
        assert 'mIoU' in train_and_test(run, in_data_folder / name)
    before = CheckpointLoader.load_checkpoint(weights)['state_dict']
    after = CheckpointLoader.load_checkpoint(
        str(in_data_folder / 'probe/iter_1.pth'))['state_dict']
    kept = [name for name in after if name.startswith('backbone.')]
    assert kept and all(torch.equal(before[name], after[name]) for name in kept)


@pytest.mark.slow
@pytest.mark.parametrize('name', [n for n in SUPERVISED if n not in KINDS and 'shapes' not in n])
def test_step_of_the_other_configs(name, in_data_folder):
    check_step(name, in_data_folder)


@pytest.mark.slow
@pytest.mark.parametrize('data', SEGMENTATION)
def test_step_at_full_resolution(data, in_data_folder):
    assert 'mIoU' in train_and_test(shrink(load(f'locat/upernet_vit-t_{data}')), in_data_folder)


@pytest.mark.parametrize('name', [f'locat/upernet_vit-t_{data}' for data in SEGMENTATION] + [
    f'pretrain/locatvit-t_{data}' for data in CLASSIFICATION] + PROTOCOLS)
def test_test_time_augmentation(name, in_data_folder):
    cfg = shrink(load(name))
    cfg = shrink_pixels(cfg) if cfg.default_scope == 'mmseg' else cfg
    cfg.model.setdefault('data_preprocessor', cfg.get('data_preprocessor'))
    cfg.test_dataloader.dataset.pipeline = cfg.tta_pipeline
    runner = one_step(cfg, in_data_folder)
    cfg = runner.cfg
    model = ConfigDict(**cfg.tta_model, module=cfg.model)
    runner = Runner.from_cfg(Config(dict(cfg, model=model, experiment_name='tta')))
    assert all(0 <= value <= 100 for value in runner.test().values())


@pytest.mark.parametrize('name', leaves_in('dino'))
def test_dino_step(name, in_data_folder):
    """An epoch, in which the head's last layer is frozen; only that."""
    cfg = shrink(load(name))
    if cfg.train_dataloader.dataset.type == 'ShapesClsDataset':
        cfg.train_dataloader.dataset.num_images = 2
    runner = train(cfg, in_data_folder)
    states = runner.optim_wrapper.optimizer.state
    assert {n for n, p in runner.model.named_parameters() if p.requires_grad and p not in states} \
        == {'head.last_layer.weight'}
    sizes = [224] * 2 + [96] * 8 if 'in1k' in name else [32] * 2 + [16] * 4
    assert [tuple(crop.shape) for crop in next(iter(runner.train_dataloader))['inputs']] == [
        (2, 3, size, size) for size in sizes]


def test_dino_sizes_fit_together():
    with torch.device('meta'):
        model = build(load('dino/locatvit-s_in1k'))
    assert [round(sum(p.numel() for p in part.parameters()) / 1e6, 1)
            for part in (model.backbone, model.head, model.teacher)] == [21.7, 22.3, 44.0]


def test_dino_decays_biases_and_norms_not():
    found = decays(shrink(load('dino/locatvit-s_in1k')))
    assert {name.partition('.')[0] for name in found} == {'backbone', 'head'}
    for name, (decay, ndim, _) in found.items():
        assert decay == (0. if ndim == 1 else 0.04), name


def test_segmentor_starts_from_a_dino_teacher(in_data_folder):
    cfg = load('dino/locatvit_shapes')
    cfg.train_dataloader.dataset.num_images = 4
    student = train(cfg, in_data_folder).model
    segmentation = load('quickstart/probe_locatvit_shapes')
    segmentation.model.backbone.update(img_size=32, patch_size=4)
    init_cfg = segmentation.model.backbone.init_cfg
    init_cfg.update(checkpoint=str(in_data_folder / 'epoch_1.pth'),
                    prefix='teacher.module.backbone.')
    backbone = MODELS.build(segmentation.model.backbone)
    backbone.init_weights()
    teacher = student.teacher.module.backbone.state_dict()
    moved = 0
    for name, weight in backbone.state_dict().items():
        assert torch.equal(weight, teacher[name]), name
        moved += not torch.equal(weight, student.backbone.state_dict()[name])
    assert moved > 10
