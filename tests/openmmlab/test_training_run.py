"""Runs in processes of their own: not repeated, resumed, ended; a script stands in for train.py."""
import os
import signal
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from locat_mmseg.openmmlab.training_run import TrainingRun, number_of, train_all

# An epoch writes its checkpoint, then its score, as mmengine does; it notes itself in `epochs`.
# How it goes is told by the config's text: 'sleep' never ends its second epoch, 'fail' fails,
# 'unvalidated' is killed after its last checkpoint unless it is there again, 'blind' has no scores.
TRAIN = '''
import json, os, sys, time
from pathlib import Path
config, work_dir = Path(sys.argv[1]).read_text(), Path(sys.argv[sys.argv.index('--work-dir') + 1])
note = work_dir / 'last_checkpoint'
done = int(Path(note.read_text()).stem.split('_')[1]) if note.exists() else 0
logs = work_dir / f'{len(list(work_dir.glob("*/vis_data")))}/vis_data'
logs.mkdir(parents=True)
for epoch in range(done + 1, 4):
    with open(work_dir / 'epochs', 'a') as file:
        file.write(f'{epoch}{os.environ.get("CUDA_VISIBLE_DEVICES", "")} ')
    if config == 'sleep' and epoch == 2:
        time.sleep(100)
    if config == 'fail':
        sys.exit('error: it cannot work')
    (work_dir / f'epoch_{epoch}.pth').touch()
    note.write_text(f'/elsewhere/epoch_{epoch}.pth')
    if config == 'unvalidated' and epoch == 3 and done == 0:
        os.abort()
    if config != 'blind':
        with open(logs / 'scalars.json', 'a') as file:
            file.write(json.dumps({'top1': 10. * epoch, 'step': epoch}) + chr(10))
'''


@pytest.fixture
def tool(tmp_path, monkeypatch):
    monkeypatch.delenv('CUDA_VISIBLE_DEVICES', raising=False)
    path = tmp_path / 'train.py'
    path.write_text(TRAIN)
    return path


@pytest.fixture
def make_run(tmp_path):
    def make(name: str, behaviour: str = 'good', **kwargs) -> TrainingRun:
        config = tmp_path / f'{name}.cfg'
        config.write_text(behaviour)
        return TrainingRun(str(config), tmp_path / name, 0, 'top1', **kwargs)
    return make


@pytest.fixture
def end_time_when(monkeypatch):
    """Call it with a condition: time stands still until that is met, then the budget is over."""
    def set_condition(condition) -> None:
        clock = SimpleNamespace(sleep=time.sleep, monotonic=lambda: 1e9 if condition() else 0.)
        monkeypatch.setattr('locat_mmseg.openmmlab.training_run.time', clock)
    return set_condition


def epochs(run: TrainingRun) -> str:
    path = run.work_dir / 'epochs'
    return path.read_text() if path.exists() else ''


def wait_for(condition) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_finished_runs_are_not_repeated(make_run, tool):
    runs, ended = [make_run('a'), make_run('b')], []
    train_all(runs, tool, ended=ended.append)
    assert ended == runs and all(run.finished and not run.failure for run in runs)
    train_all([*runs, make_run('c')], tool, ended=ended.append)
    assert [epochs(run) for run in ended] == ['1 2 3 '] * 3


def test_the_command(make_run, tool, tmp_path):
    tool.write_text('import sys; print(sys.argv[1:])')
    run = make_run('a', options=['x=1', 'y=2'])
    train_all([run], tool)
    assert (run.work_dir / 'output.txt').read_text().splitlines()[0] == str(
        [run.config, '--work-dir', str(run.work_dir), '--seed', '0', '--resume',
         '--cfg-options', 'x=1', 'y=2'])


def test_a_failed_run_leaves_its_reason_and_the_others_go_on(make_run, tool):
    bad, good = make_run('a', 'fail'), make_run('b')
    train_all([bad, good], tool)
    assert good.finished and not bad.finished
    assert bad.failure.startswith('training ended with status 1: it cannot work (see ')
    Path(bad.config).write_text('good')
    train_all([bad], tool)
    assert bad.finished and bad.failure == ''


def test_the_end_of_the_time_stops_and_the_next_call_resumes(make_run, tool, end_time_when):
    slow, waiting = make_run('a', 'sleep'), make_run('b')
    end_time_when(lambda: epochs(slow) == '1 2 ')
    train_all([slow, waiting], tool, seconds=60)
    assert epochs(slow) == '1 2 ' and not slow.finished and not slow.failure
    assert not waiting.work_dir.exists()
    Path(slow.config).write_text('good')
    end_time_when(lambda: False)
    train_all([slow, waiting], tool)
    assert epochs(slow) == '1 2 2 3 '  # the first epoch is not repeated
    assert epochs(waiting) == '1 2 3 '


def test_a_run_killed_before_its_last_validation_goes_there_again(make_run, tool):
    run = make_run('a', 'unvalidated')
    train_all([run], tool)
    assert 'status -6' in run.failure
    train_all([run], tool)
    assert run.finished and epochs(run) == '1 2 3 3 '


def test_without_the_metric_a_run_is_not_finished(make_run, tool):
    run = make_run('a', 'blind')
    train_all([run], tool)
    assert run.failure.startswith('the log has no top1 after the last step: the config must')
    assert epochs(run) == '1 2 3 3 '  # once again, not for ever


def test_step_back(make_run):
    run = make_run('a')
    run.work_dir.mkdir()
    run.step_back()  # nothing to go back to
    for name in ('epoch_9', 'epoch_10', 'best_top1_epoch_9'):
        (run.work_dir / f'{name}.pth').touch()
    note = run.work_dir / 'last_checkpoint'
    note.write_text('epoch_10.pth')
    run.step_back()
    assert Path(note.read_text()).name == 'epoch_9.pth'
    run.step_back()
    assert not note.exists()


@pytest.mark.parametrize('name, number', [('epoch_9.pth', 9), ('/a_1/iter_100.pth', 100)])
def test_number_of(name, number):
    assert number_of(name) == number


def test_each_gpu_has_one_run_at_a_time(make_run, tool, end_time_when):
    runs = [make_run(name, 'sleep') for name in 'abc']
    end_time_when(lambda: [epochs(run) for run in runs[:2]] == ['12 22 ', '15 25 '])
    train_all(runs, tool, gpus=['2', '5'], seconds=60)
    assert not runs[2].work_dir.exists()


def test_a_work_dir_that_another_process_trains_is_left_to_it(make_run, tool, capsys,
                                                                 end_time_when):
    run = make_run('a', 'sleep')
    process = run.start(tool, None)
    try:
        assert run.start(tool, None) is None
        polls = iter(range(5))
        end_time_when(lambda: next(polls) == 4)
        train_all([run], tool, seconds=60)
        assert capsys.readouterr().out == f'{run.work_dir}: another process trains it\n'
        assert process.poll() is None
    finally:
        process.kill()
        process.wait()
    Path(run.config).write_text('good')
    end_time_when(lambda: False)
    train_all([run], tool)
    assert run.finished


def test_sigterm_ends_what_was_started_and_is_handled_as_before_afterwards(make_run, tool):
    before = signal.getsignal(signal.SIGTERM)
    run = make_run('a', 'sleep')

    def terminate() -> None:
        wait_for((run.work_dir / 'epochs').exists)
        os.kill(os.getpid(), signal.SIGTERM)
    with pytest.raises(SystemExit) as exit_:
        threading.Thread(target=terminate).start()
        train_all([run], tool)
    assert exit_.value.code == 128 + signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) is before
    Path(run.config).write_text('good')
    train_all([run], tool)  # the lock is free
    assert run.finished
