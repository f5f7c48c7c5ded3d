"""Dense retrieval on a segmentation config, scored once more by hand."""
import cv2
import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmseg.structures import SegDataSample
from torch import nn
from torch.nn import functional as F

from locat_mmseg.analysis.dense_retrieval import DenseRetrieval
from locat_mmseg.openmmlab.errors import UserError
from locat_mmseg.openmmlab.frozen_data import segmentation_loaders
from locat_mmseg.openmmlab.frozen_segmentation import evaluate_dense_retrieval, label_map_of


class MeanColour(nn.Module):
    """Stands for a `FrozenBackbone`: the mean colour of each patch of 8 pixels."""
    stride = 8

    def patch_maps(self, batch):
        images = torch.stack(batch['inputs']).float() - 80
        return F.avg_pool2d(images, 8, ceil_mode=True), batch['data_samples']


@pytest.fixture
def predictions(monkeypatch):
    """Label maps as they come from the retrieval."""
    seen = []

    def record(self, *args):
        seen.append(segment(self, *args))
        return seen[-1]

    segment = DenseRetrieval.segment
    monkeypatch.setattr(DenseRetrieval, 'segment', record)
    return seen


def iou_by_hand(truths, predictions, num_classes):
    """Percent, of each class, over all images."""
    ious = []
    for c in range(num_classes):
        pairs = [((t == c) & known, (p == c) & known) for t, p in zip(truths, predictions)
                 for known in [t != 255]]
        union = sum((t | p).sum() for t, p in pairs)
        ious.append(100 * sum((t & p).sum() for t, p in pairs) / union if union else None)
    return ious


def evaluate(config, size, **kwargs):
    loaders = segmentation_loaders(Config.fromfile(config), size, (None, None), 0, batch_size=2,
                                   num_workers=0)
    return evaluate_dense_retrieval(MeanColour(), *loaders, k=5, **kwargs)


@pytest.mark.parametrize('size', [None, (32, 48)], ids=str)
@pytest.mark.parametrize('reduce_zero_label', [False, True])
def test_scores_as_by_hand(segmentation_config, segmentation_data, predictions, size,
                           reduce_zero_label):
    config = segmentation_config(
        '\nfor loader in (train_dataloader, val_dataloader):'
        f'\n    loader["dataset"].update(reduce_zero_label={reduce_zero_label})'
        '\ndel loader')
    found = evaluate(config, size)
    truths = [cv2.imread(str(segmentation_data / f'annotations/val/{i}.png'), 0) for i in (4, 5)]
    if reduce_zero_label:
        truths = [np.where(t == 0, 255, np.where(t == 255, 255, t - 1)) for t in truths]
    assert [p.shape for p in predictions] == [t.shape for t in truths]
    ious = iou_by_hand(truths, [p.numpy() for p in predictions], 3)
    assert list(found['IoU']) == ['left', 'right', 'low']
    for value, expected in zip(found['IoU'].values(), ious):
        assert value == (None if expected is None else pytest.approx(expected, abs=.01))
    assert found['mIoU'] == pytest.approx(np.mean([i for i in ious if i is not None]), abs=.01)
    assert found['mIoU'] > 60  # colours tell the classes


def test_a_bounded_memory(segmentation_config):
    assert evaluate(segmentation_config(), None)['patches_stored'] > 30
    found = evaluate(segmentation_config(), None, memory_size=30)
    assert found['patches_stored'] == 28  # 7 of each of 4 images


def test_an_image_without_labels():
    with pytest.raises(UserError, match='an image has no label map'):
        label_map_of(SegDataSample(), 3, 255)


def test_a_data_set_without_classes(segmentation_config):
    config = segmentation_config('\nfor loader in (train_dataloader, val_dataloader):'
                                 '\n    loader["dataset"].update(metainfo={})\ndel loader')
    with pytest.raises(UserError, match='BaseSegDataset names no classes'):
        evaluate(config, None)
