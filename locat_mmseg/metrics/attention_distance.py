"""Mean attention distance: how far from itself a patch looks.

Shape legend: B batch, H heads, n = h*w patches.
"""
import math

import torch
from torch import Tensor

from ..layers import Grid


def attention_distance(attention: Tensor, grid: Grid,
                       stride: tuple[float, float] = (1, 1)) -> Tensor:
    """Attention-weighted mean distance between a patch query and the patches it attends to.

    Args:
        attention: (B, H, n, n) among patches, rows summing to 1 (see `patch_attention`).
        grid: (h, w) of the patches, row-major, h * w = n.
        stride: distance of neighbouring patches (down, right). (1, 1) gives patches; the size of
            a patch in pixels gives pixels.

    Returns:
        (B, H, n): ``sum_j A_ij * dist(i, j)`` for each query, Euclidean between patch centres.
        Divided by `grid_diagonal` of the same stride it lies between 0 (itself only) and 1; its
        mean over images and queries is the head's mean attention distance.

    Raises:
        ValueError: if h * w differs from n.
    """
    if grid[0] * grid[1] != attention.shape[-1]:
        raise ValueError(f'attention among {attention.shape[-1]} patches for the grid '
                         f'{tuple(grid)} of {grid[0] * grid[1]}: pass the grid (rows, columns) '
                         'of this input')
    distances = patch_distances(grid, stride).to(attention)
    return torch.einsum('...ij,ij->...i', attention, distances)


def patch_distances(grid: Grid, stride: tuple[float, float] = (1, 1)) -> Tensor:
    """(n, n) Euclidean distances between the patch centres of a grid, float64."""
    rows, cols = (torch.arange(size, dtype=torch.float64) * step
                  for size, step in zip(grid, stride))
    places = torch.cartesian_prod(rows, cols)
    return torch.linalg.vector_norm(places[:, None] - places, dim=-1)


def grid_diagonal(grid: Grid, stride: tuple[float, float] = (1, 1)) -> float:
    """Distance between opposite corner patches of a grid, the largest there is.

    Raises:
        ValueError: if the grid is one patch, which has no distances.
    """
    diagonal = math.hypot(*((size - 1) * step for size, step in zip(grid, stride)))
    if diagonal == 0:
        raise ValueError(f'a grid {tuple(grid)} of one patch has no distances: give a larger '
                         'image or smaller patches')
    return diagonal
