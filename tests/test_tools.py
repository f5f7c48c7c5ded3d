"""tools/train.py and tools/test.py as a user runs them."""
import os
import pickle
import shutil
import subprocess
import warnings
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from tiny_runs import REPOSITORY, load_tool, mistake, run

TRAIN, TEST = load_tool('train').main, load_tool('test').main
pytestmark = pytest.mark.usefixtures('clean_process')


def steps_of(checkpoint: Path) -> int:
    """Steps that the optimizer took for its first parameter."""
    return int(torch.load(checkpoint, weights_only=False)['optimizer']['state'][0]['step'])


# ---- training ----

def test_train_leaves_checkpoints_and_log_in_the_default_work_dir(segmentation_config, tmp_path):
    config = segmentation_config()
    run(TRAIN, config)
    work_dir = tmp_path / 'work_dirs' / config.stem
    assert (work_dir / 'last_checkpoint').read_text() == str(work_dir / 'iter_2.pth')
    assert steps_of(work_dir / 'iter_2.pth') == 2
    log, = work_dir.glob('*/*.log')
    assert 'mIoU' in log.read_text()


def test_resume_continues_from_the_last_checkpoint(trained, tmp_path):
    config, work_dir = trained
    shutil.copytree(work_dir, tmp_path / 'moved')
    (tmp_path / 'moved/last_checkpoint').write_text('/somewhere/else/iter_2.pth')
    run(TRAIN, config, '--work-dir', 'moved', '--resume', '--cfg-options', 'train_cfg.max_iters=3')
    assert steps_of(tmp_path / 'moved/iter_3.pth') == 3


def test_resume_from_a_path(trained, tmp_path):
    config, work_dir = trained
    run(TRAIN, config, '--work-dir', 'new', '--resume', work_dir / 'iter_1.pth')
    assert steps_of(tmp_path / 'new/iter_2.pth') == 2
    assert not (tmp_path / 'new/iter_1.pth').exists()


def test_resume_without_a_checkpoint_starts_with_a_warning(segmentation_config, tmp_path):
    with pytest.warns(UserWarning, match='no checkpoint in new: training starts from the beginn'):
        run(TRAIN, segmentation_config(), '--work-dir', 'new', '--resume')
    assert steps_of(tmp_path / 'new/iter_2.pth') == 2


def test_best_checkpoint_of_the_original_survives_resuming_a_copy(segmentation_config, tmp_path):
    best = "\ndefault_hooks['checkpoint'].update(save_best='mIoU', rule='{}')" \
           '\ntrain_cfg.update(val_interval=1)'
    run(TRAIN, segmentation_config(best.format('greater')), '--work-dir', 'old')
    originals = {path.name for path in (tmp_path / 'old').glob('best*')}
    shutil.copytree('old', 'new')
    # A new best one is certain: any score is less than none.
    last = torch.load('new/iter_2.pth', weights_only=False)
    last['message_hub']['runtime_info']['best_score'] = -1.
    torch.save(last, 'new/iter_2.pth')
    run(TRAIN, segmentation_config(best.format('greater')), '--work-dir', 'new', '--resume',
        '--cfg-options', 'train_cfg.max_iters=3')
    assert {path.name for path in (tmp_path / 'old').glob('best*')} == originals
    assert (tmp_path / 'new/best_mIoU_iter_3.pth').is_file()


def test_amp_without_accelerator_runs_with_one_warning(segmentation_config, tmp_path):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter('always')
        run(TRAIN, segmentation_config(), '--work-dir', 'run', '--amp')
    about_amp = [w for w in caught if 'mixed precision' in str(w.message)]
    assert len(about_amp) == 1 - torch.cuda.is_available()
    assert steps_of(tmp_path / 'run/iter_2.pth') == 2


def test_same_seed_same_weights(segmentation_config, tmp_path):
    for name, seed in (('a', 5), ('b', 5), ('c', 6)):
        run(TRAIN, segmentation_config(), '--work-dir', name, '--seed', seed, '--deterministic')
    a, b, c = (torch.load(tmp_path / n / 'iter_2.pth', weights_only=False)['state_dict']
               for n in 'abc')
    assert all(torch.equal(a[key], b[key]) for key in a)
    assert not all(torch.equal(a[key], c[key]) for key in a)
    assert torch.are_deterministic_algorithms_enabled()
    assert torch.is_deterministic_algorithms_warn_only_enabled()


def test_classification_trains_and_tests_with_the_same_tools(classification_config, tmp_path):
    config = classification_config()
    run(TRAIN, config, '--work-dir', 'run')
    checkpoint = tmp_path / 'run/epoch_2.pth'
    assert steps_of(checkpoint) == 4
    run(TEST, config, checkpoint, '--work-dir', 'run', '--out', 'out', '--show-dir', 'pictures')
    predictions = pickle.loads((tmp_path / 'out/predictions.pkl').read_bytes())
    assert [p['gt_label'].item() for p in predictions] == [0, 0, 1, 1]
    assert all(p['pred_score'].shape == (2,) for p in predictions)
    assert {p.name for p in (tmp_path / 'pictures').iterdir()} == {
        f'{name}_{name}{k}.png_0.png' for name in ('cat', 'dog') for k in range(2)}
    picture = cv2.imread(str(tmp_path / 'pictures/dog_dog0.png_0.png'))
    assert picture.shape == (37, 53, 3)  # that of the file, not the model's 32 x 32
    assert np.median(picture[-5:]) == 180
    run(TEST, config, checkpoint, '--work-dir', 'run', '--out', 'tta', '--tta')
    merged = pickle.loads((tmp_path / 'tta/predictions.pkl').read_bytes())
    assert len(merged) == 4
    assert 'draws no pictures under test-time augmentation' in mistake(
        TEST, config, checkpoint, '--tta', '--show-dir', 'pictures')


# ---- testing ----

@pytest.mark.parametrize('tta', [[], ['--tta']], ids=['plain', 'tta'])
def test_out_writes_label_maps_of_the_image_size(trained, tmp_path, tta):
    config, work_dir = trained
    run(TEST, config, work_dir / 'iter_2.pth', '--out', 'out', *tta)
    for name, size in (('4.png', (37, 53)), ('5.png', (41, 48))):
        labels = cv2.imread(str(tmp_path / 'out' / name), cv2.IMREAD_UNCHANGED)
        assert labels.shape == size
        assert set(np.unique(labels)) <= {0, 1, 2}


def test_out_in_the_numbers_of_the_data_set(trained, tmp_path):
    """With reduce_zero_label the first class is called 1 in the files."""
    config, work_dir = trained
    run(TEST, config, work_dir / 'iter_2.pth', '--out', 'out0')
    run(TEST, config, work_dir / 'iter_2.pth', '--out', 'out1', '--cfg-options',
        'test_dataloader.dataset.reduce_zero_label=True')
    plain, shifted = (cv2.imread(str(tmp_path / d / '4.png'), cv2.IMREAD_UNCHANGED)
                      for d in ('out0', 'out1'))
    np.testing.assert_array_equal(shifted, plain + 1)


def test_show_dir_gets_a_picture_of_every_image(trained, tmp_path, segmentation_config):
    run(TEST, segmentation_config(), trained[1] / 'iter_2.pth', '--show-dir', 'pictures')
    assert {p.name for p in (tmp_path / 'pictures').glob('*.png')} == {'test_4.png_1.png',
                                                                       'test_5.png_2.png'}


def test_of_several_processes_one_draws_with_a_warning(trained, segmentation_config, tmp_path,
                                                       monkeypatch):
    monkeypatch.delenv('RANK', raising=False)
    with pytest.warns(UserWarning, match='only the first process draws, its share of the images'):
        mistake(TEST, segmentation_config(), trained[1] / 'iter_2.pth', '--show-dir', 'pictures',
                '--launcher', 'pytorch')


@pytest.mark.parametrize('wrap', ["dict(type='RepeatDataset', times=1, dataset={})",
                                  "dict(type='ConcatDataset', datasets=[{}])"])
def test_test_time_augmentation_of_wrapped_data_sets(trained, segmentation_config, tmp_path, wrap):
    lines = "\ntest_dataloader = dict(val_dataloader, dataset={})".format(
        wrap.format("val_dataloader['dataset']"))
    run(TEST, segmentation_config(lines), trained[1] / 'iter_2.pth', '--tta', '--work-dir', 'run',
        '--out', 'out')
    assert {path.name for path in (tmp_path / 'out').iterdir()} == {'4.png', '5.png'}


def test_out_with_a_class_as_type_of_the_evaluator(trained, segmentation_config, tmp_path):
    lines = '\nfrom mmseg.evaluation import IoUMetric\ntest_evaluator = dict(type=IoUMetric)'
    run(TEST, segmentation_config(lines), trained[1] / 'iter_2.pth', '--out', 'out')
    assert (tmp_path / 'out/4.png').is_file()


@pytest.mark.parametrize('extra, argv, reason', [
    ("\ntest_evaluator = dict(type='DumpResults', out_file_path='a.pkl')", ['--out', 'out'],
     '--out needs an IoUMetric in test_evaluator'),
    ("\ndefault_scope = 'mmengine'", ['--show-dir', 'pictures'],
     "--out and --show-dir need default_scope='mmseg' or 'mmpretrain', the config has 'mmengine'"),
    ('\ndel tta_pipeline', ['--tta'], '--tta needs tta_pipeline in the config'),
    ('\ntest_evaluator = None', ['--out', 'out'], 'the config has no test_evaluator: test_dataloa'),
    ('\ndel test_dataloader', ['--tta'], 'the config has no test_dataloader: test_dataloader, '),
    ('\ndel test_dataloader, test_evaluator, test_cfg', [],
     'the config has no test_dataloader and no test_cfg and no test_evaluator: '),
])
def test_outputs_that_the_config_cannot_give(trained, segmentation_config, extra, argv, reason):
    assert reason in mistake(TEST, segmentation_config(extra), trained[1] / 'iter_2.pth', *argv)


@pytest.mark.parametrize('script', ['dist_train.sh', 'dist_test.sh', 'slurm_train.sh'])
def test_shell_scripts_pass_every_argument_on(script, tmp_path, monkeypatch):
    """torchrun and srun are replaced by a program that prints what it was given."""
    for name in ('torchrun', 'srun'):
        (tmp_path / name).write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
        (tmp_path / name).chmod(0o755)
    given = {'dist_train.sh': ['c.py', '2'], 'dist_test.sh': ['c.py', 'a.pth', '2'],
             'slurm_train.sh': ['part', 'job', 'c.py']}[script]
    ended = subprocess.run([str(REPOSITORY / 'tools' / script), *given, '--work-dir', 'a b'],
                           env=dict(PATH=f'{tmp_path}:{os.environ["PATH"]}'), check=True,
                           capture_output=True, text=True)
    words = ended.stdout.splitlines()
    tool = words.index(next(w for w in words if w.endswith('.py') and w != 'c.py'))
    assert Path(words[tool]).resolve() == REPOSITORY / 'tools' / (
        'test.py' if script == 'dist_test.sh' else 'train.py')
    assert words[-2:] == ['--work-dir', 'a b']
    assert words[tool + 1] == 'c.py'
    assert words[words.index('--launcher') + 1] == ('slurm' if 'slurm' in script else 'pytorch')
    if 'dist' in script:
        assert '--nproc-per-node=2' in words
