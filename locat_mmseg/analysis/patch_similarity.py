"""How much the features of one patch resemble those of all others.

Shape legend: C channels, H heads, h*w patches.
"""
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..layers import Grid
from .features import is_pyramid, stage_features


def patch_similarity(features: Tensor, patch: Grid, num_heads: int = 1) -> Tensor:
    """Cosine between one patch and each patch, -1 to 1, in each head's share of the channels.

    PRR compares tokens in the same shares (arXiv 2603.04892, section 3).

    Args:
        features: (C, h, w).
        patch: its (row, column).
        num_heads: H; 1: in all channels together.

    Returns:
        (H, h, w).

    Raises:
        ValueError: if the patch lies outside or the channels cannot be split.
    """
    check_patch(patch, tuple(features.shape[1:]))
    if num_heads < 1 or features.shape[0] % num_heads:
        raise ValueError(f'{features.shape[0]} channels cannot be split into num_heads={num_heads} '
                         'equal heads')
    directions = F.normalize(features.unflatten(0, (num_heads, -1)), dim=1)
    row, column = patch
    return torch.einsum('hcij,hc->hij', directions, directions[:, :, row, column])


@torch.no_grad()
def similarity_maps(model: nn.Module, image: Tensor, patch: Grid, num_heads: int = 1
                    ) -> list[Tensor]:
    """`patch_similarity` in the output of each block of a timm model, first block first.

    Args:
        model: in evaluation mode.
        image: (1, 3, H, W), normalised.
        patch, num_heads: as in `patch_similarity`.

    Raises:
        ValueError: if the model is a pyramid, in which a patch is another one in every stage.
    """
    if is_pyramid(model):
        raise ValueError(f'{type(model).__name__} is a pyramid, whose stages have other patches: '
                         'expected a model with one grid of patches, such as a ViT')
    return [patch_similarity(features[0], patch, num_heads)
            for features in stage_features(model, image)]


def check_patch(patch: Grid, grid: Grid) -> None:
    """Refuse a patch outside of a grid.

    Raises:
        ValueError: naming both.
    """
    if not all(0 <= index < size for index, size in zip(patch, grid)):
        raise ValueError(f'patch ({patch[0]}, {patch[1]}) lies outside of the {grid[0]} x '
                         f'{grid[1]} patches (row, column, from 0)')
