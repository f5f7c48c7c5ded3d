"""The score of the commonest class, against mmseg's own metric on that very prediction."""
import pytest
import torch
from mmseg.evaluation import IoUMetric

from locat_mmseg.openmmlab.evaluation import CommonestClassMetric

CLASSES = ('sky', 'road', 'car', 'never')


def label_maps(void: int = 255):
    generator = torch.Generator().manual_seed(0)
    weights = torch.tensor([0.2, 0.5, 0.3])
    for height, width in [(7, 9), (13, 4)]:
        label = torch.multinomial(weights, height * width, replacement=True, generator=generator)
        label[::5] = void
        yield label.reshape(1, height, width)


def samples(prediction: int, void: int) -> list[dict]:
    return [dict(gt_sem_seg=dict(data=label),
                 pred_sem_seg=dict(data=torch.full_like(label, prediction)))
            for label in label_maps(void)]


def score(metric, prediction: int = 0, void: int = 255) -> dict:
    metric.dataset_meta = dict(classes=CLASSES)
    metric.process({}, samples(prediction, void))
    return metric.evaluate(size=2)


def test_equals_iou_metric_of_that_prediction():
    labels = torch.cat([label.flatten() for label in label_maps()])
    assert labels[labels < 255].bincount().argmax() == 1  # 'road'
    expected = score(IoUMetric(iou_metrics=['mIoU']), prediction=1)['mIoU']
    got = score(CommonestClassMetric())['commonest_class_mIoU']
    assert got == pytest.approx(expected, abs=0.01)
    # By hand: the IoU of 'road' is its share of the pixels, two other classes occur.
    share = (labels == 1).sum() / (labels < 255).sum()
    assert got == pytest.approx(100 * share.item() / 3, abs=0.01)


def test_ignore_index_is_left_out():
    assert score(CommonestClassMetric(ignore_index=3), void=3) == score(CommonestClassMetric())
    assert score(CommonestClassMetric(), void=3) != score(CommonestClassMetric())
