"""Weighted k-nearest-neighbour classification of frozen features (arXiv 2104.14294, appendix F.1).

Shape legend: Q queries, M stored features, C channels, K classes.
"""
import torch
from torch import Tensor
from torch.nn import functional as F

from .neighbors import nearest_neighbors, vote_weights

QUERIES = 1024  # at a time: bounds the memory for their neighbours


def knn_scores(queries: Tensor, features: Tensor, labels: Tensor, num_classes: int, k: int = 20,
               temperature: float = 0.07) -> Tensor:
    """Vote of the k nearest stored features by cosine, each with weight exp(cosine / temperature).

    Args:
        queries: (Q, C).
        features: (M, C), with ``labels`` (M,) from 0 to K - 1.
        num_classes: K.
        k: neighbours, at most M.
        temperature: of the weights.

    Returns:
        Share of each class in the vote, (Q, K); rows sum to 1.

    Raises:
        ValueError: if k or the temperature is out of range, or labels and features do not match.
    """
    check_labels(features, labels, num_classes)
    keys = F.normalize(features, dim=1)
    scores = queries.new_zeros(len(queries), num_classes)
    for part, votes in zip(F.normalize(queries, dim=1).split(QUERIES), scores.split(QUERIES)):
        similarities, positions = nearest_neighbors(part, [keys], k)
        votes.scatter_add_(1, labels[positions], vote_weights(similarities, temperature))
    return scores


def check_labels(features: Tensor, labels: Tensor, num_classes: int) -> None:
    """Refuse labels that do not belong to the features or the classes.

    Raises:
        ValueError: saying which.
    """
    if features.ndim != 2 or labels.shape != features.shape[:1]:
        raise ValueError(f'features of shape {tuple(features.shape)} with labels of shape '
                         f'{tuple(labels.shape)}: expected (M, C) and (M,)')
    if len(labels) and not 0 <= labels.min() <= labels.max() < num_classes:
        raise ValueError(f'labels from {labels.min()} to {labels.max()}: expected 0 to '
                         f'{num_classes - 1} for {num_classes} classes')


def topk_accuracy(scores: Tensor, labels: Tensor, k: int = 1) -> float:
    """Percent of the rows of ``scores`` (Q, K) that have the label (Q,) among the best k."""
    best = scores.topk(min(k, scores.shape[1]), dim=1).indices
    return 100 * (best == labels[:, None]).any(dim=1).double().mean().item()
