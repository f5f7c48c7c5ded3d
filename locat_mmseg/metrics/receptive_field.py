"""Effective receptive field: from where in the image a feature really comes.

Luo et al., Understanding the effective receptive field in deep convolutional neural networks,
arXiv 1701.04128: the gradient of one unit of a feature map with respect to the input.
"""
import torch
from torch import Tensor


def central_gradient(features: Tensor, image: Tensor) -> Tensor:
    """How much each pixel contributes to the central feature.

    Args:
        features: (B, C, h, w), computed from ``image`` with gradients; the graph is kept.
        image: (B, 3, height, width), which requires gradients.

    Returns:
        (B, height, width): magnitude of the gradient of the feature at (h // 2, w // 2), summed
        over channels of the feature and of the image.
    """
    centre = features[..., features.shape[-2] // 2, features.shape[-1] // 2]
    gradient, = torch.autograd.grad(centre.sum(), image, retain_graph=True)
    return gradient.abs().sum(1)


def receptive_area(contributions: Tensor, mass: float = 0.5) -> Tensor:
    """Smallest share of the image whose pixels hold a share of all contributions.

    Args:
        contributions: (B, height, width), not negative.
        mass: share of their sum, between 0 and 1.

    Returns:
        (B,): near 0 a few pixels, ``mass`` an even spread over the whole image.

    Raises:
        ValueError: for a mass outside of (0, 1).
    """
    if not 0 < mass < 1:
        raise ValueError(f'mass={mass}: expected a share between 0 and 1')
    ordered = contributions.flatten(1).double().sort(descending=True).values
    reached = ordered.cumsum(-1) / ordered.sum(-1, keepdim=True)
    return ((reached < mass).sum(-1) + 1) / ordered.shape[-1]
