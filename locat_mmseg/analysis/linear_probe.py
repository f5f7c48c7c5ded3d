"""Linear probe: multinomial logistic regression on frozen features, solved to its optimum.

There is no learning rate and no schedule to favour one backbone: the features are standardised and
the convex problem is minimised by L-BFGS.

Shape legend: M training features, C channels, K classes.
"""
import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from .knn import check_labels, topk_accuracy


@dataclass(frozen=True)
class LinearProbe:
    """A fitted probe.

    Attributes:
        mean, std: (C,) of the training features.
        weight, bias: (K, C) and (K,), on standardised features.
    """
    mean: Tensor
    std: Tensor
    weight: Tensor
    bias: Tensor

    def scores(self, features: Tensor) -> Tensor:
        """Logits (Q, K) of features (Q, C)."""
        return F.linear((features - self.mean) / self.std, self.weight, self.bias)

    def on_raw_features(self) -> tuple[Tensor, Tensor]:
        """Weight (K, C) and bias (K,) of the same classifier on features as they come."""
        weight = self.weight / self.std
        return weight, self.bias - weight @ self.mean


def fit_linear_probe(features: Tensor, labels: Tensor, num_classes: int, l2: float = 1e-2,
                     max_iterations: int = 500) -> LinearProbe:
    """Minimise mean cross-entropy + l2 / 2 * ||weight||^2; the bias is free.

    scikit-learn's ``LogisticRegression(C=1 / (l2 * M))`` on standardised features is the same.

    Args:
        features: (M, C), with ``labels`` (M,) from 0 to K - 1.
        num_classes: K.
        l2: strength of the penalty, positive.
        max_iterations: of L-BFGS.

    Raises:
        ValueError: if the penalty is not positive, or labels and features do not match.
    """
    if not 0 < l2 < math.inf:
        raise ValueError(f'l2={l2}: expected a positive number; without a penalty separable '
                         'classes have no optimum')
    check_labels(features, labels, num_classes)
    std, mean = torch.std_mean(features, dim=0, correction=0)
    std = std.where(std > 0, 1)  # a constant channel carries nothing
    inputs = (features - mean) / std
    weight = inputs.new_zeros(num_classes, inputs.shape[1], requires_grad=True)
    bias = inputs.new_zeros(num_classes, requires_grad=True)
    # The error of the weights is at most the gradient over l2.
    optimizer = torch.optim.LBFGS([weight, bias], max_iter=max_iterations, history_size=20,
                                  tolerance_grad=1e-5 * l2, tolerance_change=1e-12,
                                  line_search_fn='strong_wolfe')

    def loss() -> Tensor:
        optimizer.zero_grad()
        value = F.cross_entropy(F.linear(inputs, weight, bias), labels) \
            + l2 / 2 * weight.square().sum()
        value.backward()
        return value

    optimizer.step(loss)
    return LinearProbe(mean, std, weight.detach(), bias.detach())


def choose_l2(features: Tensor, labels: Tensor, num_classes: int, candidates: Iterable[float],
              generator: torch.Generator | None = None, held_out: float = 0.1) -> float:
    """The penalty with the best top-1 on a random part of the training features.

    Args:
        features, labels, num_classes: as in `fit_linear_probe`.
        candidates: penalties; of equally good ones the first is taken.
        generator: draws the part.
        held_out: its share.

    Raises:
        ValueError: if there are too few features to hold some out.
    """
    order = torch.randperm(len(features), generator=generator).to(labels.device)
    count = round(held_out * len(features))
    if not 0 < count < len(features):
        raise ValueError(f'{len(features)} training features are too few to choose l2 on '
                         f'{held_out:.0%} of them: give one l2, or more data')
    test, train = order[:count], order[count:]

    def accuracy(l2: float) -> float:
        probe = fit_linear_probe(features[train], labels[train], num_classes, l2)
        return topk_accuracy(probe.scores(features[test]), labels[test])

    return max(candidates, key=accuracy)
