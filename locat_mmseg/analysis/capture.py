"""See the attention weights of every layer while a model runs.

Fused kernels never form the weights. While a capture is open, the layers take timm's explicit
path, in which the weights pass through the module ``attn_drop``: a hook there reads them. The
model's outputs stay the same up to rounding.

Shape legend: B batch, W windows an image, H heads, N = P + n tokens, P prefix tokens, n = h*w
patches.
"""
import math
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from timm.models.swin_transformer import (PatchMerging, SwinTransformerBlock, WindowAttention,
                                          window_partition)
from torch import Tensor, nn

from ..addon import TWINS, GaussianAttention, TokenGrid
from ..addon.convert import attention_named, class_path
from ..addon.grid import in_backward
from ..layers import Grid


@dataclass(frozen=True)
class LayerAttention:
    """The attention weights of one layer in one forward pass.

    Attributes:
        name: of the layer in its timm model, e.g. 'blocks.0.attn'.
        depth: 0 for the first attention layer.
        weights: (B, H, N, N) after softmax and before dropout, rows summing to 1, detached; of
            window attention (B * W, H, n, n), the windows of an image in row-major order.
        grid: (h, w) that the last n of the N tokens form; for windows the window.
        stride: pixels from one patch to the next, (down, right).
        num_prefix_tokens: P, class and register tokens, first in the sequence.
        allowed: for windows, which pairs (W, n, n) of query and key belong together: both inside
            the image (not padding) and not parted by the shift. None: all pairs.
    """
    name: str
    depth: int
    weights: Tensor
    grid: Grid
    stride: Grid
    num_prefix_tokens: int
    allowed: Tensor | None = None

    @property
    def windowed(self) -> bool:
        """Whether the layer attends inside windows."""
        return self.allowed is not None


Consumer = Callable[[LayerAttention], Any]

# Backbones with an open capture.
_captured: 'weakref.WeakSet[nn.Module]' = weakref.WeakSet()


@contextmanager
def capture_attention(model: nn.Module, consumer: Consumer | None = None
                      ) -> Iterator[list[LayerAttention]]:
    """Hand out the attention weights of each layer, first layer first, while the context is open.

    Works with plain timm models of the classes in `locat_mmseg.addon.TWINS`, with the same after
    `add_gaug`, and with whatever holds one such model: a registered backbone, a classifier, a
    segmentor, DistributedDataParallel. Everything is restored on exit, also after an exception.
    Compiled models run eagerly meanwhile. Recomputations of gradient checkpointing are left out.

    Args:
        model: is or contains exactly one timm backbone.
        consumer: called with the `LayerAttention` of each layer as soon as it is computed, in the
            middle of the forward pass: one layer's weights are in memory at a time unless the
            consumer keeps them.

    Yields:
        Without a consumer, a list that holds the layers of the newest forward pass; with one, an
        empty list.

    Raises:
        ValueError: if the model has no or several backbones, attention layers without explicit
            weights, or an open capture.

    Example:
        >>> with capture_attention(model) as layers:
        ...     model(images)
        >>> layers[0].weights.shape
    """
    backbone = find_backbone(model)
    attention = capturable_layers(backbone)
    if backbone in _captured:
        raise ValueError(f'a capture of the attention of this {class_path(backbone)} is open '
                         'already: use that one, or close it first')
    layers: list[LayerAttention] = []
    with ExitStack() as stack:
        _captured.add(backbone)
        stack.callback(_captured.discard, backbone)
        stack.enter_context(torch.compiler.set_stance('force_eager'))
        grid = TokenGrid()
        if not all(isinstance(layer, WindowAttention) for layer in attention.values()):
            register(stack, backbone.patch_embed.register_forward_hook(grid))
        if consumer is None:
            consumer = layers.append
            register(stack, backbone.patch_embed.register_forward_pre_hook(
                lambda *_: layers.clear()))
        for depth, (name, layer) in enumerate(attention.items()):
            stack.callback(setattr, layer, 'fused_attn', layer.fused_attn)
            layer.fused_attn = False
            record = partial(LayerAttention, name, depth, stride=stride_of(backbone, layer))
            if isinstance(layer, WindowAttention):
                block = backbone.get_submodule(name.rpartition('.')[0])
                capture_windows(stack, block, record, consumer)
            else:
                record = partial(record, num_prefix_tokens=backbone.num_prefix_tokens)
                capture_sequence(stack, layer, record, consumer, grid)
        yield layers


def capture_sequence(stack: ExitStack, layer: nn.Module, record: partial[LayerAttention],
                     consumer: Consumer, grid: TokenGrid) -> None:
    """Hand the weights of a layer on token sequences to the consumer until the stack closes."""
    num_prefix_tokens = record.keywords['num_prefix_tokens']

    def read(dropout: nn.Module, args: tuple[Tensor]) -> None:
        if not in_backward():
            weights = args[0].detach()
            patches = grid.lookup(weights.shape[-1] - num_prefix_tokens)
            consumer(record(weights, patches))

    register(stack, layer.attn_drop.register_forward_pre_hook(read))


def capture_windows(stack: ExitStack, block: SwinTransformerBlock,
                    record: partial[LayerAttention], consumer: Consumer) -> None:
    """Hand the weights of a block's windows to the consumer until the stack closes."""
    size = mask = None

    def note_size(block: nn.Module, args: tuple[Tensor]) -> None:
        nonlocal size
        size = tuple(args[0].shape[1:3])

    def note_mask(layer: nn.Module, args: tuple[Tensor], kwargs: dict[str, Any]) -> None:
        nonlocal mask
        mask = kwargs['mask']

    def read(dropout: nn.Module, args: tuple[Tensor]) -> None:
        if not in_backward():
            weights = args[0].detach()
            allowed = allowed_pairs(size, block.window_size, mask).to(weights.device)
            consumer(record(weights, block.window_size, num_prefix_tokens=0, allowed=allowed))

    register(stack, block.register_forward_pre_hook(note_size))
    register(stack, block.attn.register_forward_pre_hook(note_mask, with_kwargs=True))
    register(stack, block.attn.attn_drop.register_forward_pre_hook(read))


def register(stack: ExitStack, handle: torch.utils.hooks.RemovableHandle) -> None:
    """Remove the hook of ``handle`` when the stack closes."""
    stack.callback(handle.remove)


def allowed_pairs(size: Grid, window: Grid, mask: Tensor | None) -> Tensor:
    """Which pairs (W, n, n) of tokens in each window belong together.

    Args:
        size: (height, width) of the map; Swin pads it at the bottom and the right to whole
            windows, after the shift.
        window: (h, w).
        mask: (W, n, n), 0 where the shift leaves a pair together; None without a shift.
    """
    inside = torch.zeros(1, *(math.ceil(s / w) * w for s, w in zip(size, window)), 1)
    inside[:, :size[0], :size[1]] = 1
    inside = window_partition(inside, window).flatten(1) > 0
    pairs = inside[:, :, None] & inside[:, None, :]
    return pairs if mask is None else pairs & (mask == 0).to(pairs.device)


def stride_of(backbone: nn.Module, layer: nn.Module) -> Grid:
    """Pixels from one token to the next in a layer: of the patch embedding, and doubled by each
    patch merging before the layer."""
    stride = backbone.patch_embed.feat_ratio(as_scalar=False)
    for module in backbone.modules():
        if module is layer:
            break
        if isinstance(module, PatchMerging):
            stride = 2 * stride[0], 2 * stride[1]
    return tuple(stride)


def find_backbone(model: nn.Module) -> nn.Module:
    """The one timm model, known by its patch embedding, that ``model`` is or contains.

    Raises:
        ValueError: if there is none, or several.
    """
    found = {name: module for name, module in model.named_modules()
             if 'patch_embed' in dict(module.named_children())}
    if len(found) == 1:
        return next(iter(found.values()))
    if found:
        raise ValueError(f'{class_path(model)} holds several backbones: {", ".join(found)}; pass '
                         'one of them')
    raise ValueError(f'{class_path(model)} holds no timm model with a patch embedding; expected '
                     'a ViT, EVA or Swin of timm, plain or with GAug, or what contains one')


def capturable_layers(backbone: nn.Module) -> dict[str, nn.Module]:
    """Name and module of each attention layer, first layer first.

    Raises:
        ValueError: if there are none, or some whose weights can't be read.
    """
    found = attention_named(backbone)
    unknown = {class_path(layer) for layer in found.values()
               if type(layer) not in TWINS and not isinstance(layer, GaussianAttention)}
    if unknown or not found:
        names = unknown or {class_path(block) for block in getattr(backbone, 'blocks', ())}
        known = (f'{cls.__module__}.{cls.__qualname__}' for cls in TWINS)
        raise ValueError(f'the attention of {class_path(backbone)} cannot be captured. Found: '
                         f'{", ".join(sorted(names)) or "none"}; supported: '
                         f'{", ".join(sorted(known))}, and each with GAug')
    if not all(isinstance(layer, WindowAttention) for layer in found.values()) and not (
            hasattr(backbone, 'num_prefix_tokens')
            and hasattr(backbone.patch_embed, 'dynamic_feat_size')):
        raise ValueError(f'{class_path(backbone)} does not tell the grid of its tokens: expected '
                         'num_prefix_tokens, and a patch embedding with dynamic_feat_size, as '
                         'timm.models.vision_transformer.VisionTransformer has')
    return found
