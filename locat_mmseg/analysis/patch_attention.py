"""Where one patch attends to, in each layer and head.

Shape legend: H heads, P prefix tokens, h*w patches.
"""
import torch
from torch import Tensor, nn

from ..layers import Grid
from .capture import LayerAttention, capture_attention
from .patch_similarity import check_patch


@torch.no_grad()
def attention_maps(model: nn.Module, image: Tensor, patch: Grid) -> list[Tensor]:
    """Attention weights (H, h, w) from one patch to each patch, first layer first.

    What goes to prefix tokens is not shown: a map sums to at most 1.

    Args:
        model: a ViT or EVA, plain or with GAug, in evaluation mode.
        image: (1, 3, H, W), normalised.
        patch: the query's (row, column).

    Raises:
        ValueError: if the patch lies outside, or the model attends inside windows.
    """
    maps: list[Tensor] = []

    def keep_row(layer: LayerAttention) -> None:
        if layer.windowed:
            raise ValueError(f'{layer.name} attends inside windows: a patch has no map over the '
                             'whole image there; look at its similarity maps')
        check_patch(patch, layer.grid)
        query = layer.num_prefix_tokens + patch[0] * layer.grid[1] + patch[1]
        row = layer.weights[0, :, query, layer.num_prefix_tokens:]
        maps.append(row.unflatten(1, layer.grid).clone())

    with capture_attention(model, keep_row):
        model(image)
    return maps
