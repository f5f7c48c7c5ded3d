"""Measures locality during forward passes: weights in, sums over images kept.

Each layer's weights are reduced to sums as soon as they are computed, so the memory needed does
not grow with the number of images or layers.

Shape legend: B batch, W windows an image, H heads, N = P + n tokens, P prefix tokens, n = h*w
patches.
"""
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ..addon.grid import in_backward
from ..layers import Gaussian, GaussianAugment, gaussian_bias
from ..metrics import (attention_distance, attention_entropy, class_alignment, grid_diagonal,
                       patch_attention, prefix_share)
from .capture import LayerAttention, capture_attention, find_backbone, register
from .locality_results import LayerLocality, Locality


@dataclass
class RunningMean:
    """Mean over images, from sums; one number a head."""
    total: Tensor = field(default_factory=lambda: torch.zeros((), dtype=torch.float64))
    count: Tensor = field(default_factory=lambda: torch.zeros((), dtype=torch.float64))

    def add(self, values: Tensor) -> None:
        """Take up values (B, ..., q), each image as the mean over those of its q queries that are
        not NaN; an image that has none counts nothing."""
        means = values.nanmean(-1).cpu().double()
        self.total = self.total + means.nansum(0)
        self.count = self.count + (~means.isnan()).sum(0)

    @property
    def mean(self) -> list[float] | float:
        """The mean of each head; NaN without a single value."""
        return (self.total / self.count).tolist()


class LocalityMeter:
    """Measures every forward pass of a model while it is open as a context.

    The caller chooses the model's mode and switches gradients off. NaN in a layer's weights makes
    all measures of the layer NaN.

    Args:
        model: as for `capture_attention`.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.backbone = find_backbone(model)
        registers = getattr(self.backbone, 'reg_token', None)
        self.num_registers = 0 if registers is None else registers.shape[1]
        self.num_class_tokens = getattr(self.backbone, 'num_prefix_tokens', 0) - self.num_registers
        self.num_images = torch.zeros((), dtype=torch.float64)
        self._layers: dict[str, dict[str, Any]] = {}
        self._means: dict[tuple[str, str], RunningMean] = {}
        self._gaussians: dict[str, Gaussian] = {}

    def __enter__(self) -> 'LocalityMeter':
        with ExitStack() as stack:
            stack.enter_context(capture_attention(self.model, self._measure))
            for name, module in self.backbone.named_modules():
                if isinstance(module, GaussianAugment):
                    layer = name.rpartition('.')[0]
                    register(stack, module.register_forward_hook(
                        partial(self._note_gaussian, layer)))
            if self.num_class_tokens:
                for name, block in self.backbone.blocks.named_children():
                    register(stack, block.register_forward_hook(partial(self._align, name)))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def _measure(self, layer: LayerAttention) -> None:
        """Consume the weights of one layer."""
        num_windows = len(layer.allowed) if layer.windowed else 1
        if layer.depth == 0:
            self.num_images += len(layer.weights) // num_windows
        facts = self._layers.setdefault(layer.name, dict(
            name=layer.name, depth=layer.depth, windowed=layer.windowed, grids=set()))
        facts['grids'].add(tuple(layer.grid))
        measures = attention_measures(layer, self.num_class_tokens, self.num_registers)
        if layer.name in self._gaussians:
            measures |= gaussian_measures(layer, self._gaussians.pop(layer.name))
        broken = bool(layer.weights.isnan().any())
        for measure, values in measures.items():
            values = values.unflatten(0, (-1, num_windows)).transpose(1, 2).flatten(2)
            self._add(layer.name, measure, values, broken)

    def _note_gaussian(self, layer: str, gaug: GaussianAugment, args: tuple,
                       gaussian: Gaussian) -> None:
        """Keep the Gaussian of a layer until its weights, and what is allowed, are known."""
        if not in_backward():
            self._gaussians[layer] = gaussian

    def _align(self, block: str, module: nn.Module, args: tuple, tokens: Tensor) -> None:
        """Consume the tokens after one block."""
        if not in_backward():
            alignment = class_alignment(tokens, self.backbone.num_prefix_tokens)
            self._add(block, 'class_alignment', alignment, bool(tokens.isnan().any()))

    def _add(self, name: str, measure: str, values: Tensor, broken: bool) -> None:
        mean = self._means.setdefault((name, measure), RunningMean())
        mean.add(values)
        if broken:
            mean.total = mean.total * torch.nan

    def sum_processes(self, sum_in_place: Callable[[Tensor], Any]) -> None:
        """Put the sums of several processes together; each must have seen an image.

        Args:
            sum_in_place: replaces a tensor by the sum of those of all processes.
        """
        sum_in_place(self.num_images)
        for mean in self._means.values():
            sum_in_place(mean.total)
            sum_in_place(mean.count)

    def result(self) -> Locality:
        """The means over all images seen so far.

        Raises:
            ValueError: if there were none.
        """
        if not self.num_images:
            raise ValueError('no image went through the model while it was measured: check that '
                             'the data set is not empty')
        layers = [LayerLocality(**{**facts, 'grids': sorted(facts['grids'])}, **{
            measure: mean.mean for (of, measure), mean in self._means.items() if of == name})
            for name, facts in self._layers.items()]
        alignment = [mean.mean for (_, measure), mean in self._means.items()
                     if measure == 'class_alignment']
        return Locality(int(self.num_images), layers, alignment or None)


def attention_measures(layer: LayerAttention, num_class_tokens: int, num_registers: int
                       ) -> dict[str, Tensor]:
    """Every measure (B * W, H, n) of one layer's weights, NaN for queries that don't count."""
    attention = patch_attention(layer.weights, layer.num_prefix_tokens, layer.allowed)
    patches = attention_distance(attention, layer.grid)
    measures = {
        'distance_diagonal': patches / grid_diagonal(layer.grid),
        'distance_patches': patches,
        'distance_pixels': attention_distance(attention, layer.grid, layer.stride),
        'entropy': attention_entropy(attention, layer.allowed),
    }
    shares = prefix_share(layer.weights, layer.num_prefix_tokens)
    if num_class_tokens:
        measures['class_share'] = shares[..., :num_class_tokens].sum(-1)
    if num_registers:
        measures['register_share'] = shares[..., num_class_tokens:].sum(-1)
    return measures


def gaussian_measures(layer: LayerAttention, gaussian: Gaussian) -> dict[str, Tensor]:
    """Width, strength and distance (B * W, H, n) of one layer's Gaussian."""
    attention = patch_attention(gaussian_bias(gaussian), 0, layer.allowed)
    distance = attention_distance(attention, layer.grid) / grid_diagonal(layer.grid)
    sigma, alpha = gaussian.sigma, gaussian.alpha[..., 0]
    counts = torch.ones_like(alpha, dtype=torch.bool)
    if layer.windowed:
        inside = layer.allowed.any(-1)[:, None]  # (W, 1, n): padding has no Gaussian
        counts = inside.repeat(len(alpha) // len(inside), 1, 1).expand_as(alpha)
    measures = {'gaussian_sigma_rows': sigma[..., 0], 'gaussian_sigma_cols': sigma[..., 1],
                'gaussian_alpha': alpha}
    return {'gaussian_distance_diagonal': distance,
            **{name: values.where(counts, torch.nan) for name, values in measures.items()}}
