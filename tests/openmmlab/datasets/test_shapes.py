"""Self-drawn data sets: files without a disk, and OpenMMLab's transforms, metrics and hooks."""
import hashlib
import subprocess
import sys
from pathlib import Path

import cv2
import mmengine.fileio as fileio
import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.dataset import pseudo_collate
from mmengine.registry import DefaultScope
from mmengine.structures import PixelData
from mmpretrain.registry import DATASETS as CLS_DATASETS
from mmseg.engine import SegVisualizationHook
from mmseg.evaluation import IoUMetric
from mmseg.registry import DATASETS as SEG_DATASETS
from mmseg.visualization import SegLocalVisualizer
from torch.utils.data import DataLoader

from locat_mmseg.openmmlab.datasets import ShapesClsDataset, ShapesSegDataset
from locat_mmseg.openmmlab.datasets.draw_shapes import (
    CLASSES,
    Picture,
    draw_layout,
    label_map,
    largest_label,
)
from locat_mmseg.openmmlab.datasets.paint_shapes import draw_image
from locat_mmseg.openmmlab.datasets.shapes_files import image_path, label_path

CONFIGS = Path(__file__).resolve().parents[3] / 'configs/_base_/datasets'
PICTURE = Picture(0, 'test', 12, (128, 128))


def read(path, flag):
    return cv2.imdecode(np.frombuffer(fileio.get(path), np.uint8), flag)


def build_seg(part, **changes):
    """A data set of shapes_seg.py with mmseg's transforms, as the Runner builds it."""
    config = Config.fromfile(CONFIGS / 'shapes_seg.py')
    dataset = config[f'{part}_dataloader'].dataset
    dataset.update(changes)
    with DefaultScope.overwrite_default_scope('mmseg'):
        return SEG_DATASETS.build(dataset)


def test_a_longer_set_begins_with_the_shorter_one():
    short = ShapesSegDataset('train', 3)
    long = ShapesSegDataset('train', 9)
    assert [short.get_data_info(i)['img_path'] for i in range(3)] == [
        long.get_data_info(i)['img_path'] for i in range(3)]


@pytest.mark.parametrize('size', [(128, 128), (53, 97), (32, 200)])
def test_twins_show_the_same_pictures(size):
    seg = ShapesSegDataset('train', 4, img_size=size, seed=3)
    cls = ShapesClsDataset('train', 4, img_size=size, seed=3)
    for index in range(4):
        path = seg.get_data_info(index)['img_path']
        assert cls.get_data_info(index)['img_path'] == path
        picture = Picture(3, 'train', index, size)
        np.testing.assert_array_equal(read(path, cv2.IMREAD_COLOR), draw_image(picture))
        label = read(label_path(picture), cv2.IMREAD_UNCHANGED)
        assert label.shape == size and label.dtype == np.uint8
        np.testing.assert_array_equal(label, label_map(draw_layout(picture)))


def test_each_class_is_sometimes_the_largest():
    labels = ShapesClsDataset('train', 300).get_gt_labels()
    assert set(labels) == set(range(len(CLASSES) - 1))


# OpenMMLab's transforms, metrics and pictures.


@pytest.mark.parametrize('part', ['train', 'test'])
def test_segmentation_pipeline(part):
    item = build_seg(part)[5]
    assert item['inputs'].shape == (3, 128, 128) and item['inputs'].dtype == torch.uint8
    sample = item['data_samples']
    assert sample.gt_sem_seg.data.shape == (1, 128, 128)
    assert sample.img_path == f'shapes://0/128x128/shapes_{part}_000005.png'
    if part == 'test':
        assert sample.ori_shape == sample.img_shape == (128, 128)
        truth = label_map(draw_layout(Picture(0, 'test', 5, (128, 128))))
        np.testing.assert_array_equal(sample.gt_sem_seg.data[0].numpy(), truth)


def test_other_augmentations_of_mmseg():
    pipeline = [
        dict(type='LoadImageFromFile'), dict(type='LoadAnnotations'),
        dict(type='Resize', scale=(160, 160), keep_ratio=True),
        dict(type='RandomCrop', crop_size=(64, 96), cat_max_ratio=0.75),
        dict(type='RandomRotFlip'), dict(type='PhotoMetricDistortion'),
        dict(type='PackSegInputs')]
    dataset = build_seg('train', img_size=(100, 120), pipeline=pipeline)
    for index in range(4):
        item = dataset[index]
        assert item['inputs'].shape[1:] == item['data_samples'].gt_sem_seg.shape
        assert sorted(item['inputs'].shape[1:]) == [64, 96]


def test_segmentation_pipeline_for_augmented_tests():
    config = Config.fromfile(CONFIGS / 'shapes_seg.py')
    views = build_seg('test', img_size=(96, 132), pipeline=config.tta_pipeline)[0]
    assert [view.shape[1:] for view in views['inputs'][::2]] == [(72, 99), (96, 132), (120, 165)]
    assert all(sample.gt_sem_seg.shape == (96, 132) for sample in views['data_samples'])


def test_perfect_prediction_scores_100():
    dataset = build_seg('test', num_images=8)
    metric = IoUMetric(iou_metrics=['mIoU'])
    metric.dataset_meta = dataset.metainfo
    batch = pseudo_collate([dataset[i] for i in range(8)])
    for sample in batch['data_samples']:
        sample.pred_sem_seg = PixelData(data=sample.gt_sem_seg.data.clone())
    metric.process(batch, [sample.to_dict() for sample in batch['data_samples']])
    assert metric.evaluate(8)['mIoU'] == 100


def test_visualization_hook_finds_the_image(tmp_path):
    sample = build_seg('test')[12]['data_samples']
    sample.pred_sem_seg = PixelData(data=sample.gt_sem_seg.data.clone())
    visualizer = SegLocalVisualizer.get_instance('shapes', save_dir=str(tmp_path),
                                                 vis_backends=[dict(type='LocalVisBackend')])
    visualizer.dataset_meta = ShapesSegDataset.METAINFO
    SegVisualizationHook(draw=True).after_test_iter(None, 0, None, [sample])
    assert len(list(tmp_path.rglob('test_shapes_test_000012*.png'))) == 1


@pytest.mark.parametrize('part', ['train', 'test'])
def test_classification_pipeline(part):
    config = Config.fromfile(CONFIGS / 'shapes_cls.py')
    dataset = CLS_DATASETS.build(config[f'{part}_dataloader'].dataset)
    item = dataset[5]
    picture = Picture(0, part, 5, (128, 128))
    assert item['inputs'].shape == (3, 128, 128)
    assert item['data_samples'].gt_label.item() == largest_label(draw_layout(picture)) - 1
    assert item['data_samples'].img_path == image_path(picture)
    assert dataset.metainfo['classes'] == CLASSES[1:]


def test_fewer_classes_and_no_background():
    names = ('ring', 'disk')
    truth = label_map(draw_layout(Picture(0, 'test', 0, (128, 128))))
    fewer = build_seg('test', metainfo=dict(classes=names))[0]['data_samples'].gt_sem_seg.data[0]
    for new, name in enumerate(names):
        np.testing.assert_array_equal(fewer.numpy() == new, truth == CLASSES.index(name))
    reduced = build_seg('test', reduce_zero_label=True)[0]['data_samples'].gt_sem_seg.data[0]
    np.testing.assert_array_equal(reduced.numpy() == 255, truth == 0)


@pytest.mark.slow
def test_spawned_workers_draw_the_same():
    dataset = build_seg('test', num_images=4)
    loader = DataLoader(dataset, batch_size=2, num_workers=1, collate_fn=pseudo_collate,
                        multiprocessing_context='spawn')
    inputs = [image for batch in loader for image in batch['inputs']]
    assert all(torch.equal(image, dataset[i]['inputs']) for i, image in enumerate(inputs))
    assert len(inputs) == 4


@pytest.mark.slow
@pytest.mark.parametrize('absent, registered', [('mmseg', 'ShapesClsDataset'),
                                                ('mmpretrain', 'ShapesSegDataset')])
def test_only_what_is_installed_is_registered(absent, registered):
    code = (f'import sys; sys.modules[{absent!r}] = None\n'
            'import locat_mmseg.openmmlab.datasets as d\n'
            'print([name for name in dir(d) if name.endswith("Dataset")])')
    out = subprocess.run([sys.executable, '-W', 'ignore', '-c', code], capture_output=True,
                         text=True, check=True, cwd=CONFIGS.parents[2])
    assert out.stdout.splitlines()[-1] == str([registered])


@pytest.mark.slow
def test_another_process_reads_the_same_files():
    path = image_path(PICTURE)
    code = ('import hashlib, mmengine.fileio as f, locat_mmseg.openmmlab.datasets\n'
            f'print(hashlib.sha256(f.get({path!r})).hexdigest())')
    out = subprocess.run([sys.executable, '-W', 'ignore', '-c', code], capture_output=True,
                         text=True, check=True, cwd=CONFIGS.parents[2])
    assert out.stdout.split()[-1] == hashlib.sha256(fileio.get(path)).hexdigest()


# Mistakes.


@pytest.mark.parametrize('dataset', [ShapesSegDataset, ShapesClsDataset])
@pytest.mark.parametrize('arguments, message', [
    (dict(split='val', num_images=4), "split is 'val'; choose one of"),
    (dict(split='test', num_images=-1), 'num_images is -1; give at least 1'),
    (dict(split='test', num_images=0), 'num_images is 0; give at least 1'),
    (dict(split='test', num_images=4, seed=-1), 'seed is -1; give one from 0'),
    (dict(split='test', num_images=4, seed=1 << 32), 'seed is 4294967296'),
    (dict(split='test', num_images=4, img_size=(128, 16)), r'img_size is \(128, 16\); give'),
    (dict(split='test', num_images=4, img_size=(4096, 128)), r'img_size is \(4096, 128\)'),
    (dict(split='test', num_images=4, img_size=(64.5, 64)), r'img_size is \(64.5, 64\)'),
    (dict(split='test', num_images=4, img_size=(64, )), r'give \(height, width\), each from 32'),
])
def test_wrong_arguments(dataset, arguments, message):
    with pytest.raises(ValueError, match=message):
        dataset(**arguments)


@pytest.mark.parametrize('path, message', [
    ('shapes://0/128x128/disk.png', 'no self-drawn picture is called .* paths look like'),
    ('shapes://0/128x128/shapes_val_000001.png', "split is 'val'"),
    ('shapes://0/128x8/shapes_test_000001.png', 'img_size is'),
])
def test_wrong_paths(path, message):
    with pytest.raises(ValueError, match=message):
        fileio.get(path)


def test_a_picture_has_no_text():
    with pytest.raises(ValueError, match='has no text'):
        fileio.get_text(image_path(PICTURE))
