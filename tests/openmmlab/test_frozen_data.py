"""Images for a frozen backbone: which, of what size, with which labels."""
import cv2
import numpy as np
import pytest
import torch
from mmengine.config import Config

from locat_mmseg.openmmlab.errors import UserError
from locat_mmseg.openmmlab.frozen_data import (classification_loaders, dataset_of,
                                               segmentation_loaders)

ALL = (None, None)
AS_READ = dict(batch_size=3, num_workers=0)


def samples(loader):
    return [(inputs, sample) for batch in loader
            for inputs, sample in zip(batch['inputs'], batch['data_samples'])]


@pytest.fixture
def classification(classification_config):
    return lambda extra='': Config.fromfile(classification_config(extra))


@pytest.fixture
def segmentation(segmentation_config):
    return lambda extra='': Config.fromfile(segmentation_config(extra))


def test_training_images_are_read_as_test_images(classification):
    """Without augmentation, in the order of the data set."""
    cfg = classification('\ntrain_dataloader["dataset"] = dict(dataset, data_prefix="train", '
                         'pipeline=[pipeline[0], dict(type="RandomFlip", prob=1.), pipeline[2]])')
    train, test = classification_loaders(cfg, None, ALL, 0, **AS_READ)
    assert [s.gt_label.item() for _, s in samples(train)] == [0] * 4 + [1] * 4
    assert [s.gt_label.item() for _, s in samples(test)] == [0] * 2 + [1] * 2
    assert all(inputs.shape == (3, 32, 32) and not sample.get('flip')
               for inputs, sample in samples(train))


def test_classification_images_are_resized_before_they_are_normalised(classification):
    cfg = classification('\ntest_dataloader = dict(val_dataloader, dataset=dict(dataset, '
                         'data_prefix="val", '
                         'pipeline=[pipeline[0], dict(type="Normalize", mean=[60.] * 3, '
                         'std=[1.] * 3, to_rgb=False), pipeline[2]]))')
    _, test = classification_loaders(cfg, 20, ALL, 0, **AS_READ)
    for inputs, sample in samples(test):
        assert inputs.shape == (3, 20, 20)
        assert (inputs == (0 if sample.gt_label == 0 else 120)).all()


def test_a_random_part_by_seed(classification):
    cfg = classification()

    def paths(seed):
        train, test = classification_loaders(cfg, None, (3, 2), seed, **AS_READ)
        return [[s.img_path for _, s in samples(loader)] for loader in (train, test)]

    assert [len(part) for part in paths(0)] == [3, 2]
    assert paths(0) == paths(0)
    assert len({str(paths(seed)) for seed in range(5)}) > 1
    assert all(part == sorted(part) for part in paths(1))


@pytest.mark.parametrize('count', [0, 9])
def test_more_images_than_there_are(classification, count):
    with pytest.raises(UserError, match=f'{count} images of 8: expected from 1 to 8'):
        classification_loaders(classification(), None, (count, None), 0)


def test_classes_must_be_the_same(classification, classification_data):
    (classification_data / 'val' / 'cow').mkdir()
    cv2.imwrite(str(classification_data / 'val/cow/a.png'), np.zeros((8, 8, 3), np.uint8))
    with pytest.raises(UserError, match='train_dataloader and test_dataloader have different cla'):
        classification_loaders(classification(), None, ALL, 0)


@pytest.mark.parametrize('missing', ['train_dataloader', 'val_dataloader, test_dataloader'])
def test_a_config_without_data(classification, missing):
    cfg = classification(f'\ndel {missing}')
    with pytest.raises(UserError, match=f'the config has no ({missing.partition(",")[0]}: a frozen|'
                                        'test_dataloader and no val_dataloader)'):
        classification_loaders(cfg, None, ALL, 0)


def test_training_labels_are_resized_and_test_labels_are_not(segmentation):
    train, test = segmentation_loaders(segmentation(), (24, 40), ALL, 0, **AS_READ)
    for inputs, sample in samples(train):
        assert inputs.shape == (3, 24, 40) and sample.gt_sem_seg.shape == (24, 40)
    sizes = [(37, 53), (41, 48)]
    for (inputs, sample), size in zip(samples(test), sizes, strict=True):
        assert inputs.shape == (3, 24, 40) and sample.img_shape == (24, 40)
        assert sample.gt_sem_seg.shape == size


def test_images_as_they_are(segmentation, segmentation_data):
    train, _ = segmentation_loaders(segmentation(), None, ALL, 0, **AS_READ)
    assert train.batch_size == 1
    found = samples(train)
    assert [sample.gt_sem_seg.shape for _, sample in found] == [
        (37, 53), (41, 48), (32, 32), (50, 33)]
    for number, (inputs, sample) in enumerate(found):
        image, labels = (cv2.imread(str(segmentation_data / f'{kind}/train/{number}.png'), flag)
                         for kind, flag in (('images', 1), ('annotations', 0)))
        assert torch.equal(inputs, torch.from_numpy(image).permute(2, 0, 1))
        assert torch.equal(sample.gt_sem_seg.data[0], torch.from_numpy(labels).long())


def test_zero_labels_are_reduced_in_both(segmentation):
    cfg = segmentation('\nfor loader in (train_dataloader, val_dataloader):'
                       '\n    loader["dataset"].update(reduce_zero_label=True)'
                       '\ndel loader')
    for loader in segmentation_loaders(cfg, None, ALL, 0, **AS_READ):
        for _, sample in samples(loader):
            assert set(sample.gt_sem_seg.data.unique().tolist()) == {0, 1, 255}


def test_repeated_images_count_once(segmentation):
    cfg = segmentation('\ntrain_dataloader["dataset"] = dict(type="RepeatDataset", times=3, '
                       'dataset=train_dataloader["dataset"])')
    train, _ = segmentation_loaders(cfg, (8, 8), ALL, 0, **AS_READ)
    assert len(train.dataset) == len(dataset_of(train)) == 4


def test_joined_data_sets(segmentation):
    cfg = segmentation('\ntrain_dataloader["dataset"] = dict(type="ConcatDataset", datasets=['
                       'train_dataloader["dataset"], val_dataloader["dataset"]])')
    train, _ = segmentation_loaders(cfg, (8, 8), (5, None), 0, **AS_READ)
    assert len(dataset_of(train)) == 6 and len(samples(train)) == 5
    assert dataset_of(train).metainfo['classes'] == ('left', 'right', 'low')


def test_a_config_without_label_maps(classification):
    with pytest.raises(UserError, match='dense retrieval takes images with label maps, and the test'
                                        ' pipeline is .*LoadImageFromFile'):
        segmentation_loaders(classification(), (8, 8), ALL, 0)
