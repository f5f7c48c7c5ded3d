"""GAug twins of timm's attention layers: the same parameter names, plus ``gaug.*``.

Each twin subclasses the timm layer it replaces and restates only its forward pass, with the
Gaussian of LocAtViT (arXiv 2603.04892, section 3) added to the attention logits.

Shape legend: B batch, H heads, N = P + n tokens, P prefix tokens, n = h*w patches, d head width,
C channels.
"""
import copy

import torch
from timm.layers import (Attention, AttentionRope, LayerType, apply_rot_embed_cat,
                         get_norm_layer, use_fused_attn)
from timm.models.eva import EvaAttention
from timm.models.swin_transformer import WindowAttention
from torch import Tensor, nn
from torch.nn import functional as F

from ..layers import Gaussian, GaussianAugment, Grid, attend, attention_weights
from .grid import TokenGrid


class GaussianAttention:
    """What all twins have in common; mixed into a timm attention layer.

    Attributes:
        gaug: the module that predicts the Gaussian.
        num_prefix_tokens: P, tokens without a place on the grid, first in the sequence.
        token_grid: shared by the layers of one model; says which grid the patches form.
    """
    gaug: GaussianAugment
    num_prefix_tokens: int
    token_grid: TokenGrid

    @classmethod
    def from_attention(cls, layer: nn.Module, gaug_grid: Grid, num_prefix_tokens: int = 0,
                       token_grid: TokenGrid | None = None) -> 'GaussianAttention':
        """Make the twin of a timm layer; both share parameters, buffers and child modules.

        Args:
            layer: an instance of the timm class that this class extends.
            gaug_grid: (h, w) of pre-training.
            num_prefix_tokens: P.
            token_grid: the model's, or None for a layer used alone.
        """
        twin = cls.__new__(cls)
        for name, value in layer.__dict__.items():
            twin.__dict__[name] = copy.copy(value) if isinstance(value, dict) else value
        twin._add_gaussian(gaug_grid, num_prefix_tokens, token_grid)
        return twin

    def _add_gaussian(self, gaug_grid: int | Grid, num_prefix_tokens: int,
                      token_grid: TokenGrid | None = None) -> None:
        weight = self.proj.weight
        # Heads may be narrower than C / H, so the width is read from the projection's input.
        gaug = GaussianAugment(self.proj.in_features // self.num_heads, gaug_grid)
        self.gaug = gaug.to(device=weight.device, dtype=weight.dtype).train(self.training)
        self.num_prefix_tokens = num_prefix_tokens
        self.token_grid = token_grid if token_grid is not None else TokenGrid()

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, gaussian: Gaussian,
                mask: Tensor | None) -> Tensor:
        """Attention, heads concatenated: (B, N, H * d)."""
        if self.fused_attn:
            dropout_p = self.attn_drop.p if self.training else 0.
            x = attend(q, k, v, gaussian, mask, dropout_p)
        else:  # as in timm, the weights pass through a module, where a hook finds them
            x = self.attn_drop(attention_weights(q, k, gaussian, mask)) @ v
        return x.transpose(1, 2).flatten(2)


class GaussianSequenceAttention(GaussianAttention):
    """What the twins on token sequences have in common.

    Args:
        dim: channels C.
        num_heads: H.
        gaug_grid: (h, w) of pre-training, or an integer for a square.
        num_prefix_tokens: P.
        norm_layer: name or class of the q/k and scale norm.
        **kwargs: of the timm layer.
    """

    def __init__(self, dim: int, num_heads: int = 8, gaug_grid: int | Grid = 14,
                 num_prefix_tokens: int = 1, norm_layer: LayerType = 'layernorm',
                 **kwargs) -> None:
        super().__init__(dim, num_heads, norm_layer=get_norm_layer(norm_layer), **kwargs)
        self._add_gaussian(gaug_grid, num_prefix_tokens)

    def forward(self, x: Tensor, rope: Tensor | None = None, attn_mask: Tensor | None = None,
                is_causal: bool = False, grid: Grid | None = None) -> Tensor:
        """Attend.

        Args:
            x: (B, N, C).
            rope: rotary embedding of the patches, (n, 2d) or (H, n, 2d). GAug reads the queries
                before the rotation.
            attn_mask: broadcastable to (B, H, N, N); boolean (True keeps) or additive.
            is_causal: refused, a patch grid has no order in time.
            grid: (h, w) of the patches, for a layer used alone; else the model's token grid.

        Returns:
            (B, N, C).

        Raises:
            ValueError: if ``is_causal``, or if the grid does not fit the tokens.
        """
        if is_causal:
            raise ValueError('is_causal=True: Gaussian-augmented attention works on a grid of '
                             'patches, which has no order in time; pass an attn_mask instead')
        gate = None if self.gate is None else self.gate(x).sigmoid()
        q, k, v = self._queries_keys_values(x)
        q, k = self.q_norm(q), self.k_norm(k)
        grid = grid or self.token_grid.lookup(q.shape[-2] - self.num_prefix_tokens)
        gaussian = self.gaug(q, grid, self.num_prefix_tokens)
        if rope is not None:
            q, k = self._rotate(q, rope).type_as(v), self._rotate(k, rope).type_as(v)
        if k.shape[1] < q.shape[1]:  # grouped heads: each key head serves several query heads
            k, v = (t.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for t in (k, v))
        x = self.norm(self._attend(q, k, v, gaussian, attn_mask))
        if gate is not None:
            x = x * gate
        return self.proj_drop(self.proj(x))

    def _queries_keys_values(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """q, k, v of (B, H, N, d) each, from one projection."""
        return split_heads(self.qkv(x), self.num_heads)

    def _rotate(self, x: Tensor, rope: Tensor) -> Tensor:
        """Rotate patch queries or keys by their position; prefix tokens have none."""
        prefix, patches = x.tensor_split([self.num_prefix_tokens], dim=2)
        return torch.cat([prefix, apply_rot_embed_cat(patches, rope, half=self.rotate_half)], dim=2)


class GAugAttention(GaussianSequenceAttention, Attention):
    """GAug twin of `timm.layers.Attention` (ViT, DeiT, register ViT, DINOv2, CLIP).

    Arguments as in `GaussianSequenceAttention`.
    """

    def forward(self, x: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False,
                grid: Grid | None = None) -> Tensor:
        """Attend, without rotation; arguments as in `GaussianSequenceAttention.forward`."""
        return super().forward(x, None, attn_mask, is_causal, grid)


class GAugAttentionRope(GaussianSequenceAttention, AttentionRope):
    """GAug twin of `timm.layers.AttentionRope` (RoPE ViTs).

    Arguments as in `GaussianSequenceAttention`.
    """

    def _queries_keys_values(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        if self.qkv is None:
            return project_separately(self, x)
        return super()._queries_keys_values(x)


class GAugEvaAttention(GaussianSequenceAttention, EvaAttention):
    """GAug twin of `timm.models.eva.EvaAttention` (EVA, EVA-02, DINOv3): keys have no bias.

    Arguments as in `GaussianSequenceAttention`.
    """

    def _queries_keys_values(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        if self.qkv is None:
            return project_separately(self, x)
        bias = None if self.q_bias is None else torch.cat([self.q_bias, self.k_bias, self.v_bias])
        if bias is not None and self.qkv_bias_separate:
            qkv = self.qkv(x) + bias
        else:
            qkv = F.linear(x, self.qkv.weight, bias)
        return split_heads(qkv, self.num_heads)


class GAugWindowAttention(GaussianAttention, WindowAttention):
    """GAug twin of Swin's `timm.models.swin_transformer.WindowAttention`: the window is the grid.

    Args:
        dim: channels C.
        num_heads: H.
        window_size: (h, w) of the window, or an integer for a square.
        gaug_grid: window of pre-training; by default ``window_size``.
        **kwargs: of timm's WindowAttention.
    """

    def __init__(self, dim: int, num_heads: int, window_size: int | Grid = 7,
                 gaug_grid: int | Grid | None = None, **kwargs) -> None:
        super().__init__(dim, num_heads, window_size=window_size, **kwargs)
        self._add_gaussian(self.window_size if gaug_grid is None else gaug_grid,
                           num_prefix_tokens=0)

    def _add_gaussian(self, *args, **kwargs) -> None:
        super()._add_gaussian(*args, **kwargs)
        # timm does not fuse windows, torch's kernel being slow there; `attend` knows what is fast.
        self.fused_attn = use_fused_attn()

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Attend inside each window.

        Args:
            x: (B * num_windows, h * w, C).
            mask: additive shift mask (num_windows, h * w, h * w), or None.

        Returns:
            (B * num_windows, h * w, C).
        """
        q, k, v = split_heads(self.qkv(x), self.num_heads)
        bias = self._get_rel_pos_bias()
        if mask is not None:
            # One mask a window, the same for every image and head: (B * num_windows, H, n, n).
            bias = (bias + mask[:, None]).repeat(len(x) // len(mask), 1, 1, 1)
        gaussian = self.gaug(q, self.window_size)
        return self.proj_drop(self.proj(self._attend(q, k, v, gaussian, bias)))


def split_heads(qkv: Tensor, num_heads: int) -> tuple[Tensor, Tensor, Tensor]:
    """(B, N, 3 * H * d) -> q, k, v of (B, H, N, d) each, contiguous: later steps need them so, and
    one copy that takes the place of ``qkv`` is less memory than theirs beside it."""
    return qkv.unflatten(-1, (3, num_heads, -1)).permute(2, 0, 3, 1, 4).contiguous().unbind(0)


def project_separately(layer: nn.Module, x: Tensor) -> tuple[Tensor, ...]:
    """q, k, v (B, H or key heads, N, d) from a timm layer's three separate projections."""
    return tuple(project(x).unflatten(-1, (-1, layer.head_dim)).transpose(1, 2)
                 for project in (layer.q_proj, layer.k_proj, layer.v_proj))
