"""Scores of predictions, summed over batches: memory does not grow with the data.

Shape legend: B batch, K classes, ... further places of a prediction, such as n patches.
"""
import torch
from torch import Tensor
from torch.nn import functional as F


class ClassScores:
    """Top-1, top-5 and cross-entropy of class logits, for each place by itself.

    A class counts as found only if fewer than 1 (5) others have at least its logit: equal logits,
    or ones that are not numbers, find nothing.
    """

    def __init__(self) -> None:
        self.count = 0
        self._sums: dict[str, Tensor | float] = dict(top1=0., top5=0., cross_entropy=0.)

    def update(self, logits: Tensor, labels: Tensor) -> None:
        """Add logits (B, ..., K) of images with labels (B,).

        Raises:
            ValueError: if a label is none of the K classes.
        """
        num_classes = logits.shape[-1]
        if labels.min() < 0 or labels.max() >= num_classes:
            raise ValueError(f'labels from {labels.min()} to {labels.max()} for a model of '
                             f'{num_classes} classes: take data with the classes of the model')
        logits = logits.double()
        index = labels.view(-1, *[1] * (logits.ndim - 1)).expand(*logits.shape[:-1], 1)
        others = (~(logits < logits.gather(-1, index))).sum(-1) - 1
        entropy = -F.log_softmax(logits, -1).gather(-1, index).squeeze(-1)
        for name, values in (('top1', others < 1), ('top5', others < 5),
                             ('cross_entropy', entropy)):
            self._sums[name] = self._sums[name] + values.sum(0, dtype=torch.float64).cpu()
        self.count += len(labels)

    def places(self) -> dict[str, Tensor]:
        """Top-1 and top-5 in percent and cross-entropy in nats, each of shape (...).

        Raises:
            ValueError: if there was no image.
        """
        if not self.count:
            raise ValueError('no images: expected at least one batch')
        return {name: total / self.count * (1 if name == 'cross_entropy' else 100)
                for name, total in self._sums.items()}

    def result(self) -> dict[str, float]:
        """The mean of `places` over all places."""
        return {name: values.mean().item() for name, values in self.places().items()}


class MapScores:
    """mIoU and pixel accuracy of logit maps, from a confusion matrix.

    Args:
        num_classes: K.
        void: label of pixels that do not count.
        classes: those whose IoU is averaged; by default all.
    """

    def __init__(self, num_classes: int, void: int = 255,
                 classes: list[int] | None = None) -> None:
        self.void = void
        self.classes = list(range(num_classes)) if classes is None else classes
        self.count = 0
        self.confusion = torch.zeros(num_classes, num_classes, dtype=torch.int64)

    def update(self, logits: Tensor, labels: Tensor) -> None:
        """Add logit maps (B, K, h, w), enlarged bilinearly to their label maps (B, H, W).

        Raises:
            ValueError: if the maps have other classes than this, or a label is none of them.
        """
        num_classes = len(self.confusion)
        if logits.ndim != 4 or logits.shape[1] != num_classes:
            raise ValueError(f'logits of shape {tuple(logits.shape)} for {num_classes} classes: '
                             'expected maps (B, classes, h, w) of a model for these classes')
        if logits.shape[-2:] != labels.shape[-2:]:
            logits = F.interpolate(logits, labels.shape[-2:], mode='bilinear')
        valid = labels != self.void
        truth, found = labels[valid], logits.argmax(1)[valid]
        if len(truth) and (truth.min() < 0 or truth.max() >= num_classes):
            raise ValueError(f'labels from {truth.min()} to {truth.max()} for {num_classes} '
                             f'classes and void {self.void}: take data with the classes of the '
                             'model')
        pairs = torch.bincount(truth * num_classes + found, minlength=num_classes ** 2)
        self.confusion += pairs.view(num_classes, -1).cpu()
        self.count += len(labels)

    def class_iou(self) -> Tensor:
        """IoU (K,) in percent; not a number where a class is neither in truth nor prediction."""
        hits = self.confusion.diagonal().double()
        return 100 * hits / (self.confusion.sum(0) + self.confusion.sum(1) - hits)

    def result(self) -> dict[str, float]:
        """Mean IoU of the classes that occur, and pixel accuracy, in percent.

        Raises:
            ValueError: if no pixel counts.
        """
        if not self.confusion.sum():
            raise ValueError(f'{self.count} images without a pixel to score: all are void or '
                             'hidden')
        return dict(mIoU=self.class_iou()[self.classes].nanmean().item(),
                    aAcc=100 * (self.confusion.diagonal().sum() / self.confusion.sum()).item())
