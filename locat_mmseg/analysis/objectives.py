"""What activation maximisation maximises, and what it holds back: small functions to plug in.

An objective takes the features of one picture's augmented copies, (k, n, F) or (k, h, w, F), and
the number of the wanted one; a regulariser takes the copies themselves, (k, 3, H, W). Both return a
scalar. Any function of these signatures can be given to `feature_vis.maximize_features`.
"""
from collections.abc import Callable

import torch
from torch import Tensor

Objective = Callable[[Tensor, int], Tensor]
Regularizer = Callable[[Tensor], Tensor]


def token_mean(features: Tensor, feature: int) -> Tensor:
    """Mean over copies and tokens, of a feature (arXiv 2212.06727, section 3).

    The paper sums; the mean leaves the weight of the regularisers independent of the picture size.
    """
    return features[..., feature].mean()


def token_norm(features: Tensor, feature: int) -> Tensor:
    """Mean over copies of the L2 norm over the positions: the paper's recipe for CNNs."""
    return torch.linalg.vector_norm(features[..., feature].flatten(1), dim=1).mean()


def token_max(features: Tensor, feature: int) -> Tensor:
    """Mean over copies of the largest activation: one thing at one place."""
    return features[..., feature].flatten(1).amax(1).mean()


def total_variation(pictures: Tensor) -> Tensor:
    """Four-direction total variation of pictures (k, 3, H, W).

    For each of the horizontal, vertical and two diagonal differences of neighbours the L2 norm (not
    squared) over the positions of each copy and channel, averaged over both; then the sum of the
    four.
    """
    differences = (
        pictures[..., :, 1:] - pictures[..., :, :-1],
        pictures[..., 1:, :] - pictures[..., :-1, :],
        pictures[..., 1:, 1:] - pictures[..., :-1, :-1],
        pictures[..., 1:, :-1] - pictures[..., :-1, 1:],
    )
    return sum(torch.linalg.vector_norm(d, dim=(-2, -1)).mean() for d in differences)


def distance_from_grey(pictures: Tensor) -> Tensor:
    """Mean squared distance from mid-grey."""
    return (pictures - 0.5).square().mean()


OBJECTIVES: dict[str, Objective] = {f.__name__: f for f in (token_mean, token_norm, token_max)}
REGULARIZERS: dict[str, Regularizer] = {f.__name__: f for f in (total_variation,
                                                                 distance_from_grey)}
