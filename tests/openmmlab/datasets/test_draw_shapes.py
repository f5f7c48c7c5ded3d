"""Drawing of shapes: same bytes everywhere, true labels, fine structure that matters."""
import hashlib
from pathlib import Path

import cv2
import numpy as np
import pytest
from mmengine.config import Config

from locat_mmseg.openmmlab.datasets.draw_shapes import (
    CLASSES,
    SOLID,
    SPLITS,
    Instance,
    Layout,
    Picture,
    draw_layout,
    label_map,
    largest_label,
)
from locat_mmseg.openmmlab.datasets.paint_shapes import draw_image

CONFIG = Path(__file__).resolve().parents[3] / 'configs/_base_/datasets/shapes_seg.py'
PICTURES = [Picture(seed, split, index, size) for seed in (0, 7) for split in SPLITS
            for index in range(3) for size in ((128, 128), (53, 97), (200, 64))]
DIGEST = 'bac6577f06283e4fc3d7d8be1008f05fc64b94e64e13b8a602f603a2e86bb03a'


def digest(pictures):
    """sha256 over the pixels of images and label maps."""
    sha = hashlib.sha256()
    for picture in pictures:
        sha.update(draw_image(picture).tobytes())
        sha.update(label_map(draw_layout(picture)).tobytes())
    return sha.hexdigest()


@pytest.fixture(scope='module')
def true_labels():
    """Label maps of the test set of shapes_seg.py, (200, 128, 128)."""
    dataset = Config.fromfile(CONFIG).test_dataloader.dataset
    size = tuple(dataset.img_size)
    assert (dataset.split, dataset.num_images, size) == ('test', 200, (128, 128))
    return np.stack([label_map(draw_layout(Picture(0, 'test', index, size)))
                     for index in range(dataset.num_images)])


# Sameness.


def test_bytes_are_pinned():
    assert digest(PICTURES) == DIGEST


def test_bytes_do_not_depend_on_what_was_drawn_before():
    alone = []
    for picture in reversed(PICTURES[:6]):
        draw_layout.cache_clear()
        alone.append(digest([picture]))
    assert alone[::-1] == [digest([picture]) for picture in PICTURES[:6]]


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
    for image, out in zip(labels, thin, strict=True):
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
    print({name: f'{part:.0%}' for name, part in zip(CLASSES[1:], per_class, strict=True)})
    assert voted <= 0.80
    assert share >= 0.10
    assert max(per_class[:SOLID]) < 0.2 and min(per_class[SOLID:]) > 0.8


# Labels.


def test_every_class_is_seen_and_background_is_the_commonest(true_labels):
    shares = np.bincount(true_labels.ravel()) / true_labels.size
    print('\nshare of pixels:', dict(zip(CLASSES, shares.round(3).tolist(), strict=True)))
    assert len(shares) == len(CLASSES) == 10
    assert shares.min() > 0.01
    assert 0.5 < shares[0] < 0.75


def test_of_equal_shapes_the_one_furthest_back_gives_the_label():
    box = np.s_[0:2, 0:3]
    instances = tuple(Instance(label, box, np.ones((2, 3), bool)) for label in (6, 4, 2))
    layout = Layout(instances, np.array([[0, 1, 1], [2, 3, 2]], np.uint8))
    assert largest_label(layout) == 6
    np.testing.assert_array_equal(label_map(layout), [[0, 6, 6], [4, 2, 4]])


@pytest.mark.parametrize('size', [(128, 128), (53, 97), (200, 64)])
def test_largest_shape_by_recount(size):
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
        assert largest_label(layout) == winner.label
        np.testing.assert_array_equal(label_map(layout) == 0, free)
