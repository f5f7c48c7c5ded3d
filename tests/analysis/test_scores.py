"""Streaming scores against loops and hand-typed numbers."""
import math

import pytest
import torch

from locat_mmseg.analysis.scores import ClassScores, MapScores


def slow_scores(logits, labels):
    """Top-1, top-5 and cross-entropy, one image at a time."""
    hits, entropy = [0, 0], 0.
    for row, label in zip(logits.tolist(), labels.tolist()):
        order = sorted(range(len(row)), key=lambda k: -row[k])
        hits[0] += order[0] == label
        hits[1] += label in order[:5]
        entropy -= row[label] - math.log(sum(math.exp(value) for value in row))
    count = len(labels)
    return dict(top1=100 * hits[0] / count, top5=100 * hits[1] / count,
                cross_entropy=entropy / count)


def test_class_scores_against_loops_in_uneven_batches():
    torch.manual_seed(0)
    logits, labels = torch.randn(23, 11), torch.randint(11, (23, ))
    scores = ClassScores()
    for part in (slice(0, 10), slice(10, 11), slice(11, 23)):
        scores.update(logits[part], labels[part])
    expected = slow_scores(logits, labels)
    assert 0 < expected['top1'] < expected['top5'] < 100
    assert scores.result() == pytest.approx(expected, abs=1e-5)
    assert scores.count == 23


def test_each_place_has_its_own_scores():
    torch.manual_seed(1)
    logits, labels = torch.randn(9, 4, 7), torch.randint(7, (9, ))
    scores = ClassScores()
    scores.update(logits[:5], labels[:5])
    scores.update(logits[5:], labels[5:])
    places = scores.places()
    for place in range(4):
        found = {name: values[place].item() for name, values in places.items()}
        assert found == pytest.approx(slow_scores(logits[:, place], labels), abs=1e-5)
    assert scores.result()['top1'] == pytest.approx(places['top1'].mean().item())


def test_equal_logits_and_no_numbers_find_nothing():
    scores = ClassScores()
    scores.update(torch.tensor([[0.] * 6, [math.nan] * 6]), torch.tensor([0, 3]))
    assert scores.result()['top1'] == scores.result()['top5'] == 0


def test_map_scores_by_hand():
    labels = torch.tensor([[[0, 0, 1], [1, 9, 2]]])
    found = torch.tensor([[[0, 1, 1], [1, 0, 1]]])
    logits = torch.nn.functional.one_hot(found, 4).movedim(-1, 1).float()
    scores = MapScores(4, void=9)
    scores.update(logits, labels)
    # class 0: 1 of 2; class 1: 2 of 4; class 2: 0 of 1; class 3 nowhere
    assert scores.class_iou().tolist()[:3] == [50, 50, 0] and scores.class_iou()[3].isnan()
    assert scores.result() == pytest.approx(dict(mIoU=100 / 3, aAcc=60))
    assert scores.confusion.tolist() == [[1, 1, 0, 0], [0, 2, 0, 0], [0, 1, 0, 0], [0] * 4]
    only = MapScores(4, void=9, classes=[0, 3])
    only.update(logits, labels)
    assert only.result()['mIoU'] == 50


def test_maps_are_enlarged_to_their_labels():
    logits = torch.zeros(1, 2, 1, 2)
    logits[0, 1, 0, 1] = logits[0, 0, 0, 0] = 1.
    labels = torch.tensor([[[0, 0, 1, 1]] * 3])
    scores = MapScores(2)
    scores.update(logits, labels)
    assert scores.result() == dict(mIoU=100, aAcc=100)


def test_errors():
    with pytest.raises(ValueError, match='labels from 1 to 3 for a model of 3 classes'):
        ClassScores().update(torch.zeros(2, 3), torch.tensor([1, 3]))
    with pytest.raises(ValueError, match='no images'):
        ClassScores().result()
    with pytest.raises(ValueError, match=r'logits of shape \(1, 3\) for 2 classes'):
        MapScores(2).update(torch.zeros(1, 3), torch.zeros(1, 4, 4, dtype=torch.int64))
    with pytest.raises(ValueError, match='labels from 0 to 2 for 2 classes and void 255'):
        MapScores(2).update(torch.zeros(1, 2, 1, 3), torch.tensor([[[0, 2, 255]]]))
    void = MapScores(2)
    void.update(torch.zeros(1, 2, 2, 2), torch.full((1, 2, 2), 255))
    with pytest.raises(ValueError, match='1 images without a pixel to score'):
        void.result()
