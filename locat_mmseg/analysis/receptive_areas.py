"""Effective receptive field by depth: how much of the image makes up the central feature.

Shape legend: B batch.
"""
import torch
from torch import Tensor, nn

from ..metrics import central_gradient, receptive_area
from .capture import find_backbone


def receptive_areas(model: nn.Module, images: Tensor, mass: float = 0.5) -> Tensor:
    """Share of the image that makes up the central feature after each block (Swin: stage).

    Residual paths and MLPs count here too, where attention distances tell of the attention alone.
    Gradients of parameters stay as they are.

    Args:
        model: is or contains one timm ViT, EVA or Swin, in the mode wanted.
        images: (B, 3, height, width), normalised.
        mass: share of the gradient, see `receptive_area`.

    Returns:
        (B, blocks), between 0 and 1.
    """
    backbone = find_backbone(model)
    with torch.enable_grad():
        images = images.detach().requires_grad_()
        maps = backbone.forward_intermediates(images, intermediates_only=True)
        areas = [receptive_area(central_gradient(features, images), mass) for features in maps]
    return torch.stack(areas, dim=1)
