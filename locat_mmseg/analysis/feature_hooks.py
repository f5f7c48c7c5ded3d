"""Reading features with hooks: the forward pass stops at the last wanted layer.

Shape legend: B pictures, n patch tokens (or positions), h x w their grid, F features of a layer.
"""
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from .feature_layers import FeatureLayer, unchanged
from .picture_model import PictureModel


class LayerReached(Exception):
    """Ends a forward pass whose last wanted layer has been read."""


class FeatureReader:
    """Reads features of some layers; the forward pass stops after the last of them.

    Args:
        model: the model.
        layers: from `feature_layers` of this model.
        reduce: applied to the features (B, ..., F) of each layer as soon as they are there, so
            that a pass over many layers need not keep them; by default nothing.
    """

    def __init__(self, model: PictureModel, layers: Sequence[FeatureLayer],
                 reduce: Callable[[Tensor], Any] = unchanged) -> None:
        self.model = model
        self.layers = list(layers)
        self.reduce = reduce

    def __call__(self, pictures: Tensor) -> list[Any]:
        """Features of pictures (B, 3, H, W) in [0, 1].

        Returns:
            For each layer (B, n, F), or (B, h, w, F) where the model keeps a map, without prefix
            tokens, after ``reduce``. Tokens of a Swin's attention are in the order of its windows.

        Raises:
            ValueError: if the model does not take pictures of this size.
        """
        found: dict[int, Any] = {}
        with ExitStack() as stack:
            for number, layer in enumerate(self.layers):
                hook = partial(self._keep, found, number, len(pictures), [0])
                register = layer.module.register_forward_pre_hook if layer.on_input \
                    else layer.module.register_forward_hook
                stack.callback(register(hook).remove)
            try:
                self.model(pictures)
            except LayerReached:
                pass
        return [found[number] for number in range(len(self.layers))]

    def _keep(self, found: dict[int, Any], number: int, batch: int, calls: list[int],
              module: nn.Module, args: tuple, output: Tensor | None = None) -> None:
        layer = self.layers[number]
        if calls[0] == layer.call:
            value = layer.read(args[0] if layer.on_input else output)
            if len(value) != batch:  # windows of a picture follow one another
                value = value.reshape(batch, -1, value.shape[-1])
            if layer.num_prefix_tokens:
                value = value[:, layer.num_prefix_tokens:]
            found[number] = self.reduce(value)
        calls[0] += 1
        if len(found) == len(self.layers):
            raise LayerReached


def pool(features: Tensor) -> Tensor:
    """Mean over tokens or positions: (B, ..., F) -> (B, F)."""
    return features.flatten(1, -2).mean(1)


@torch.no_grad()
def check_features(model: PictureModel, layers: Sequence[FeatureLayer], features: Sequence[int],
                   size: tuple[int, int]) -> None:
    """Whether layers have features of these numbers, by one black picture of a size (H, W).

    Raises:
        ValueError: naming the first that one of them has not, or see `FeatureReader`.
    """
    picture = torch.zeros(1, 3, *size, device=model.device)
    counts = FeatureReader(model, layers, reduce=lambda values: values.shape[-1])(picture)
    for layer, count in zip(layers, counts):
        wrong = [feature for feature in features if not 0 <= feature < count]
        if wrong:
            raise ValueError(f'feature {wrong[0]}: layer {layer.name} has features 0 to '
                             f'{count - 1}')


def as_map(features: Tensor, core: nn.Module, size: tuple[int, int]) -> Tensor:
    """Features (B, n, F) or (B, h, w, F) of pictures of a size (H, W) as maps (B, h, w, F).

    Raises:
        ValueError: if n tokens form no grid of the pictures' proportions.
    """
    if features.ndim == 4:
        return features
    count, (height, width) = features.shape[1], size
    patch_embed = getattr(core, 'patch_embed', None)
    if hasattr(patch_embed, 'dynamic_feat_size'):
        rows, columns = patch_embed.dynamic_feat_size(size)
        if rows * columns == count:
            return features.unflatten(1, (rows, columns))
    # Families that halve their grid on the way, without telling: the grid like the picture.
    rows = min((r for r in range(1, count + 1) if count % r == 0),
               key=lambda r: abs(r - count / r * height / width))
    if abs(rows - count / rows * height / width) > 1:
        raise ValueError(f'{count} tokens form no grid of the proportions of {height} x {width} '
                         'pixels; take square pictures')
    return features.unflatten(1, (rows, count // rows))
