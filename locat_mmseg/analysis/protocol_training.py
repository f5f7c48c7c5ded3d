"""Training by the protocols of arXiv 2605.16390 without OpenMMLab, all data on one device.

What ``configs/cutmix_locality`` say for CIFAR, step by step: the same optimizer and schedule, the
same loss, CutMix of every batch, bfloat16 autocast, no dropout and no stochastic depth. Random
numbers are torch's and follow from the seed and the epoch alone.

Shape legend: N images, K classes.
"""
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .batched_augment import auto_augment, crop_and_flip, cutmix

WEIGHT_DECAY = 0.05
NO_DECAY = ('pos_embed', 'cls_token', 'reg_token')  # as all that has one dimension
WARMUP_START = 1e-3  # share of the learning rate in the first step
MAX_NORM = 1.  # of the gradient
SMOOTHING = 0.1
PADDING = 4  # of the random crop, in pixels
MEAN = STD = 127.5
SEEDS_APART = 100_000  # more than epochs: no two epochs of any two seeds draw the same


class Protocol(NamedTuple):
    """What a protocol adds to random crop, random flip and cross-entropy."""
    autoaugment: bool = False
    cutmix: bool = False
    label_smoothing: bool = False


PROTOCOLS = {
    'baseline': Protocol(),
    'cutmix': Protocol(cutmix=True),
    'modern': Protocol(True, True, True),
    'no-cutmix': Protocol(autoaugment=True, label_smoothing=True),
    'autoaugment': Protocol(autoaugment=True),
    'label-smoothing': Protocol(label_smoothing=True),
    'no-autoaugment': Protocol(cutmix=True, label_smoothing=True),
    'no-label-smoothing': Protocol(autoaugment=True, cutmix=True),
}


@dataclass(frozen=True)
class Recipe:
    """How long and how fast to train; the defaults are those of the configs.

    Attributes:
        epochs: in all.
        warmup_epochs: of them with a linear warm-up, before the cosine to 0.
        batch_size: images a step; what is left over at the end of an epoch is dropped.
        lr: largest learning rate.
        bfloat16: forward passes and losses under bfloat16 autocast.

    Raises:
        ValueError: if no step is left after the warm-up, or a number is not positive.
    """
    epochs: int = 200
    warmup_epochs: int = 10
    batch_size: int = 256
    lr: float = 1e-3
    bfloat16: bool = True

    def __post_init__(self) -> None:
        if not 0 <= self.warmup_epochs < self.epochs:
            raise ValueError(f'{self.warmup_epochs} warm-up epochs of {self.epochs} epochs: '
                             'expected fewer, and none is negative; give both')
        if self.batch_size < 1 or not 0 < self.lr < math.inf:
            raise ValueError(f'batch size {self.batch_size} and learning rate {self.lr}: expected '
                             'positive numbers')

    def steps_per_epoch(self, num_images: int) -> int:
        """Whole batches that so many training images make.

        Raises:
            ValueError: if there is none.
        """
        if num_images < self.batch_size:
            raise ValueError(f'{num_images} training images make no batch of {self.batch_size}: '
                             'give a smaller batch size')
        return num_images // self.batch_size


def learning_rate(step: int, steps_per_epoch: int, recipe: Recipe) -> float:
    """The learning rate of a step, the first being 0."""
    warmup = recipe.warmup_epochs * steps_per_epoch
    if step < warmup:
        return recipe.lr * (WARMUP_START + (1 - WARMUP_START) * step / max(warmup - 1, 1))
    progress = (step - warmup) / (recipe.epochs * steps_per_epoch - warmup)
    return recipe.lr * (1 + math.cos(math.pi * progress)) / 2


def parameter_groups(model: nn.Module) -> list[dict[str, Any]]:
    """Parameters with and without weight decay, for an optimizer."""
    groups = [dict(params=[], weight_decay=decay) for decay in (WEIGHT_DECAY, 0.)]
    for name, parameter in model.named_parameters():
        groups[parameter.ndim == 1 or name.endswith(NO_DECAY)]['params'].append(parameter)
    return groups


def normalise(images: Tensor) -> Tensor:
    """Bytes (N, 3, H, W) to numbers from -1 to 1."""
    return (images.float() - MEAN) / STD


class ProtocolTraining:
    """One training run; it can stop after any epoch and go on in another process.

    Args:
        model: classifier of images (N, 3, H, W), on the device of the images.
        images: (N, 3, H, W), bytes, RGB.
        labels: (N,).
        num_classes: K.
        protocol: what is added to Baseline.
        recipe: length, batch size and learning rate.
        seed: of order, augmentation and mixing; each epoch starts its own sequence, so that a
            resumed run draws what an uninterrupted one does.
        forward: what calls the model in training, such as ``torch.compile(model)``.

    Raises:
        ValueError: if there are fewer images than one batch takes.
    """

    def __init__(self, model: nn.Module, images: Tensor, labels: Tensor, num_classes: int,
                 protocol: Protocol, recipe: Recipe, seed: int = 0,
                 forward: Callable[[Tensor], Tensor] | None = None) -> None:
        self.model = model
        self.images = images
        self.targets = F.one_hot(labels, num_classes).float()
        self.protocol = protocol
        self.recipe = recipe
        self.seed = seed
        self.forward = model if forward is None else forward
        self.steps_per_epoch = recipe.steps_per_epoch(len(images))
        self.epoch = 0  # that comes next
        self.optimizer = torch.optim.AdamW(parameter_groups(model), lr=recipe.lr,
                                           fused=images.is_cuda)

    def run_epoch(self, deadline: float = math.inf) -> float | None:
        """Train on each image once.

        Args:
            deadline: of `time.monotonic`.

        Returns:
            The mean loss; None if the deadline passed before the end: what was trained is then
            of no use, and the run goes on from a state saved before.
        """
        torch.manual_seed(self.seed * SEEDS_APART + self.epoch)
        device, size = self.images.device, self.recipe.batch_size
        images = crop_and_flip(self.images, PADDING)
        if self.protocol.autoaugment:
            images = auto_augment(images)
        images = images.contiguous()  # else a compiled model meets other strides
        order = torch.randperm(len(images), device=device)
        total = torch.zeros((), device=device)
        for number in range(self.steps_per_epoch):
            if time.monotonic() > deadline:
                return None
            batch = order[number * size:(number + 1) * size]
            total += self.step(images[batch], self.targets[batch],
                               self.epoch * self.steps_per_epoch + number)
        self.epoch += 1
        return total.item() / self.steps_per_epoch

    def step(self, images: Tensor, targets: Tensor, number: int) -> Tensor:
        """Update the model by one batch of augmented bytes and one-hot targets (N, K).

        Returns:
            The loss, without gradient.
        """
        self.model.train()
        for group in self.optimizer.param_groups:
            group['lr'] = learning_rate(number, self.steps_per_epoch, self.recipe)
        loss = self.loss(images, targets)
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), MAX_NORM)
        self.optimizer.step()
        return loss.detach()

    def loss(self, images: Tensor, targets: Tensor) -> Tensor:
        """Cross-entropy of a batch as in `step`, mixed and smoothed as the protocol says."""
        images = normalise(images)
        if self.protocol.cutmix:
            images, targets = cutmix(images, targets)
        with torch.autocast(images.device.type, torch.bfloat16, enabled=self.recipe.bfloat16):
            logits = self.forward(images)
        return F.cross_entropy(logits.float(), targets,
                               label_smoothing=SMOOTHING * self.protocol.label_smoothing)

    def state_dict(self) -> dict[str, Any]:
        """All that `load_state_dict` needs to go on after the last whole epoch."""
        return dict(epoch=self.epoch, model=self.model.state_dict(),
                    optimizer=self.optimizer.state_dict())

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up a state that `state_dict` gave."""
        self.epoch = state['epoch']
        self.model.load_state_dict(state['model'])
        self.optimizer.load_state_dict(state['optimizer'])
