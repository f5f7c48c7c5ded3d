"""Tiny-ImageNet, on files in its published layout."""
import re
from pathlib import Path

import cv2
import numpy as np
import pytest
from mmengine.registry import DefaultScope
from mmpretrain.registry import DATASETS

from locat_mmseg.openmmlab.datasets import TinyImageNet

WNIDS = ('n03', 'n01', 'n02')  # unsorted, as in the published file
COLOURS = {'n01': (250, 10, 10), 'n02': (10, 250, 10), 'n03': (10, 10, 250)}  # BGR


def write_image(path: Path, wnid: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    image = np.full((64, 64, 3), COLOURS[wnid], np.uint8)
    cv2.imwrite(str(path), image, [cv2.IMWRITE_JPEG_QUALITY, 100])


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for wnid in WNIDS:
        for number in range(2):
            write_image(tmp_path / f'train/{wnid}/images/{wnid}_{number}.JPEG', wnid)
        (tmp_path / f'train/{wnid}/{wnid}_boxes.txt').write_text('')
    lines = []
    for number, wnid in enumerate(('n02', 'n03', 'n02', 'n01')):
        write_image(tmp_path / f'val/images/val_{number}.JPEG', wnid)
        lines.append(f'val_{number}.JPEG\t{wnid}\t0\t32\t44\t62')
    (tmp_path / 'val/val_annotations.txt').write_text('\n'.join(lines) + '\n')
    (tmp_path / 'wnids.txt').write_text('\n'.join(WNIDS))
    (tmp_path / 'words.txt').write_text('n00\tentity\nn01\ttench, Tinca tinca\nn02\tfrog\nn03\tox')
    return tmp_path


def records(root: Path, split: str) -> list[tuple[str, int]]:
    dataset = TinyImageNet(str(root), split)
    return [(Path(info['img_path']).name, info['gt_label'])
            for info in map(dataset.get_data_info, range(len(dataset)))]


def test_training_labels_are_the_folders(root):
    assert records(root, 'train') == [(f'n0{label + 1}_{number}.JPEG', label)
                                      for label in range(3) for number in range(2)]


def test_validation_labels_come_from_the_file(root):
    assert records(root, 'val') == [('val_0.JPEG', 1), ('val_1.JPEG', 2), ('val_2.JPEG', 1),
                                    ('val_3.JPEG', 0)]


@pytest.mark.parametrize('split', ['train', 'val'])
def test_pictures_and_names_belong_to_the_labels(root, split):
    with DefaultScope.overwrite_default_scope('mmpretrain'):
        dataset = DATASETS.build(dict(
            type='TinyImageNet', data_root=str(root), split=split,
            pipeline=[dict(type='LoadImageFromFile'), dict(type='PackInputs')]))
    assert dataset.metainfo['classes'] == ('tench, Tinca tinca', 'frog', 'ox')
    for item in dataset:
        colour = COLOURS[f'n0{item["data_samples"].gt_label.item() + 1}']
        assert np.abs(item['inputs'].numpy()[:, 30, 30] - np.array(colour, int)).max() < 8


def test_a_part_of_it(root):
    assert len(TinyImageNet(str(root), 'val', indices=3)) == 3


def test_unknown_split(root):
    with pytest.raises(ValueError, match="split='test': expected one of .*not public"):
        TinyImageNet(str(root), 'test')


def test_missing_list_of_classes(root):
    (root / 'wnids.txt').unlink()
    with pytest.raises(FileNotFoundError, match='wnids.txt'):
        TinyImageNet(str(root), 'val')


def test_class_without_a_name(root):
    (root / 'words.txt').write_text('n01\ttench\nn03\tox')
    with pytest.raises(ValueError, match='has no name for class n02 of wnids.txt'):
        TinyImageNet(str(root), 'val')


def test_label_that_is_no_class(root):
    with open(root / 'val/val_annotations.txt', 'a') as file:
        file.write('val_4.JPEG\tn09\t0\t0\t1\t1\n')
    with pytest.raises(ValueError, match='labels val_4.JPEG n09, which is no class'):
        TinyImageNet(str(root), 'val')


def test_folder_that_is_no_class(root):
    (root / 'train/n03').rename(root / 'train/n04')
    with pytest.raises(ValueError, match=re.escape('differ in n03, n04: unpack')):
        TinyImageNet(str(root), 'train')
