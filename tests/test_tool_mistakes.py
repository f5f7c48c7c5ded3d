"""The mistakes of a user: one sentence and status 1; those of the code: a traceback."""
import os
import re
import subprocess
import sys
from urllib.error import URLError

import cv2
import numpy as np
import pytest
import torch
from mmengine.runner import Runner
from tiny_runs import REPOSITORY, load_tool, mistake, run

TRAIN, TEST = load_tool('train').main, load_tool('test').main
pytestmark = pytest.mark.usefixtures('clean_process')


def test_no_such_config():
    assert 'config nowhere.py does not exist' in mistake(TRAIN, 'nowhere.py')
    assert 'config nowhere.py does not exist' in mistake(TEST, 'nowhere.py', 'a.pth')


def test_config_with_a_syntax_error(segmentation_config):
    assert 'cannot be read: SyntaxError' in mistake(TRAIN, segmentation_config('\nmodel = ('))


def test_wrong_scope(segmentation_config):
    text = mistake(TRAIN, segmentation_config(), '--cfg-options', 'default_scope=mmpretrain')
    assert "asks for type='BaseSegDataset'" in text
    assert "mmseg has it: write type='mmseg.BaseSegDataset', or default_scope = 'mmseg'" in text


def test_unknown_type(segmentation_config):
    text = mistake(TRAIN, segmentation_config(), '--cfg-options', 'model.backbone.type=MyViT')
    assert "type='MyViT'" in text
    assert "custom_imports = dict(imports=['your_module'], allow_failed_imports=False)" in text


def test_argument_that_does_not_exist(segmentation_config):
    text = mistake(TRAIN, segmentation_config(), '--cfg-options', 'model.backbone.img_sise=3')
    assert "cannot build VisionTransformer" in text and "'img_sise'" in text


def test_missing_data_folder(segmentation_config):
    key = 'val_dataloader.dataset.data_root'
    text = mistake(TRAIN, segmentation_config(), '--cfg-options', f'{key}=gone')
    assert text.startswith(f'{key} is gone, which does not exist')


def test_unreadable_image_in_a_worker(segmentation_config, segmentation_data):
    broken = segmentation_data / 'images/train/1.png'
    broken.write_bytes(broken.read_bytes()[:40])
    text = mistake(TRAIN, segmentation_config(), '--cfg-options', 'train_dataloader.num_workers=1',
                   'train_cfg.max_iters=8')
    assert text.startswith(f'LoadImageFromFile cannot read {broken} (')


def test_label_outside_the_classes(segmentation_config, segmentation_data):
    path = segmentation_data / 'annotations/train/1.png'
    cv2.imwrite(str(path), np.full((41, 48), 7, np.uint8))
    assert f'{path} has label 7, but allowed are' in mistake(TRAIN, segmentation_config())


def test_coloured_label_map(segmentation_config, segmentation_data):
    path = segmentation_data / 'annotations/val/4.png'
    cv2.imwrite(str(path), np.zeros((37, 53, 3), np.uint8))
    text = mistake(TRAIN, segmentation_config())
    assert f'label map {path} has shape (37, 53, 3)' in text


def test_missing_checkpoint(trained):
    assert 'checkpoint gone.pth does not exist' in mistake(TEST, trained[0], 'gone.pth')
    assert 'checkpoint gone.pth does not exist' in mistake(TRAIN, trained[0], '--resume',
                                                           'gone.pth')
    assert 'checkpoint gone.pth does not exist' in mistake(TRAIN, trained[0], '--cfg-options',
                                                           'load_from=gone.pth')


def test_checkpoint_of_another_model(trained, classification_config):
    text = mistake(TEST, classification_config(), trained[1] / 'iter_2.pth')
    assert 'does not fit this ImageClassifier' in text
    assert 'It looks like a segmentation model for 3 classes' in text


def test_checkpoint_with_other_classes(trained):
    config, work_dir = trained
    text = mistake(TEST, config, work_dir / 'iter_2.pth', '--cfg-options',
                   'model.decode_head.channels=8')
    assert re.search(r'[1-9]\d* of another shape \(decode_head\.', text)


def test_corrupt_checkpoint(trained, tmp_path):
    config, work_dir = trained
    whole = (work_dir / 'iter_2.pth').read_bytes()
    (tmp_path / 'half.pth').write_bytes(whole[:len(whole) // 2])
    assert 'checkpoint half.pth cannot be read' in mistake(TEST, config, 'half.pth')
    assert 'checkpoint half.pth cannot be read' in mistake(TRAIN, config, '--resume', 'half.pth')


def test_weights_cannot_be_resumed(trained, tmp_path):
    config, work_dir = trained
    weights = torch.load(work_dir / 'iter_2.pth', weights_only=False)['state_dict']
    torch.save(weights, tmp_path / 'weights.pth')
    assert 'weights.pth cannot be resumed, it has no meta' in mistake(TRAIN, config, '--resume',
                                                                      'weights.pth')


def test_resume_with_other_groups_of_parameters(trained):
    config, work_dir = trained
    text = mistake(TRAIN, config, '--resume', work_dir / 'iter_2.pth', '--cfg-options',
                   'optim_wrapper.optimizer.weight_decay=0.1',
                   'optim_wrapper.paramwise_cfg.norm_decay_mult=0')
    assert re.search(r'optimizer has (\d+) parameters in 1 groups, this run has \1 in \1', text)


def test_classes_that_the_head_does_not_have(segmentation_config):
    text = mistake(TRAIN, segmentation_config(), '--cfg-options', 'model.decode_head.num_classes=9')
    assert 'has 3 classes, but model.decode_head.num_classes is 9' in text


def test_mistyped_top_level_key_warns_and_runs(segmentation_config, tmp_path):
    with pytest.warns(UserWarning, match='sets train_cgf.*did you mean train_cfg'):
        run(TRAIN, segmentation_config(), '--work-dir', 'run', '--cfg-options',
            'train_cgf.max_iters=9')
    assert (tmp_path / 'run/iter_2.pth').is_file()


def test_data_set_that_cannot_be_downloaded(classification_config, monkeypatch):
    def unreachable(*args, **kwargs):
        raise URLError('no network')
    monkeypatch.setattr('mmpretrain.datasets.cifar.download_and_extract_archive', unreachable)
    text = mistake(TRAIN, classification_config(
        "\ntrain_dataloader['dataset'] = dict(type='CIFAR100', data_root='c100')"))
    assert text.startswith('CIFAR100 is not in c100') and 'no network' in text


def test_torchrun_is_missing(segmentation_config, monkeypatch):
    monkeypatch.delenv('RANK', raising=False)
    assert 'start with torchrun' in mistake(TRAIN, segmentation_config(), '--launcher', 'pytorch')


def test_a_defect_keeps_its_traceback(segmentation_config, monkeypatch):
    def defective(self):
        raise RuntimeError('a defect')
    monkeypatch.setattr(Runner, 'train', defective)
    with pytest.raises(RuntimeError, match='a defect'):
        run(TRAIN, segmentation_config(), '--work-dir', 'run')


def test_a_mistake_in_a_process_of_its_own(trained):
    """Status 1, one sentence on stderr, no traceback."""
    path = os.pathsep.join([str(REPOSITORY), os.environ.get('PYTHONPATH', '')])
    ended = subprocess.run(
        [sys.executable, '-W', 'ignore', str(REPOSITORY / 'tools/test.py'), str(trained[0]),
         'gone.pth'], env=dict(os.environ, PYTHONPATH=path), capture_output=True, text=True)
    assert ended.returncode == 1
    assert ended.stderr == 'error: checkpoint gone.pth does not exist: give the path of a .pth ' \
                           'file\n'
