"""tools/locality_study.py as a user runs it."""
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fabricated_study import finished_study
from tiny_runs import REPOSITORY, load_tool, mistake, run

from locat_mmseg.analysis.study_results import Study

STUDY = load_tool('locality_study')
pytestmark = pytest.mark.usefixtures('clean_process')
LOCAT = """
model['backbone'] = dict(type='LocAtViT', img_size=32, patch_size=8, out_type='tokens', gaug=False,
                         arch=dict(embed_dims=32, num_layers=2, num_heads=2, mlp_ratio=2))
model['neck'] = dict(type='PRRPool', embed_dims=32, num_heads=2, refine=False)
custom_hooks = [dict(type='PreflightHook'), dict(type='LocalityHook', num_images=3)]
train_cfg.update(val_interval=1)
"""
GAUG = "model['backbone']['gaug'] = model['neck']['refine'] = True\n"


@pytest.fixture
def configs(classification_config, tmp_path) -> list[Path]:
    """Of a plain ViT and one with LocAt."""
    paths = []
    for name, extra in (('vit', ''), ('locatvit', GAUG)):
        paths.append(tmp_path / f'{name}_tiny.py')
        classification_config(LOCAT + extra).rename(paths[-1])
    return paths


@pytest.fixture
def planned(monkeypatch):
    """Instead of training, keeps what would be trained."""
    calls = []
    monkeypatch.setattr(STUDY, 'train_all', lambda *args: calls.append(args))
    return calls


def test_plan_and_order(configs, planned, tmp_path, capsys):
    run(STUDY.main, *configs, '--seeds', 1, 0, '--work-dir', 'out', '--minutes', 2.5, '--gpus', 3,
        '--cfg-options', 'optim_wrapper.optimizer.lr=0.01')
    (runs, tool, gpus, seconds, _), = planned
    assert [(one.work_dir.as_posix(), one.seed) for one in runs] == [
        (f'out/{name}_tiny/seed{seed}', seed) for seed in (0, 1) for name in ('vit', 'locatvit')]
    assert runs[0].options == ['optim_wrapper.optimizer.lr=0.01',
                               'default_hooks.checkpoint.interval=1']
    assert (tool, gpus, seconds) == (REPOSITORY / 'tools/train.py', ['3'], 150)
    conditions = Study.read(tmp_path / 'out').conditions
    assert [one.factors for one in conditions.values()] == [[], ['LocAt']]
    assert len({one.group for one in conditions.values()}) == 1
    assert (conditions['vit_tiny'].length, conditions['vit_tiny'].unit) == (2, 'epoch')
    assert capsys.readouterr().out.count('2 not run') == 2


def test_a_study_may_grow(configs, planned, tmp_path):
    run(STUDY.main, configs[0], '--work-dir', 'out')
    run(STUDY.main, *configs, '--seeds', 2, '--work-dir', 'out')
    assert {name: one.seeds for name, one in Study.read(tmp_path / 'out').conditions.items()} == {
        'vit_tiny': [0, 2], 'locatvit_tiny': [2]}
    assert len(planned[1][0]) == 2  # what this command asks for


def test_own_checkpoint_interval_is_kept(configs, planned):
    run(STUDY.main, configs[0], '--cfg-options', 'default_hooks.checkpoint.interval=2')
    assert planned[0][0][0].options == ['default_hooks.checkpoint.interval=2']


def test_other_settings_in_the_same_work_dir_are_refused(configs, planned):
    run(STUDY.main, configs[0], '--work-dir', 'out')
    assert 'out holds runs of vit_tiny with another content of its config, or other overrides' in \
        mistake(STUDY.main, configs[0], '--work-dir', 'out', '--cfg-options',
                'train_cfg.max_epochs=3')
    assert 'holds a study with --metric accuracy/top1, not mIoU' in mistake(
        STUDY.main, configs[0], '--work-dir', 'out', '--metric', 'mIoU')


def test_mistakes(configs, classification_config, planned, tmp_path):
    plain = classification_config()
    assert "has no LocalityHook: add dict(type='LocalityHook', interval=10)" in mistake(
        STUDY.main, plain)
    blind = classification_config(LOCAT + 'val_dataloader = val_cfg = val_evaluator = None\n')
    assert 'does not validate, so it gives no score' in mistake(STUDY.main, blind)
    (tmp_path / 'other').mkdir()
    twin = configs[0].rename(tmp_path / 'other' / configs[0].name)
    configs[0].write_text(twin.read_text())
    assert 'have the same file name, which names the condition' in mistake(
        STUDY.main, configs[0], twin)
    copy = twin.rename(tmp_path / 'copy.py')
    assert 'copy and vit_tiny train the same: give one of them' in mistake(
        STUDY.main, configs[0], copy)
    assert 'config none.py does not exist' in mistake(STUDY.main, 'none.py')
    assert 'holds no study' in mistake(STUDY.main, '--report', '--work-dir', 'empty')
    assert planned == []


@pytest.mark.parametrize('argv', [(), ('a.py', '--report')])
def test_command_lines_refused(argv, capsys):
    with pytest.raises(SystemExit):
        run(STUDY.main, *argv)
    assert 'give the configs of the conditions, or --report' in capsys.readouterr().err


def test_failed_runs_are_told_at_the_end(configs, monkeypatch):
    def fail(runs, tool, gpus, seconds, ended):
        for one in runs:
            one.work_dir.mkdir(parents=True)
            (one.work_dir / 'failed').write_text('it broke')
            ended(one)
    monkeypatch.setattr(STUDY, 'train_all', fail)
    assert mistake(STUDY.main, *configs) == '2 failed, the first: it broke'


def test_report_alone(tmp_path, planned, capsys):
    finished_study(tmp_path / 'out', [0], {'a': [], 'b': ['CutMix']})
    run(STUDY.main, '--report', '--work-dir', 'out')
    assert planned == [] and (tmp_path / 'out/locality_study.html').is_file()
    assert (tmp_path / 'out/summary.json').is_file()
    assert 'done' in capsys.readouterr().out


@pytest.mark.slow
def test_killed_and_resumed(configs, tmp_path):
    command = [sys.executable, str(REPOSITORY / 'tools/locality_study.py'), str(configs[0]),
               '--work-dir', 'out', '--cfg-options', 'train_cfg.max_epochs=60']
    environment = {**os.environ, 'PYTHONPATH': str(REPOSITORY)}
    work_dir = tmp_path / 'out/vit_tiny/seed0'
    with open('log.txt', 'w') as log:
        study = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        deadline = time.monotonic() + 120
        while not (work_dir / 'epoch_3.pth').exists():
            assert study.poll() is None and time.monotonic() < deadline, Path('log.txt').read_text()
            time.sleep(0.05)
        study.send_signal(signal.SIGTERM)
        assert study.wait(60) == 143
        assert not (work_dir / 'finished').exists()
        subprocess.run(command, env=environment, check=True, stdout=log, stderr=log, timeout=180)
    lines = [json.loads(line) for line in (work_dir / 'locality.jsonl').read_text().splitlines()]
    assert [line['epoch'] for line in lines] == list(range(61))
    assert (work_dir / 'finished').exists()
    logs = sorted(work_dir.glob('*/vis_data/scalars.json'))
    again = [json.loads(line) for line in logs[-1].read_text().splitlines()]
    assert len(logs) == 2
    assert min(line['step'] for line in again if 'accuracy/top1' in line) > 3  # not repeated
    summary = json.loads((tmp_path / 'out/summary.json').read_text())
    assert summary['conditions']['vit_tiny']['runs']['0']['state'] == 'done'
