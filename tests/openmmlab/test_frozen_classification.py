"""k-NN and linear probe on a classification config."""
import pytest
import torch
from mmengine.config import Config
from mmpretrain.structures import DataSample
from torch import nn

from locat_mmseg.analysis.knn import knn_scores, topk_accuracy
from locat_mmseg.openmmlab.errors import UserError
from locat_mmseg.openmmlab.frozen_classification import (evaluate_knn, evaluate_linear, extract,
                                                         label_of)
from locat_mmseg.openmmlab.frozen_data import classification_loaders


class MeanColour(nn.Module):
    """Stands for a `FrozenBackbone`: an image's mean colour."""

    def pooled(self, batch):
        return torch.stack([image.float().mean(dim=(1, 2)) for image in batch['inputs']]), \
            batch['data_samples']


def labelled(count, seed):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % 3
    return torch.randn(count, 6, generator=generator) + 2 * torch.eye(6)[labels], labels


def test_features_of_all_images_in_order(classification_config):
    cfg = Config.fromfile(classification_config())
    train, test = classification_loaders(cfg, None, (None, None), 0, batch_size=3, num_workers=0)
    features, labels = extract(MeanColour(), train)
    assert labels.tolist() == [0] * 4 + [1] * 4
    assert torch.equal(features, torch.tensor([60.] * 4 + [180.] * 4)[:, None].expand(-1, 3))
    assert evaluate_linear((features, labels), extract(MeanColour(), test), [.01])[0] == {
        'linear/top1': 100., 'linear/top5': 100., 'linear/train_top1': 100., 'linear/l2': .01}


def test_every_k_is_scored():
    train, test = labelled(60, 0), labelled(30, 1)
    found = evaluate_knn(train, test, [1, 7], temperature=.5)
    for k in (1, 7):
        scores = knn_scores(test[0], *train, 3, k, .5)
        assert found[f'knn{k}/top1'] == topk_accuracy(scores, test[1])
        assert found[f'knn{k}/top5'] == 100.
    assert found['knn1/top1'] != found['knn7/top1']


def test_a_class_without_training_images_counts_as_wrong():
    features, labels = labelled(30, 0)
    test = labels.clone()
    test[:3] = 3
    assert evaluate_knn((features, labels), (features, test), [1])['knn1/top1'] == 90.


def test_several_penalties():
    test = labelled(30, 1)
    found, probe = evaluate_linear(labelled(60, 0), test, [1e-3, 1e-1])
    assert found['linear/l2'] in (1e-3, 1e-1) and found['linear/top1'] > 70
    assert topk_accuracy(probe.scores(test[0]), test[1]) == found['linear/top1']


@pytest.mark.parametrize('label', [None, [0, 2]])
def test_one_label_an_image(label):
    sample = DataSample() if label is None else DataSample().set_gt_label(label)
    with pytest.raises(UserError, match='k-NN and linear probe take a classification config'):
        label_of(sample)
