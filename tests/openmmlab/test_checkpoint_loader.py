"""mmengine reads every checkpoint through this package, safely, once it is imported."""
import os
from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from mmengine.hooks import EMAHook, Hook
from mmengine.logging import HistoryBuffer
from mmengine.registry import MODELS
from mmengine.runner import CheckpointLoader, Runner, load_checkpoint
from safetensors.torch import save_file
from tiny_models import SWIN
from tiny_runs import load_tool, mistake, run
from torch import nn

from locat_mmseg.addon import weight_sources
from locat_mmseg.addon.weight_sources import UntrustedCheckpoint, read_source
from locat_mmseg.openmmlab import checkpoint_loader
from locat_mmseg.openmmlab.backbones import LocAtViT
from locat_mmseg.openmmlab.checkpoint_loader import MMENGINE_CLASSES, load_from_locat_mmseg

TRAIN, TEST = load_tool('train').main, load_tool('test').main


class Program:
    """Unpickled, it makes a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple:
        return os.mkdir, (str(self.folder), )


@pytest.mark.parametrize('source', ['a.pth', '/b/a.pth', 'https://example.com/a.pth', 'timm:x',
                                    'http://example.com/a.pth', 'hf-hub:owner/name'])
def test_it_is_the_loader_of(source: str):
    assert CheckpointLoader._get_checkpoint_loader(source) is load_from_locat_mmseg


@pytest.mark.parametrize('source', ['s3://a/b.pth', 'torchvision://resnet18', 'mmcls://vgg11'])
def test_other_schemes_stay(source: str):
    assert CheckpointLoader._get_checkpoint_loader(source).__module__.startswith('mmengine.')


def test_what_mmengine_writes_is_read_without_trust(tmp_path: Path):
    content = dict(buffer=HistoryBuffer([1., 2.], [1, 1]), score=np.float32(0.5),
                   scores=np.arange(3.), count=np.int64(3), ids=np.zeros(2, np.uint32))
    torch.save(content, tmp_path / 'a.pth')
    before = set(map(str, torch.serialization.get_safe_globals()))
    loaded = CheckpointLoader.load_checkpoint(str(tmp_path / 'a.pth'), 'cpu')
    assert loaded['buffer'].mean() == 1.5 and loaded['score'] == 0.5 and loaded['count'] == 3
    np.testing.assert_array_equal(loaded['scores'], [0, 1, 2])
    after = set(map(str, torch.serialization.get_safe_globals()))
    assert after <= before  # allowed for that reading only


def test_files_of_numpy_1_and_2_are_read():
    names = {entry[1] for entry in MMENGINE_CLASSES if isinstance(entry, tuple)}
    names.remove('builtins.getattr')
    assert names == {f'numpy.{core}.multiarray.{name}' for core in ('core', '_core')
                     for name in ('_reconstruct', 'scalar')}


def test_a_program_in_a_file_does_not_run(tmp_path: Path):
    file, made = str(tmp_path / 'evil.pth'), tmp_path / 'made'
    torch.save(dict(state_dict=nn.Linear(2, 2).state_dict(), meta=Program(made)), file)
    with pytest.raises(UntrustedCheckpoint, match='LOCAT_TRUST_CHECKPOINT=1'):
        load_checkpoint(nn.Linear(2, 2), file)
    assert not made.exists()


class Getattr:
    """Unpickled, it is an attribute of an object, here a dict, with some items more."""

    def __init__(self, *arguments: object) -> None:
        self.arguments = arguments

    def __reduce__(self) -> tuple:
        return getattr, self.arguments, None, None, iter([('changed', True)])


def test_a_file_does_not_reach_the_globals_of_a_function(tmp_path: Path):
    """With the builtin getattr, torch's restricted unpickler lets it change them, and so put its
    own function in the place of one that unpickling calls."""
    content = dict(x=Getattr(torch._utils._rebuild_parameter, '__globals__'))
    torch.save(content, tmp_path / 'a.pth')
    with pytest.raises(UntrustedCheckpoint):
        CheckpointLoader.load_checkpoint(str(tmp_path / 'a.pth'))
    assert not hasattr(torch._utils, 'changed')


def test_trust_in_init_cfg(tmp_path: Path):
    def backbone(**init_cfg) -> LocAtViT:
        return LocAtViT(dict(embed_dims=24, num_layers=1, num_heads=3), img_size=32, patch_size=8,
                        init_cfg=dict(type='Pretrained', checkpoint=file, **init_cfg))
    file, made = str(tmp_path / 'evil.pth'), tmp_path / 'made'
    source = LocAtViT(dict(embed_dims=24, num_layers=1, num_heads=3), img_size=32, patch_size=8)
    torch.save(dict(state_dict=source.state_dict(), args=Program(made)), file)
    for init_cfg in ({}, dict(trust_checkpoint=False)):
        with pytest.raises(UntrustedCheckpoint, match='trust_checkpoint=True in init_cfg'):
            backbone(**init_cfg).init_weights()
        assert not made.exists()
    model = backbone(trust_checkpoint=True)
    model.init_weights()
    assert made.exists()
    assert torch.equal(model.model.pos_embed, source.model.pos_embed)
    with pytest.raises(UntrustedCheckpoint):  # trust ended with that file
        load_checkpoint(source, file)


@pytest.mark.usefixtures('clean_process')
def test_the_tools_refuse_in_one_sentence(segmentation_config, tmp_path: Path):
    file, made = tmp_path / 'evil.pth', tmp_path / 'made'
    torch.save(dict(state_dict={}, meta=Program(made)), file)
    for tool, argv in ((TEST, [file]), (TRAIN, ['--resume', file]),
                       (TRAIN, ['--cfg-options', f'load_from={file}'])):
        text = mistake(tool, segmentation_config(), *argv)
        assert text.startswith(f'{file} is refused: reading it would run code')
    assert not made.exists()


def test_resume_with_optimizer_log_schedule_and_moving_average(runner_of, tmp_path: Path):
    """All that mmengine saves comes back, bit by bit, without trust."""
    extra = "\ncustom_hooks = [dict(type='EMAHook', momentum=0.5)]\nparam_scheduler = " \
            "[dict(type='LinearLR', start_factor=0.1, by_epoch=False, end=8)]"
    runner_of(extra).train()
    file = str(tmp_path / 'run/iter_2.pth')
    saved = torch.load(file, weights_only=False)
    assert {'optimizer', 'message_hub', 'ema_state_dict', 'param_schedulers'} <= saved.keys()
    log = saved['message_hub']['log_scalars']['train/loss']
    assert isinstance(log, HistoryBuffer)
    resumed = {}

    class Look(Hook):
        """Keeps what the run goes on with."""

        def before_train(self, runner: Runner) -> None:
            ema = next(hook for hook in runner._hooks if isinstance(hook, EMAHook))
            resumed.update(deepcopy(dict(
                iter=runner.iter, optimizer=runner.optim_wrapper.state_dict(),
                log=runner.message_hub.get_scalar('train/loss').data,
                schedule=runner.param_schedulers[0].state_dict(),
                weights=runner.model.state_dict(), average=ema.ema_model.state_dict())))

    rest = runner_of(extra, load_from=file, resume=True, train_cfg__max_iters=3)
    rest.register_hook(Look(), priority='LOWEST')
    rest.train()
    assert resumed['iter'] == 2
    np.testing.assert_array_equal(resumed['log'], log.data)
    assert resumed['schedule'] == saved['param_schedulers'][0]
    for index, expected in saved['optimizer']['state'].items():
        assert resumed['optimizer']['state'][index]['step'] == 2
        assert torch.equal(resumed['optimizer']['state'][index]['exp_avg'], expected['exp_avg'])
    for name, weight in saved['state_dict'].items():  # the average; the raw ones are the other's
        assert torch.equal(resumed['average'][f'module.{name}'], weight)
        assert torch.equal(resumed['weights'][name], saved['ema_state_dict'][f'module.{name}'])
    final = torch.load(tmp_path / 'run/iter_3.pth', weights_only=False)
    assert final['optimizer']['state'][0]['step'] == 3
    assert final['ema_state_dict']['steps'] == saved['ema_state_dict']['steps'] + 1 == 3


def test_checkpoints_saved_after_a_validation_load_safely(runner_of, tmp_path: Path):
    """The best score, IoUMetric's, is a float32 of numpy, which mmengine's own list lacks."""
    runner_of("\ntrain_cfg.update(val_interval=1)\ndefault_hooks['checkpoint'].update("
              "save_best='mIoU', rule='greater')").train()
    file = str(tmp_path / 'run/iter_2.pth')
    without = [entry for entry in MMENGINE_CLASSES if entry is not type(np.dtype('float32'))]
    with pytest.raises(UntrustedCheckpoint):
        read_source(file, allowed=without)
    assert CheckpointLoader.load_checkpoint(file)['meta']['iter'] == 2


@pytest.mark.parametrize('rank, order', [(0, ['read', 'barrier']), (1, ['barrier', 'read'])])
@pytest.mark.parametrize('fails', [False, True])
def test_the_first_process_downloads_for_all(rank: int, order: list[str], fails: bool,
                                             monkeypatch: pytest.MonkeyPatch):
    """If its download fails, the others do not wait for ever."""
    events = []

    def read(source: str, *args) -> str:
        events.append('read')
        if fails:
            raise ValueError('no network')
        return source
    monkeypatch.setattr(checkpoint_loader, 'get_rank', lambda: rank)
    monkeypatch.setattr(checkpoint_loader, 'barrier', lambda: events.append('barrier'))
    monkeypatch.setattr(checkpoint_loader, 'read_source', read)
    if fails:
        with pytest.raises(ValueError, match='no network'):
            load_from_locat_mmseg('https://example.com/a.pth')
    else:
        load_from_locat_mmseg('https://example.com/a.pth')
    assert events == order
    if not fails:
        load_from_locat_mmseg('a.pth')  # every process for itself
        assert events == [*order, 'read']


# --- weights by name through init_cfg ------------------------------------------------------------

def test_a_config_takes_weights_from_timm_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """--cfg-options model.backbone.init_cfg.checkpoint=timm:NAME, into LocAt: GAug is missing."""
    source = timm.create_model('vit_tiny_patch16_224').state_dict()
    save_file(source, tmp_path / 'model.safetensors')
    monkeypatch.setattr(weight_sources, 'hub_file', lambda repository, file: str(tmp_path / file))
    backbone = LocAtViT('tiny', img_size=64, init_cfg=dict(
        type='Pretrained', checkpoint='timm:vit_tiny_patch16_224', prefix='backbone.'))
    backbone.init_weights()
    state = backbone.state_dict()
    assert all(torch.equal(state[f'model.{name}'], weight) for name, weight in source.items()
               if name.startswith(('blocks', 'patch_embed', 'cls')))
    with pytest.raises(ValueError, match='timm:vit_tiny_patch16_224: these weights are not of'):
        MODELS.build(dict(SWIN, out_indices=1, init_cfg=backbone.init_cfg)).init_weights()


@pytest.mark.parametrize('strict, message', [
    (True, 'In the model but not in the file: blocks.1'), (False, None)])
def test_strict_in_init_cfg(strict: bool, message: str | None, tmp_path: Path):
    def backbone(depth: int, **kwargs) -> LocAtViT:
        return LocAtViT(dict(embed_dims=24, num_layers=depth, num_heads=3), img_size=32,
                        patch_size=8, gaug=False, **kwargs)
    file = tmp_path / 'shallow.pth'
    torch.save({**backbone(1).state_dict(), 'extra': torch.ones(1)}, file)
    model = backbone(2, init_cfg=dict(type='Pretrained', checkpoint=str(file), strict=strict))
    if message:
        with pytest.raises(ValueError, match=message):
            model.init_weights()
    else:
        model.init_weights()
        assert torch.equal(model.model.pos_embed,
                           torch.load(file)['model.pos_embed'])
