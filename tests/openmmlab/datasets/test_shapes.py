"""Self-drawn shapes: same bytes everywhere, labels that are true, fine structure that matters."""
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
from locat_mmseg.openmmlab.datasets.draw_shapes import (CLASSES, SOLID, SPLITS, Instance, Layout,
                                                        Picture, draw_layout, label_map,
                                                        largest_label)
from locat_mmseg.openmmlab.datasets.paint_shapes import draw_image
from locat_mmseg.openmmlab.datasets.shapes_files import image_path, label_path

CONFIGS = Path(__file__).resolve().parents[3] / 'configs/_base_/datasets'
PICTURES = [Picture(seed, split, index, size) for seed in (0, 7) for split in SPLITS
            for index in range(3) for size in ((128, 128), (53, 97), (200, 64))]
DIGEST = 'PIN'


def digest(pictures):
    """sha256 over the pixels of images and label maps."""
    sha = hashlib.sha256()
    for picture in pictures:
        sha.update(draw_image(picture).tobytes())
        sha.update(label_map(draw_layout(picture)).tobytes())
    return sha.hexdigest()


def read(path, flag):
    return cv2.imdecode(np.frombuffer(fileio.get(path), np.uint8), flag)


def build_seg(part, **changes):
    """A data set of shapes_seg.py with mmseg's transforms, as the Runner builds it."""
    config = Config.fromfile(CONFIGS / 'shapes_seg.py')
    dataset = config[f'{part}_dataloader'].dataset
    dataset.update(changes)
    with DefaultScope.overwrite_default_scope('mmseg'):
        return SEG_DATASETS.build(dataset)


@pytest.fixture(scope='module')
def true_labels():
    """All label maps of the test set of shapes_seg.py, (200, 128, 128)."""
    dataset = build_seg('test')
    assert len(dataset) == 200
    return np.stack([read(dataset.get_data_info(i)['seg_map_path'], cv2.IMREAD_UNCHANGED)
                     for i in range(len(dataset))])


# Sameness.


def test_bytes_are_pinned():
    assert digest(PICTURES) == DIGEST


def test_bytes_do_not_depend_on_what_was_drawn_before():
    alone = []
    for picture in reversed(PICTURES[:6]):
        draw_layout.cache_clear()
        alone.append(digest([picture]))
    assert alone[::-1] == [digest([picture]) for picture in PICTURES[:6]]


@pytest.mark.slow
def test_another_process_reads_the_same_files():
    path = image_path(PICTURES[0])
    code = ('import hashlib, mmengine.fileio as f, locat_mmseg.openmmlab.datasets\n'
            f'print(hashlib.sha256(f.get({path!r})).hexdigest())')
    out = subprocess.run([sys.executable, '-W', 'ignore', '-c', code], capture_output=True,
                         text=True, check=True, cwd=CONFIGS.parents[2])
    assert out.stdout.split()[-1] == hashlib.sha256(fileio.get(path)).hexdigest()


def test_a_longer_set_begins_with_the_shorter_one():
    short = ShapesSegDataset('train', 3)
    long = ShapesSegDataset('train', 9)
    assert [short.get_data_info(i)['img_path'] for i in range(3)] == [
        long.get_data_info(i)['img_path'] for i in range(3)]


def test_splits_and_seeds_are_disjoint():
    drawn = [digest([Picture(seed, split, index, (64, 64))])
             for seed in (0, 1) for split in SPLITS for index in range(100)]
    assert len(set(drawn)) == 400
    labels = [label_map(draw_layout(Picture(0, split, index, (64, 64)))).tobytes()
              for split in SPLITS for index in range(100)]
    assert len(set(labels)) == 200


# Fine structure, by two measures.


def vote_per_block(labels, block=16):
    """Label maps (n, H, W) with each block's labels replaced by its commonest; ties: the least."""
    voted = np.empty_like(labels)
    for y in range(0, labels.shape[1], block):
        for x in range(0, labels.shape[2], block):
            where = np.s_[:, y:y + block, x:x + block]
            counts = [(labels[where] == c).sum((1, 2)) for c in range(len(CLASSES))]
            voted[where] = np.argmax(counts, 0)[:, None, None]
    return voted


def mean_iou(predicted, truth):
    """Mean over classes of intersection / union, each summed over all images."""
    ious = [((predicted == c) & (truth == c)).sum() / ((predicted == c) | (truth == c)).sum()
            for c in range(len(CLASSES))]
    return float(np.mean(ious))


def thin_pixels(labels):
    """Where the mask of a foreground class is at most 4 px thick; (n, H, W) bool.

    A pixel is thin if it is lost by the morphological opening of its class's mask in the image:
    no disk of 5 px diameter (a 5 x 5 square without its corners) that contains the pixel fits
    into the mask. Beyond the image's border the mask may go on, so the border makes nothing thin.
    """
    disk = np.ones((5, 5), np.uint8)
    disk[::4, ::4] = 0
    thin = np.zeros(labels.shape, bool)
    for image, out in zip(labels, thin):
        padded = np.pad(image, 4, mode='edge')
        for label in np.unique(image[image > 0]):
            mask = (padded == label).astype(np.uint8)
            kept = cv2.morphologyEx(mask, cv2.MORPH_OPEN, disk)
            out |= (mask > kept)[4:-4, 4:-4]
    return thin


def test_vote_per_block_by_hand():
    labels = np.zeros((1, 20, 32), np.uint8)
    labels[0, :9, :16] = 3  # 144 of the first block's 256 pixels
    labels[0, :8, 16:] = 5  # a tie with background
    labels[0, 16:, :9] = 2  # 36 of the 64 pixels of a block cut by the border
    voted = vote_per_block(labels)[0]
    assert (voted[:16, :16] == 3).all() and (voted[:16, 16:] == 0).all()
    assert (voted[16:, :16] == 2).all() and (voted[16:, 16:] == 0).all()


@pytest.mark.parametrize('turned', [False, True])
@pytest.mark.parametrize('thickness, thin', [(4, True), (5, False)])
def test_thin_pixels_by_hand(thickness, thin, turned):
    label = np.zeros((1, 40, 40), np.uint8)
    label[0, 10:10 + thickness] = 2
    label[0, 30:] = 7  # thick, up to the border
    if turned:
        label = label.transpose(0, 2, 1)
    np.testing.assert_array_equal(thin_pixels(label), (label == 2) & thin)


def test_fine_structure_matters(true_labels):
    voted = mean_iou(vote_per_block(true_labels), true_labels)
    thin = thin_pixels(true_labels)
    share = thin.sum() / (true_labels > 0).sum()
    per_class = [thin[true_labels == c].mean() for c in range(1, len(CLASSES))]
    print(f'\nlabels voted per 16 px block: {voted:.3f} mIoU (limit: at most 0.80)')
    print(f'foreground at most 4 px thick: {share:.1%} (limit: at least 10 %)')
    print({name: f'{part:.0%}' for name, part in zip(CLASSES[1:], per_class)})
    assert voted <= 0.80
    assert share >= 0.10
    assert max(per_class[:SOLID]) < 0.2 and min(per_class[SOLID:]) > 0.8


# Labels.


def test_every_class_is_seen_and_background_is_the_commonest(true_labels):
    shares = np.bincount(true_labels.ravel()) / true_labels.size
    print('\nshare of pixels:', dict(zip(CLASSES, shares.round(3))))
    assert len(shares) == len(CLASSES) == 10
    assert shares.min() > 0.01
    assert 0.5 < shares[0] < 0.75


@pytest.mark.parametrize('size', [(128, 128), (53, 97), (200, 64)])
def test_largest_shape_by_recount(size):
    dataset = ShapesClsDataset('test', 40, img_size=size)
    for index in range(40):
        layout = draw_layout(Picture(0, 'test', index, size))
        free = np.ones(size, bool)
        areas = []
        for instance in reversed(layout.instances):  # from the front to the back
            mask = np.zeros(size, bool)
            mask[instance.box] = instance.mask
            areas.append((mask & free).sum())
            free &= ~mask
        winner = layout.instances[len(areas) - 1 - int(np.flatnonzero(areas == max(areas))[-1])]
        assert dataset.get_data_info(index)['gt_label'] == winner.label - 1
        np.testing.assert_array_equal(label_map(layout) == 0, free)


def test_of_equal_shapes_the_one_furthest_back_gives_the_label():
    box = np.s_[0:2, 0:3]
    instances = tuple(Instance(label, box, np.ones((2, 3), bool)) for label in (6, 4, 2))
    layout = Layout(instances, np.array([[0, 1, 1], [2, 3, 2]], np.uint8))
    assert largest_label(layout) == 6
    np.testing.assert_array_equal(label_map(layout), [[0, 6, 6], [4, 2, 4]])


def test_each_class_is_sometimes_the_largest():
    labels = ShapesClsDataset('train', 300).get_gt_labels()
    assert set(labels) == set(range(len(CLASSES) - 1))


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
        fileio.get_text(image_path(PICTURES[0]))
