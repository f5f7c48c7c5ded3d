"""Attention with a Gaussian on the GPU: one fused kernel that multiplies the factors on the fly.

`torch.nn.attention.flex_attention` takes a function of one logit; the factors are captured by it,
and gradients reach them. Nothing of size N x N is stored, forward or backward.

Shape legend: B batch, H heads, N = P + n tokens, P prefix tokens, n = h*w patches, d head width.
"""
from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

from .gaussian import GaussianFactors

try:
    from torch.nn.attention.flex_attention import flex_attention
except ImportError:  # torch without it; `attend` takes another back end then
    flex_attention = None

MIN_HEAD_DIM = 16


def reason_against_flex(q: Tensor, mask: Tensor | None, dropout_p: float) -> str | None:
    """Why `flex_attend` cannot serve this input, or None if it can."""
    if flex_attention is None:
        return f'torch {torch.__version__} has no flex_attention'
    if q.dtype == torch.float64:
        return 'flex_attention has no float64'
    if q.shape[-1] < MIN_HEAD_DIM:
        return f'heads of {q.shape[-1]} channels are narrower than {MIN_HEAD_DIM}'
    if q.device.type == 'cpu' and q.requires_grad:
        return 'flex_attention has no gradients on the CPU'
    if dropout_p:
        return 'flex_attention has no dropout'
    if torch.are_deterministic_algorithms_enabled():
        return 'flex_attention adds up the gradients of the factors in no fixed order'
    if mask is not None and mask.requires_grad:
        return 'a mask that asks for a gradient needs one number per logit stored'
    return None


def flex_attend(q: Tensor, k: Tensor, v: Tensor, factors: GaussianFactors,
                mask: Tensor | None = None) -> Tensor:
    """``softmax(q k^T / sqrt(d) + S + mask) v``; arguments as in `tiled_attention`."""
    if mask is not None:
        mask = mask.expand(*q.shape[:3], q.shape[2])
    score_mod = gaussian_score_mod(*factors, q.shape[2] - factors.rows.shape[2], mask)
    # A compiled model fuses the call itself; on the CPU there is only a forward pass, for tests.
    eager = torch.compiler.is_compiling() or q.device.type == 'cpu'
    return (flex_attention if eager else compiled_flex_attention())(q, k, v, score_mod=score_mod)


def gaussian_score_mod(rows: Tensor, cols: Tensor, num_prefix_tokens: int,
                       mask: Tensor | None = None) -> Callable[..., Tensor]:
    """The change of one logit, in flex_attention's form ``(score, b, h, i, j) -> score``.

    Args:
        rows: (B, H, n, h).
        cols: (B, H, n, w).
        num_prefix_tokens: P.
        mask: (B, H, N, N), boolean or additive.
    """
    width = cols.shape[-1]

    def add_gaussian(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        query, key = ((t - num_prefix_tokens).clamp(min=0) for t in (i, j))
        gaussian = rows[b, h, query, key // width] * cols[b, h, query, key % width]
        among_patches = (i >= num_prefix_tokens) & (j >= num_prefix_tokens)
        score = score + torch.where(among_patches, gaussian, 0)
        if mask is None:
            return score
        if mask.dtype == torch.bool:
            return torch.where(mask[b, h, i, j], score, -torch.inf)
        return score + mask[b, h, i, j]

    return add_gaussian


@cache
def compiled_flex_attention() -> Callable[..., Tensor]:
    """The kernel for eager models; a compiled model fuses its own."""
    return torch.compile(flex_attention)
