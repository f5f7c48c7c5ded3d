"""tools/pack_cifar.py, and its file as a data set of a config."""
import re

import cv2
import mmpretrain.models  # noqa: F401
import numpy as np
import pytest
from config_helpers import load
from fabricated_data import make_cifar100
from mmengine.registry import DefaultScope
from mmpretrain.datasets import CIFAR100
from mmpretrain.registry import DATASETS
from tiny_runs import load_tool, mistake, run

from locat_mmseg.analysis.packed_images import read_packed

PACK = load_tool('pack_cifar').main


@pytest.fixture
def folders(tmp_path):
    """Three classes; image k of class c is filled with RGB (10 k, 100 c, split)."""
    for number, (split, count) in enumerate((('train', 4), ('test', 2))):
        for label, name in enumerate(('ape', 'bee', 'cow')):
            folder = tmp_path / 'source' / split / name
            folder.mkdir(parents=True)
            for k in range(count):
                image = np.full((32, 32, 3), (number, 100 * label, 10 * k), np.uint8)
                cv2.imwrite(str(folder / f'{k}.png'), image)
    return tmp_path / 'source'


def colours(packed) -> list[list[int]]:
    assert (packed.images == packed.images[:, :1, :1]).all()
    return packed.images[:, 0, 0].tolist()


def test_all_images_of_folders(folders, tmp_path, capsys):
    run(PACK, folders, tmp_path / 'new/pack.npz')
    test = read_packed(tmp_path / 'new/pack.npz', 'test')
    assert test.classes == ('ape', 'bee', 'cow') and test.labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert colours(test) == [[10 * k, 100 * label, 1] for label in range(3) for k in range(2)]
    assert '12 train, 6 test images, 3 classes, 0.0 MB' in capsys.readouterr().out


def test_first_images_of_each_class(folders, tmp_path):
    run(PACK, folders, tmp_path / 'pack.npz', '--train', 6, '--test', 3)
    train = read_packed(tmp_path / 'pack.npz', 'train')
    assert colours(train) == [[10 * k, 100 * label, 0] for label in range(3) for k in range(2)]
    assert len(read_packed(tmp_path / 'pack.npz', 'test').labels) == 3


@pytest.mark.parametrize('count', [0, 5, 15])
def test_counts_that_cannot_be_drawn(folders, tmp_path, count):
    assert 'give a multiple of 3, at most 12' in mistake(
        PACK, folders, tmp_path / 'pack.npz', '--train', count)


def test_a_file_that_cannot_be_written(folders):
    assert 'is a folder: give the name of a file' in mistake(PACK, folders, folders)


def test_no_data_set(tmp_path):
    assert re.search('holds none of train/, cifar-10-batches-py/ and cifar-100-python/',
                     mistake(PACK, tmp_path, tmp_path / 'pack.npz'))


def test_packed_file_takes_the_place_of_cifar100(tmp_path, monkeypatch):
    """The same configs, images, labels and classes as from the original pickles."""
    make_cifar100(tmp_path / 'cifar-100-python')
    monkeypatch.setattr(CIFAR100, '_check_integrity', lambda self: True)
    monkeypatch.setattr('torchvision.datasets.CIFAR100._check_integrity', lambda self: True)
    names = [f'class_{number:02d}' for number in range(100)]
    monkeypatch.setattr('torchvision.datasets.CIFAR100._load_meta',
                        lambda self: setattr(self, 'classes', names))
    run(PACK, tmp_path, tmp_path / 'pack.npz')
    for part in ('train', 'test'):
        config = load('cutmix_locality/vit-compact_modern_cifar100')[f'{part}_dataloader'].dataset
        config.pipeline = [dict(type='PackInputs')]
        with DefaultScope.overwrite_default_scope('mmpretrain'):
            original = DATASETS.build(dict(config, data_root=str(tmp_path)))
            packed = DATASETS.build(dict(config, type='PackedImages',
                                         data_root=str(tmp_path / 'pack.npz')))
        assert len(packed) == len(original) == 4 and packed.metainfo['classes'] == tuple(names)
        for ours, theirs in zip(packed, original):
            assert (ours['inputs'] == theirs['inputs']).all()
            assert ours['data_samples'].gt_label == theirs['data_samples'].gt_label
