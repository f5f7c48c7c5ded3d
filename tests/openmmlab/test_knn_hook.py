"""k-NN accuracy in the middle of training."""
import json

import knn_worker
import pytest
import torch
from mmengine.config import Config
from mmengine.runner import Runner

from locat_mmseg.openmmlab.frozen_backbone import from_config
from locat_mmseg.openmmlab.frozen_classification import evaluate_knn, extract
from locat_mmseg.openmmlab.frozen_data import classification_loaders
from locat_mmseg.openmmlab.knn_hook import KNNHook

HOOK = """
custom_hooks = [dict(type='KNNHook', train_dataset=train_dataloader['dataset'],
                     test_dataset=val_dataloader['dataset'], interval=2, k=3, batch_size=3)]
default_hooks['checkpoint'] = dict(type='CheckpointHook', interval=1)
"""


def test_the_log_has_what_the_checkpoint_gives(classification_config, tmp_path):
    config = classification_config(HOOK)
    cfg = Config.fromfile(config)
    cfg.work_dir = str(tmp_path / 'run')
    runner = Runner.from_cfg(cfg)
    runner.train()
    log, = (tmp_path / 'run').glob('*/vis_data/scalars.json')
    lines = [line for line in map(json.loads, log.read_text().splitlines()) if 'knn3/top1' in line]
    assert [line['step'] for line in lines] == [2]
    frozen = from_config(Config.fromfile(config), str(tmp_path / 'run/epoch_2.pth'))
    loaders = classification_loaders(Config.fromfile(config), None, (None, None), 0,
                                     num_workers=0)
    expected = evaluate_knn(*(extract(frozen, loader) for loader in loaders), [3])
    assert {name: lines[0][name] for name in expected} == pytest.approx(expected)


def test_training_goes_on_in_training_mode(classification_config, tmp_path, monkeypatch):
    cfg = Config.fromfile(classification_config())
    cfg.work_dir = str(tmp_path / 'run')
    runner = Runner.from_cfg(cfg)
    runner.model.train()
    hook = KNNHook(cfg.train_dataloader.dataset, cfg.val_dataloader.dataset, k=2)
    modes = []
    runner.model.backbone.register_forward_hook(
        lambda module, *_: modes.append((module.training, torch.is_grad_enabled())))
    hook.after_train_epoch(runner)
    assert set(modes) == {(False, False)}
    assert runner.model.training and runner.model.backbone.training


@pytest.mark.slow
def test_two_processes_share_the_images(tmp_path):
    """The main process has all features in order, each image once."""
    torch.multiprocessing.spawn(knn_worker.work, (tmp_path, ), knn_worker.WORLD_SIZE)
    features, labels = knn_worker.features()
    together, other = (torch.load(tmp_path / f'{rank}.pth') for rank in range(2))
    assert other is None
    assert labels.tolist() == together[1].tolist() == [0, 1, 2, 0, 1]
    torch.testing.assert_close(together[0], features)
