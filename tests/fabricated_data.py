"""Tiny data sets in the layouts that the configs expect, under ``data/`` of a folder."""
import pickle
from pathlib import Path

import cv2
import numpy as np
from mmpretrain.datasets.categories import IMAGENET_CATEGORIES

SIZES = ((67, 91), (120, 75), (96, 131))  # (height, width): odd, tall and wide


def make_all(root: Path) -> None:
    """Draw ADE20K, PASCAL Context, COCO-Stuff, CamVid, ImageNet, mini- and Tiny-ImageNet, CIFAR."""
    data = root / 'data'
    ade20k = data / 'ade/ADEChallengeData2016'
    coco = data / 'coco_stuff164k'
    for split in ('training', 'validation'):  # 0 is "other"
        make_pairs(ade20k / f'images/{split}', ade20k / f'annotations/{split}', range(151))
    for split in ('train2017', 'val2017'):
        make_pairs(coco / f'images/{split}', coco / f'annotations/{split}', [*range(171), 255],
                   '_labelTrainIds')
    for split in ('train', 'val'):
        make_pairs(data / f'camvid/images/{split}', data / f'camvid/annotations/{split}', range(12))
        make_class_folders(data / f'imagenet/{split}', len(IMAGENET_CATEGORIES))
        make_class_folders(data / f'mini-imagenet/{split}', 100)
    make_pascal_context(data / 'VOCdevkit/VOC2010')
    make_cifar100(data / 'cifar100/cifar-100-python')
    make_cifar10(data / 'cifar10/cifar-10-batches-py')
    make_tiny_imagenet(data / 'tiny-imagenet-200')


def make_pairs(images: Path, labels: Path, values: range | list[int],
               suffix: str = '') -> list[str]:
    """Images of odd sizes and label maps of 4-pixel squares that hold all ``values``."""
    random = np.random.default_rng(0)
    images.mkdir(parents=True, exist_ok=True)
    labels.mkdir(parents=True, exist_ok=True)
    names = []
    for number, (height, width) in enumerate(SIZES):
        names.append(f'sample_{number}')
        squares = np.resize(random.permutation(values), (height // 4 + 1, width // 4 + 1))
        label = np.kron(squares, np.ones((4, 4)))[:height, :width].astype(np.uint8)
        image = random.integers(0, 256, (height, width, 3), dtype=np.uint8)
        cv2.imwrite(str(images / f'{names[-1]}.jpg'), image)
        cv2.imwrite(str(labels / f'{names[-1]}{suffix}.png'), label)
    return names


def make_pascal_context(root: Path) -> None:
    """Images and labels (0 is void) in one folder each, and the lists of the two splits."""
    names = make_pairs(root / 'JPEGImages', root / 'SegmentationClassContext', range(60))
    lists = root / 'ImageSets/SegmentationContext'
    lists.mkdir(parents=True)
    for split in ('train', 'val'):
        (lists / f'{split}.txt').write_text('\n'.join(names))


def make_class_folders(root: Path, num_classes: int) -> None:
    """One folder per class; the first and the last two hold an image each."""
    random = np.random.default_rng(0)
    for number in range(num_classes):
        (root / f'n{number:08d}').mkdir(parents=True)
    for number, (height, width) in zip((0, num_classes - 2, num_classes - 1), SIZES):
        image = random.integers(0, 256, (height, width, 3), dtype=np.uint8)
        cv2.imwrite(str(root / f'n{number:08d}/image.JPEG'), image)


def make_cifar100(root: Path) -> None:
    """Pickles with the keys of the original ones."""
    random = np.random.default_rng(0)
    root.mkdir(parents=True)
    for name in ('train', 'test'):
        entry = {'data': random.integers(0, 256, (4, 3 * 32 * 32), dtype=np.uint8),
                 'fine_labels': [0, 50, 98, 99]}
        (root / name).write_bytes(pickle.dumps(entry))


def make_cifar10(root: Path) -> None:
    """Pickles with the keys of the original ones."""
    random = np.random.default_rng(0)
    root.mkdir(parents=True)
    for name in (*(f'data_batch_{number}' for number in range(1, 6)), 'test_batch'):
        entry = {'data': random.integers(0, 256, (2, 3 * 32 * 32), dtype=np.uint8),
                 'labels': [0, 9]}
        (root / name).write_bytes(pickle.dumps(entry))


def make_tiny_imagenet(root: Path) -> None:
    """200 classes, three of them with a training and a validation image."""
    random = np.random.default_rng(0)
    wnids = [f'n{number:08d}' for number in range(200)]
    (root / 'val/images').mkdir(parents=True)
    (root / 'wnids.txt').write_text('\n'.join(reversed(wnids)))
    (root / 'words.txt').write_text('\n'.join(f'{wnid}\tname of {wnid}' for wnid in wnids))
    for wnid in wnids:
        (root / f'train/{wnid}/images').mkdir(parents=True)
    lines = []
    for wnid in (wnids[0], wnids[120], wnids[199]):
        image = random.integers(0, 256, (64, 64, 3), dtype=np.uint8)
        cv2.imwrite(str(root / f'train/{wnid}/images/{wnid}_0.JPEG'), image)
        cv2.imwrite(str(root / f'val/images/val_{len(lines)}.JPEG'), image)
        lines.append(f'val_{len(lines)}.JPEG\t{wnid}\t0\t0\t63\t63')
    (root / 'val/val_annotations.txt').write_text('\n'.join(lines))
