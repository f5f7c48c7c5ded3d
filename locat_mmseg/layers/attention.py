"""One softmax attention with an additive Gaussian: ``softmax(q k^T / sqrt(d) + S + mask) v``.

Several exact back ends compute it; `attend` takes the one that is fastest where it runs.

| back end | what it does | taken |
|---|---|---|
| flex | one kernel that multiplies the factors on the fly | CUDA |
| tiled | a cache-sized part of the attention matrix at a time | CPU |
| sdpa | torch's fused attention, the Gaussian written out as its bias | where neither serves |
| explicit | the attention matrix itself | windows in training on the CPU |

Shape legend: B batch, H heads, N = P + n tokens, P prefix tokens, n = h*w patches, d head width.
"""
import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.nn import functional as F

from .flex_attention import flex_attend, reason_against_flex
from .gaussian import Gaussian, gaussian_bias
from .tiled_attention import is_forward_mode, reason_against_tiled, tiled_attention

BACKENDS = ('flex', 'tiled', 'sdpa', 'explicit')

# Up to so many tokens (Swin's windows have 49 or 144) the matrix of a head is small enough for the
# plain forms to be the fastest on a CPU.
WINDOW_TOKENS = 144

_forced: str | None = None


@contextmanager
def attention_backend(name: str) -> Iterator[None]:
    """Force one back end of `attend` while the context is open, in all threads.

    Args:
        name: one of `BACKENDS`.

    Raises:
        ValueError: if there is no such back end; `attend` itself raises if it can't serve an input.
    """
    global _forced
    _check_name(name)
    before, _forced = _forced, name
    try:
        yield
    finally:
        _forced = before


def attend(q: Tensor, k: Tensor, v: Tensor, gaussian: Gaussian | None = None,
           mask: Tensor | None = None, dropout_p: float = 0.0,
           backend: str | None = None) -> Tensor:
    """Scaled dot-product attention with the Gaussian of GAug (arXiv 2603.04892, section 3).

    Args:
        q, k, v: (B, H, N, d).
        gaussian: of the last n of the N tokens; the first P = N - n are prefix tokens,
            which neither give nor receive a Gaussian.
        mask: broadcastable to (B, H, N, N). Boolean: True means keep; a query that may see no key
            gets 0. Float: added to the logits.
        dropout_p: dropout of the attention weights.
        backend: one of `BACKENDS`; by default that of an open `attention_backend`, else the
            fastest that can serve. 'flex' and 'tiled' have first derivatives alone, and not those
            of `torch.func`.

    Returns:
        (B, H, N, d).

    Raises:
        ValueError: if the shapes do not fit, or the asked back end can't serve.
    """
    _check_shapes(q, k, v, gaussian)
    backend = backend or _forced
    if backend is None:
        backend = choose_backend(q, gaussian, mask, dropout_p)
    else:
        _check_name(backend)
        _check_serves(backend, q, gaussian, mask, dropout_p)
    if backend == 'flex':
        return flex_attend(q, k, v, gaussian.factors(), mask)
    if backend == 'tiled':
        return tiled_attention(q, k, v, gaussian, mask)
    if backend == 'sdpa':
        bias = attention_bias(q, gaussian, mask)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, dropout_p=dropout_p)
    weights = attention_weights(q, k, gaussian, mask)
    return F.dropout(weights, dropout_p, training=dropout_p > 0) @ v


def choose_backend(q: Tensor, gaussian: Gaussian | None = None, mask: Tensor | None = None,
                   dropout_p: float = 0.0) -> str:
    """The fastest back end that can serve an input; arguments as of `attend`."""
    if is_forward_mode(q):
        return 'explicit'
    if gaussian is None or _is_exporting():
        return 'sdpa'
    if q.device.type == 'cuda' and reason_against_flex(q, mask, dropout_p) is None:
        return 'flex'
    if q.device.type != 'cpu':
        return 'sdpa'
    if q.shape[-2] <= WINDOW_TOKENS:
        return 'explicit' if torch.is_grad_enabled() else 'sdpa'
    return 'sdpa' if reason_against_tiled(q, mask, dropout_p) else 'tiled'


def _is_exporting() -> bool:
    """Whether the model is being written for another runtime, without this package's operators."""
    is_exporting = getattr(torch.compiler, 'is_exporting', bool)  # torch 2.6 has none
    return torch.jit.is_tracing() or is_exporting()


def _check_shapes(q: Tensor, k: Tensor, v: Tensor, gaussian: Gaussian | None) -> None:
    if not q.shape[:3] == k.shape[:3] == v.shape[:3]:
        raise ValueError(f'q, k and v have the shapes {tuple(q.shape)}, {tuple(k.shape)} and '
                         f'{tuple(v.shape)}: batch, heads and tokens must be the same; expand what '
                         'is shared')
    if gaussian is None:
        return
    strength, precision = tuple(gaussian.strength.shape), tuple(gaussian.precision.shape)
    patches = gaussian.num_patches
    if patches > q.shape[-2]:
        raise ValueError(f'a Gaussian of {patches} patches for {q.shape[-2]} tokens: there must be '
                         'at least as many tokens')
    if patches != math.prod(gaussian.grid) or strength != (*q.shape[:2], patches, 1) \
            or precision != (*q.shape[:2], patches, 2):
        raise ValueError(f'a Gaussian of strength {strength} and precision {precision} on a grid '
                         f'of {gaussian.grid} for q of {tuple(q.shape)}: expected (B, H, h*w, 1) '
                         'and (B, H, h*w, 2)')


def _check_name(backend: str) -> None:
    if backend not in BACKENDS:
        raise ValueError(f'attention back end {backend!r}: expected one of {BACKENDS}')


def _check_serves(backend: str, q: Tensor, gaussian: Gaussian | None, mask: Tensor | None,
                  dropout_p: float) -> None:
    if backend in ('sdpa', 'explicit'):
        return
    reason = 'there is no Gaussian' if gaussian is None else \
        reason_against_flex(q, mask, dropout_p) if backend == 'flex' else \
        reason_against_tiled(q, mask, dropout_p)
    if reason:
        raise ValueError(f'attention back end {backend!r} cannot serve this input: {reason}; take '
                         "'sdpa' or 'explicit', or leave the choice open")


def attention_weights(q: Tensor, k: Tensor, gaussian: Gaussian | None = None,
                      mask: Tensor | None = None) -> Tensor:
    """The attention matrix (B, H, N, N), rows summing to 1; arguments as of `attend`."""
    logits = (q * q.shape[-1] ** -0.5) @ k.transpose(-2, -1)
    if mask is None or mask.dtype != torch.bool:
        bias = attention_bias(q, gaussian, mask)
        return (logits if bias is None else logits + bias).softmax(dim=-1)
    if gaussian is not None:
        logits = logits + attention_bias(q, gaussian)
    return masked_softmax(logits, mask)


def masked_softmax(logits: Tensor, keep: Tensor) -> Tensor:
    """Softmax over the kept keys; 0 for a query that keeps none, where it would be 0 / 0."""
    weights = logits.masked_fill(~keep, torch.finfo(logits.dtype).min).softmax(dim=-1)
    return weights.masked_fill(~keep, 0)


def attention_bias(q: Tensor, gaussian: Gaussian | None,
                   mask: Tensor | None = None) -> Tensor | None:
    """Gaussian and mask as one bias that scaled dot-product attention takes, or None."""
    if gaussian is None:
        return mask
    bias = gaussian_bias(gaussian, q.shape[-2] - gaussian.num_patches)
    if mask is not None:
        bias = bias.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else bias + mask
    return bias.to(q.dtype)
