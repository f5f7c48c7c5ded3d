"""The ablation study: what is done is not repeated, and all of it has the same settings."""
import json
import sys

import pytest
from tiny_runs import load_tool

STUDY = load_tool('ablation_study')


class Interrupted(Exception):
    pass


@pytest.fixture
def study(tmp_path, monkeypatch):
    """Runs the study with a stand-in for training; the n-th is interrupted."""
    def fake_training(runs, tool):
        run, = runs
        if run.finished:
            return
        fake_training.calls.append(str(run.work_dir.relative_to(tmp_path)))
        (run.work_dir / 'now/vis_data').mkdir(parents=True, exist_ok=True)
        (run.work_dir / 'last_checkpoint').write_text('/somewhere/epoch_1.pth')
        (run.work_dir / 'epoch_1.pth').touch()
        (run.work_dir / 'now/vis_data/scalars.json').write_text(
            json.dumps({run.metric: float(len(fake_training.calls)), 'step': 1}))
        if len(fake_training.calls) == fake_training.fails:
            raise Interrupted
        run.conclude(0)

    def run(*argv, fails=None):
        fake_training.calls, fake_training.fails = [], fails
        monkeypatch.setattr(sys, 'argv', ['ablation_study.py', *argv, '--seeds', '0',
                                          '--work-dir', str(tmp_path)])
        STUDY.main()
        return fake_training.calls
    run.made = fake_training
    monkeypatch.setattr(STUDY, 'train_all', fake_training)
    return run


def test_an_interrupted_study_goes_on_with_the_interrupted_run(study, tmp_path):
    with pytest.raises(Interrupted):
        study('a.py', 'b.py', fails=4)
    assert study.made.calls[-1] == 'variant1_seed0/probe'
    assert study('a.py', 'b.py') == ['variant1_seed0/probe'] + [
        f'variant{number}_seed0/{kind}' for number in (2, 3) for kind in ('pretrain', 'probe')]
    assert study('a.py', 'b.py') == []
    results = json.loads((tmp_path / 'results.json').read_text())
    assert results['+ GAug'] == {'0': {'pretrain': 3.0, 'probe': 1.0}}


def test_a_pretraining_that_was_interrupted_after_a_validation_is_not_taken_as_done(study):
    with pytest.raises(Interrupted):
        study('a.py', 'b.py', fails=1)
    assert study('a.py', 'b.py')[0] == 'variant0_seed0/pretrain'


def test_other_settings_in_the_same_work_dir_are_refused(study, tmp_path):
    study('a.py', 'b.py', '--probe-options', 'x=1')
    assert json.loads((tmp_path / 'settings.json').read_text()) == dict(
        pretrain='a.py', probe='b.py', pretrain_options=[], probe_options=['x=1'])
    for argv, noted in ((('c.py', 'b.py', '--probe-options', 'x=1'), 'pretrain a.py'),
                        (('a.py', 'b.py'), r"probe_options \['x=1'\]")):
        with pytest.raises(SystemExit, match=f'error: {tmp_path} holds runs of {noted}: give the'):
            study(*argv)
    assert study('a.py', 'b.py', '--probe-options', 'x=1') == []
