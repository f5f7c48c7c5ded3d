"""tools/packed_study.py as a user runs it, and where OpenMMLab is missing."""
import json
import subprocess
import sys

import numpy as np
import pytest
from test_import_direction import OPENMMLAB
from tiny_runs import REPOSITORY, load_tool, mistake, run

from locat_mmseg.analysis.packed_images import write_packed

STUDY = load_tool('packed_study').main
SHORT = ['--epochs', 1, '--warmup-epochs', 0, '--batch-size', 2, '--points', 1]


@pytest.fixture
def data(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    images = np.random.default_rng(0).integers(0, 256, (24, 32, 32, 3), np.uint8)
    labels = np.arange(24) % 2
    write_packed('data.npz', dict(train=(images, labels), test=(images[:2], labels[:2])), 'ab')
    return 'data.npz'


@pytest.mark.parametrize('preset, measured', [('protocols', 'minimum MAD'),
                                              ('architectures', 'linear probe')])
def test_presets(preset, measured, data, tmp_path, capsys):
    run(STUDY, preset, data, *SHORT, '--minutes', 0)
    table = (tmp_path / f'work_dirs/packed_study_{preset}/table.md').read_text()
    assert measured in table and table in capsys.readouterr().out
    assert table.count('not run') == dict(protocols=8, architectures=5)[preset]


def test_conditions_and_seeds(data, tmp_path, capsys):
    run(STUDY, 'protocols', data, *SHORT, '--work-dir', 'new', '--protocols', 'cutmix',
        '--seeds', 3, '--architectures', 'vit-prr', '--device', 'cpu', '--batch-size', 24)
    results = json.loads((tmp_path / 'new/results.json').read_text())
    row = results['conditions']['vit-prr_cutmix_seed3']
    assert row['finished'] and row['curve'][-1]['step'] == 1
    assert results['settings']['recipe'] == dict(
        epochs=1, warmup_epochs=0, batch_size=24, lr=1e-3, bfloat16=True)
    assert 'vit-prr_cutmix_seed3: 1 of 1 epochs' in capsys.readouterr().out


@pytest.mark.parametrize('argv, reason', [
    ([*SHORT, '--epochs', 0], '0 warm-up epochs of 0 epochs: expected fewer'),
    ([*SHORT, '--points', 0], 'points=0'),
    ([*SHORT, '--lr', 'nan'], 'learning rate nan: expected positive numbers'),
    ([*SHORT, '--work-dir', __file__], 'is a file: name another folder'),
    ([*SHORT, '--batch-size', 25], '24 training images make no batch of 25'),
])
def test_mistakes(argv, reason, data):
    assert reason in mistake(STUDY, 'protocols', data, *argv)


def test_no_packed_file(data, tmp_path):
    assert 'gone.npz is no packed data set, or not all of one: make one with tools/pack_cifar' \
        in mistake(STUDY, 'protocols', 'gone.npz', *SHORT)


def test_no_number_of_minutes(data, capsys):
    with pytest.raises(SystemExit, match='2'):
        run(STUDY, 'protocols', data, '--minutes', 'nan')
    assert '--minutes nan: expected a number from 0' in capsys.readouterr().err


def test_runs_without_openmmlab_and_matplotlib(data):
    """`None` in sys.modules makes Python treat a package as not installed."""
    code = f"""
import runpy, sys
sys.modules.update(dict.fromkeys({sorted(OPENMMLAB | {'matplotlib', 'faiss', 'sklearn'})!r}))
sys.argv = ['packed_study.py', 'protocols', 'data.npz', '--minutes', '0', '--batch-size', '8']
runpy.run_path({str(REPOSITORY / 'tools/packed_study.py')!r}, run_name='__main__')
"""
    done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True,
                          env={'PYTHONPATH': str(REPOSITORY)})
    assert done.returncode == 0, done.stderr
    assert 'Time was up before: vit_baseline_seed0, vit_cutmix_seed0' in done.stdout
