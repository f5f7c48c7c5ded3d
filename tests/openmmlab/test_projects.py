"""The registered parts inside OpenMMLab projects: mmseg, mmpretrain, a third one, DDP."""
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import ddp_worker
import mmpretrain.registry
import mmseg.registry
import pytest
import torch
from mmengine import registry
from mmengine.config import ConfigDict
from mmengine.dataset import pseudo_collate
from mmengine.hooks import Hook
from mmengine.runner import Runner
from tiny_models import (JUMBO, SWIN, VIT, RandomClassification, RandomSegmentation, build,
                         classifier, segmentor)
from torch import Tensor, nn

TESTS = Path(ddp_worker.__file__).parent
BACKBONES = {'vit': VIT, 'regvit': dict(VIT, num_registers=2), 'ropevit': dict(VIT, rope=True),
             'jumbo': JUMBO, 'swin': SWIN,
             'timm': dict(type='LocAtTIMM', model_name='vit_small_patch14_dinov2',
                          timm_args=dict(img_size=28, embed_dim=24, depth=3, num_heads=3))}


def runner(scope: str, model: dict, folder: Path, iterations: int = 2, **kwargs) -> Runner:
    """mmengine's Runner as a project of this scope sets it up, on random data."""
    dataset = RandomSegmentation() if scope == 'mmseg' else RandomClassification()
    return Runner(
        model=ConfigDict(model), work_dir=str(folder), default_scope=scope,
        experiment_name='_'.join(folder.parts[-2:]),  # mmengine keeps the scope of each name
        train_dataloader=dict(batch_size=4, num_workers=0, dataset=dataset,
                              sampler=dict(type='InfiniteSampler', shuffle=False),
                              collate_fn=dict(type='pseudo_collate')),
        train_cfg=dict(type='IterBasedTrainLoop', max_iters=iterations),
        optim_wrapper=dict(type='OptimWrapper', optimizer=dict(type='AdamW', lr=1e-2)),
        default_hooks=dict(checkpoint=dict(type='CheckpointHook', by_epoch=False, interval=10**6),
                           logger=dict(type='LoggerHook', interval=1,
                                       log_metric_by_epoch=False)),
        log_processor=dict(by_epoch=False, window_size=1), randomness=dict(seed=0), **kwargs)


class Recorder(Hook):
    """Keeps the losses, and the backbone's weights as the first iteration finds them."""

    priority = 'VERY_LOW'

    def __init__(self) -> None:
        self.losses: list[float] = []
        self.first: dict[str, Tensor] = {}

    def before_train_iter(self, runner: Runner, batch_idx: int, data_batch=None) -> None:
        if not self.first:
            self.first = {name: weight.clone()
                          for name, weight in runner.model.backbone.state_dict().items()}

    def after_train_iter(self, runner: Runner, batch_idx: int, data_batch=None,
                         outputs=None) -> None:
        self.losses.append(outputs['loss'].item())


def assert_learns(recorder: Recorder) -> None:
    assert all(torch.isfinite(torch.tensor(recorder.losses)))
    assert sum(recorder.losses[-2:]) < 0.9 * sum(recorder.losses[:2]), recorder.losses


@pytest.mark.parametrize('child', [mmseg.registry, mmpretrain.registry])
def test_names_are_found_and_hidden_by_no_project(child: ModuleType):
    """A class of the same name in a project's registry would win in silence."""
    ours = {name: cls for name, cls in registry.MODELS.module_dict.items()
            if cls.__module__.startswith('locat_mmseg.')}
    assert {'LocAtViT', 'LocAtSwin', 'LocAtTIMM', 'PRRPool', 'GaussianAugment',
            'PatchRefinement', 'GAugAttention', 'GAugAttentionRope', 'GAugEvaAttention',
            'GAugWindowAttention'} <= ours.keys()
    for name, cls in ours.items():
        assert name not in child.MODELS.module_dict
        assert child.MODELS.get(name) is cls
    constructor = 'SegLearningRateDecayOptimWrapperConstructor'
    assert constructor not in child.OPTIM_WRAPPER_CONSTRUCTORS.module_dict
    assert child.OPTIM_WRAPPER_CONSTRUCTORS.get(constructor).__module__.startswith('locat_mmseg.')


@pytest.mark.parametrize('name', BACKBONES)
def test_trains_in_mmseg(name: str, tmp_path: Path):
    """With a SyncBN config in one process on a CPU, and EMA."""
    recorder = Recorder()
    run = runner('mmseg', segmentor(BACKBONES[name], 'SyncBN'), tmp_path, 12,
                 custom_hooks=[recorder, dict(type='EMAHook', momentum=0.5)])
    run.train()
    assert_learns(recorder)
    assert not any(isinstance(m, nn.SyncBatchNorm) for m in run.model.modules())
    average = run._hooks[[type(h).__name__ for h in run._hooks].index('EMAHook')].ema_model.module
    moved = {n for n, w in average.state_dict().items()
             if w.is_floating_point() and not torch.equal(w, run.model.state_dict()[n])}
    assert {n for n, _ in run.model.backbone.named_parameters(prefix='backbone')} <= moved
    image = RandomSegmentation()[0]
    predicted = run.model.eval().test_step(pseudo_collate([image]))[0].pred_sem_seg.data
    assert predicted.shape == (1, 31, 37)


@pytest.mark.parametrize('name', BACKBONES)
def test_trains_in_mmpretrain(name: str, tmp_path: Path):
    recorder = Recorder()
    neck = {'regvit': dict(num_prefix_tokens=3),
            'jumbo': dict(num_prefix_tokens=2, num_class_tokens=2)}.get(name, {})
    run = runner('mmpretrain', classifier(BACKBONES[name], **neck), tmp_path, 12,
                 custom_hooks=[recorder, dict(type='EMAHook')])
    run.train()
    assert_learns(recorder)


PRETRAINING = {
    'vit': (VIT, {}, {'norm.weight', 'norm.bias', 'head.fc.weight', 'head.fc.bias'}),
    'average': (dict(VIT, class_token=False, final_norm=False),
                dict(pool='avg', num_prefix_tokens=0, norm=True),
                {'neck.fc_norm.weight', 'neck.fc_norm.bias', 'head.fc.weight', 'head.fc.bias'}),
    'jumbo': (JUMBO, dict(num_prefix_tokens=2, num_class_tokens=2),
              {'norm.weight', 'norm.bias', 'head.fc.weight', 'head.fc.bias',
               'norm_patches.weight', 'norm_patches.bias',
               'blocks.1.norm3.weight', 'blocks.1.norm3.bias', 'blocks.1.ls3.gamma'}),
    'swin': (SWIN, {}, {'norm.weight', 'norm.bias', 'head.fc.weight', 'head.fc.bias'}),
}


@pytest.mark.parametrize('name', PRETRAINING)
def test_from_classification_to_segmentation(name: str, tmp_path: Path):
    backbone, neck, unused = PRETRAINING[name]
    pretraining = runner('mmpretrain', classifier(backbone, **neck), tmp_path / 'cls')
    pretraining.train()
    file = tmp_path / 'cls/iter_2.pth'
    trained = pretraining.model.backbone.state_dict()

    recorder = Recorder()
    model = segmentor(dict(backbone, init_cfg=dict(type='Pretrained', checkpoint=str(file),
                                                   prefix='backbone.')))
    run = runner('mmseg', model, tmp_path / 'seg', custom_hooks=[recorder])
    start = {name: weight.clone() for name, weight in run.model.backbone.state_dict().items()}
    run.train()
    assert recorder.first.keys() == start.keys()
    for key, weight in recorder.first.items():  # the norms of Swin's maps are new
        expected = start[key] if key.startswith('out_norms') else trained[key]
        assert torch.equal(weight, expected), key
    assert any(not torch.equal(start[key], trained[key]) for key in trained.keys() & start.keys())
    assert any(not torch.equal(weight, run.model.backbone.state_dict()[key])
               for key, weight in recorder.first.items())  # and training goes on from there

    log, = (tmp_path / 'seg').rglob('*.log')
    line, = (line for line in log.read_text().splitlines() if f'weights from {file}' in line)
    named = set(line.split('not used: ')[1].split(', '))
    blocks = {key.removeprefix('model.') for key in trained if '.blocks.2.' in key}
    assert named == unused | blocks  # the ViT's third block is beyond out_indices
    assert f'loaded: {len(trained.keys() & start.keys())} tensors' in line


def test_bfloat16_autocast_of_a_whole_segmentor():
    model = build('mmseg', segmentor(VIT)).train()
    batch = model.data_preprocessor(pseudo_collate([RandomSegmentation()[i] for i in (0, 1)]), True)
    with torch.autocast('cpu', dtype=torch.bfloat16):
        loss, _ = model.parse_losses(model(**batch, mode='loss'))
    loss.backward()
    full, _ = model.parse_losses(model(**batch, mode='loss'))
    assert loss.item() == pytest.approx(full.item(), rel=0.02)
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in model.parameters())


def test_third_project(tmp_path: Path):
    """A process that knows of the package only what ``custom_imports`` tells it."""
    plugins = [dict(type='GaussianAugment', head_dim=8, grid=4),
               dict(type='PatchRefinement', num_heads=3),
               *(dict(type=f'GAug{name}', dim=24, num_heads=3)
                 for name in ('Attention', 'AttentionRope', 'EvaAttention', 'WindowAttention'))]
    backbones = [dict(backbone, out_indices=-1) for backbone in (VIT, SWIN, BACKBONES['timm'])]
    neck = dict(type='PRRPool', embed_dims=24, num_heads=3, pool='avg', num_prefix_tokens=0)
    config = tmp_path / 'third.py'
    config.write_text(f"custom_imports = dict(imports=['locat_mmseg'])\n{backbones = }\n"
                      f'{plugins = }\n{neck = }\n', encoding='utf-8')
    result = subprocess.run(
        [sys.executable, TESTS / 'third_project.py', config, tmp_path / 'work'], text=True,
        env={**os.environ, 'PYTHONPATH': os.pathsep.join(sys.path)}, capture_output=True)
    assert result.returncode == 0, result.stderr[-3000:]
    assert [line for line in result.stdout.splitlines()
            if line.startswith(('TRAINED', 'BUILT'))] == [
        *(f'TRAINED {backbone["type"]} 8 True' for backbone in backbones),
        *(f'BUILT {plugin["type"]}' for plugin in plugins)]


def test_two_processes(tmp_path: Path):
    """DistributedDataParallel with BN and without find_unused_parameters: every rank holds the
    mean of the gradients that one process finds on each rank's images."""
    torch.multiprocessing.spawn(ddp_worker.work, (tmp_path, ), ddp_worker.WORLD_SIZE)
    ranks = [torch.load(tmp_path / f'{rank}.pth') for rank in range(ddp_worker.WORLD_SIZE)]
    for name, (scope, cfg, dataset) in ddp_worker.MODELS.items():
        model = build(scope, cfg).train()
        for images in (range(2), range(2, 4)):
            ddp_worker.backward(model, dataset, images)
        for key, total in ddp_worker.gradients(model).items():
            assert torch.equal(ranks[0][name][key], ranks[1][name][key]), (name, key)
            torch.testing.assert_close(ranks[0][name][key], total / 2, msg=f'{name} {key}')
            assert total.any(), (name, key)
