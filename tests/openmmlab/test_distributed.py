"""Several processes on the CPU."""
import os
import socket
import subprocess
import sys

import pytest
import torch
import torch.distributed as dist
from mmengine.config import Config
from mmengine.registry import MODEL_WRAPPERS
from tiny_runs import REPOSITORY
from torch import nn

from locat_mmseg.openmmlab import distributed
from locat_mmseg.openmmlab.distributed import prepare_launch
from locat_mmseg.openmmlab.errors import UserError
from locat_mmseg.openmmlab.hooks import unwrap


@pytest.fixture
def no_accelerator(monkeypatch):
    monkeypatch.setattr(distributed, 'has_accelerator', lambda: False)


@pytest.fixture
def one_of_one(monkeypatch):
    """The environment that torchrun gives to the only process; its group is ended afterwards."""
    with socket.socket() as free:
        free.bind(('127.0.0.1', 0))
        port = free.getsockname()[1]
    for name, value in dict(RANK=0, LOCAL_RANK=0, WORLD_SIZE=1, MASTER_ADDR='127.0.0.1',
                            MASTER_PORT=port).items():
        monkeypatch.setenv(name, str(value))
    yield
    if dist.is_initialized():
        dist.destroy_process_group()


def model_config() -> Config:
    norm = dict(type='SyncBN', requires_grad=True)
    return Config(dict(
        model=dict(backbone=dict(norm_cfg=norm),
                   auxiliary_head=[dict(norm_cfg=norm), dict(norm_cfg=dict(type='GN'))]),
        env_cfg=dict(dist_cfg=dict(backend='nccl'))))


def test_one_process_changes_nothing():
    cfg = model_config()
    prepare_launch(cfg, 'none')
    assert cfg.launcher == 'none'
    assert cfg.model == model_config().model
    assert 'model_wrapper_cfg' not in cfg


def test_starts_gloo_and_adapts_the_model(no_accelerator, one_of_one):
    cfg = model_config()
    cfg.find_unused_parameters = True
    with pytest.warns(UserWarning, match='SyncBN does not run on the CPU') as caught:
        prepare_launch(cfg, 'pytorch')
    assert len(caught) == 1
    assert dist.get_backend() == 'gloo'
    assert cfg.model.backbone.norm_cfg == dict(type='BN', requires_grad=True)
    assert [head.norm_cfg.type for head in cfg.model.auxiliary_head] == ['BN', 'GN']
    assert cfg.model_wrapper_cfg == dict(
        type='CPUDistributedDataParallel', broadcast_buffers=False, find_unused_parameters=True)


def test_wrapper_ignores_the_device_that_the_runner_gives(no_accelerator, one_of_one):
    prepare_launch(Config(dict(model=dict())), 'pytorch')
    wrapped = MODEL_WRAPPERS.build(dict(type='CPUDistributedDataParallel', module=nn.Linear(2, 1),
                                        device_ids=[0], broadcast_buffers=False))
    assert wrapped.device_ids is None
    assert unwrap(wrapped) is wrapped.module
    wrapped(torch.ones(1, 2)).sum().backward()
    torch.testing.assert_close(wrapped.module.weight.grad, torch.ones(1, 2))


def test_refuses_another_model_wrapper(no_accelerator, one_of_one):
    cfg = Config(dict(model=dict(), model_wrapper_cfg=dict(type='MMFullyShardedDataParallel')))
    with pytest.raises(UserError, match='MMFullyShardedDataParallel.*needs accelerators'):
        prepare_launch(cfg, 'pytorch')


def test_refuses_slurm_without_accelerator(no_accelerator):
    with pytest.raises(UserError, match='--launcher slurm needs an accelerator'):
        prepare_launch(model_config(), 'slurm')


def test_says_that_torchrun_is_missing(monkeypatch):
    for name in ('RANK', 'WORLD_SIZE', 'MASTER_ADDR', 'MASTER_PORT'):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(UserError, match='RANK, .*WORLD_SIZE.*start with torchrun'):
        prepare_launch(model_config(), 'pytorch')


def test_two_processes_train_and_validate(segmentation_config, tmp_path):
    """SyncBN in the config, gathered results, and the same weights in both processes."""
    check = '\n'.join([
        'from mmengine.hooks import Hook',
        'from mmengine.registry import HOOKS',
        'import torch, torch.distributed as dist',
        '@HOOKS.register_module()',
        'class SameWeights(Hook):',
        '    def after_train(self, runner):',
        '        total = sum(p.detach().double().sum() for p in runner.model.parameters())',
        '        both = [torch.zeros_like(total) for _ in range(2)]',
        '        dist.all_gather(both, total)',
        "        path = f'{runner.work_dir}/rank_{dist.get_rank()}.txt'",
        "        open(path, 'w').write(f'{torch.equal(*both)} {type(runner.model).__name__}')"])
    (tmp_path / 'same_weights.py').write_text(check, encoding='utf-8')
    config = segmentation_config(
        "\ncustom_imports = dict(imports=['locat_mmseg', 'same_weights'],"
        ' allow_failed_imports=False)'
        "\ncustom_hooks = [dict(type='PreflightHook'), dict(type='SameWeights')]")
    path = os.pathsep.join([str(REPOSITORY), str(tmp_path), os.environ.get('PYTHONPATH', '')])
    run = subprocess.run(
        [sys.executable, '-m', 'torch.distributed.run', '--standalone', '--nproc-per-node=2',
         str(REPOSITORY / 'tools/train.py'), str(config), '--work-dir', str(tmp_path / 'out'),
         '--launcher', 'pytorch'],
        env=dict(os.environ, PYTHONPATH=path, OMP_NUM_THREADS='1', CUDA_VISIBLE_DEVICES=''),
        cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr[-3000:]
    # Files, since two processes may write into each other's lines.
    for rank in range(2):
        said = (tmp_path / f'out/rank_{rank}.txt').read_text(encoding='utf-8')
        assert said == 'True CPUDistributedDataParallel'
    assert (run.stdout + run.stderr).count('SyncBN does not run on the CPU') == 1
    assert 'total batch size 4 = 2 images x 2 processes' in run.stdout
    assert 'mIoU' in run.stdout
    assert (tmp_path / 'out/iter_2.pth').is_file()
