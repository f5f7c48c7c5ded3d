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
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.nn import functional as F

from .flex_attention import flex_attend, reason_against_flex
from .gaussian import GaussianFactors, gaussian_bias
from .tiled_attention import reason_against_tiled, tiled_attention

BACKENDS = ('flex', 'tiled', 'sdpa', 'explicit')

# Up to so many tokens (Swin's windows have 49 or 144) the matrix of a head is small enough for the
# plain forms to be the fastest on a CPU.
WINDOW_TOKENS = 144

_forced: list[str] = []


@contextmanager
def attention_backend(name: str) -> Iterator[None]:
    """Force one back end of `attend` while the context is open.

    Args:
        name: one of `BACKENDS`.

    Raises:
        ValueError: if there is no such back end; `attend` itself raises if it can't serve an input.
    """
    _check_name(name)
    _forced.append(name)
    try:
        yield
    finally:
        _forced.pop()


def attend(q: Tensor, k: Tensor, v: Tensor, gaussian: GaussianFactors | None = None,
           mask: Tensor | None = None, dropout_p: float = 0.0,
           backend: str | None = None) -> Tensor:
    """Scaled dot-product attention with the Gaussian of GAug (arXiv 2603.04892, section 3).

    Args:
        q, k, v: (B, H, N, d).
        gaussian: factors of the last n of the N tokens; the first P = N - n are prefix tokens,
            which neither give nor receive a Gaussian.
        mask: broadcastable to (B, H, N, N). Boolean: True means keep. Float: added to the logits.
        dropout_p: dropout of the attention weights.
        backend: one of `BACKENDS`; by default that of an open `attention_backend`, else the
            fastest that can serve. Second derivatives exist with 'explicit' only.

    Returns:
        (B, H, N, d).

    Raises:
        ValueError: if there are more Gaussians than tokens, or the asked back end can't serve.
    """
    if gaussian is not None and gaussian.rows.shape[-2] > q.shape[-2]:
        raise ValueError(f'Gaussian factors of {gaussian.rows.shape[-2]} patches for '
                         f'{q.shape[-2]} tokens: there must be at least as many tokens')
    if backend is None and _forced:
        backend = _forced[-1]
    if backend is None:
        backend = choose_backend(q, gaussian, mask, dropout_p)
    else:
        _check_name(backend)
        _check_serves(backend, q, gaussian, mask, dropout_p)
    if backend == 'flex':
        return flex_attend(q, k, v, *gaussian, mask)
    if backend == 'tiled':
        return tiled_attention(q, k, v, *gaussian, mask)
    bias = attention_bias(q, gaussian, mask)
    if backend == 'sdpa':
        return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, dropout_p=dropout_p)
    weights = F.dropout(attention_weights(q, k, bias), dropout_p, training=dropout_p > 0)
    return weights @ v


def choose_backend(q: Tensor, gaussian: GaussianFactors | None = None, mask: Tensor | None = None,
                   dropout_p: float = 0.0) -> str:
    """The fastest back end that can serve an input; arguments as of `attend`."""
    if gaussian is None or _is_exporting():
        return 'sdpa'
    if q.device.type == 'cuda' and reason_against_flex(q, mask, dropout_p) is None:
        return 'flex'
    if q.device.type != 'cpu':
        return 'sdpa'
    if q.shape[-2] <= WINDOW_TOKENS:
        return 'explicit' if torch.is_grad_enabled() else 'sdpa'
    return 'sdpa' if reason_against_tiled(mask, dropout_p) else 'tiled'


def _is_exporting() -> bool:
    """Whether the model is being written for another runtime, without this package's operators."""
    is_exporting = getattr(torch.compiler, 'is_exporting', bool)  # torch 2.6 has none
    return torch.jit.is_tracing() or is_exporting()


def _check_name(backend: str) -> None:
    if backend not in BACKENDS:
        raise ValueError(f'attention back end {backend!r}: expected one of {BACKENDS}')


def _check_serves(backend: str, q: Tensor, gaussian: GaussianFactors | None, mask: Tensor | None,
                  dropout_p: float) -> None:
    if backend in ('sdpa', 'explicit'):
        return
    reason = 'there is no Gaussian' if gaussian is None else \
        reason_against_flex(q, mask, dropout_p) if backend == 'flex' else \
        reason_against_tiled(mask, dropout_p)
    if reason:
        raise ValueError(f'attention back end {backend!r} cannot serve this input: {reason}; take '
                         "'sdpa' or 'explicit', or leave the choice open")


def attention_weights(q: Tensor, k: Tensor, bias: Tensor | None = None) -> Tensor:
    """The attention matrix (B, H, N, N), rows summing to 1; ``bias`` is boolean or additive."""
    logits = (q * q.shape[-1] ** -0.5) @ k.transpose(-2, -1)
    if bias is not None:
        logits = logits.masked_fill(~bias, -torch.inf) if bias.dtype == torch.bool \
            else logits + bias
    return logits.softmax(dim=-1)


def attention_bias(q: Tensor, gaussian: GaussianFactors | None,
                   mask: Tensor | None) -> Tensor | None:
    """Gaussian and mask as one bias that scaled dot-product attention takes, or None."""
    if gaussian is None:
        return mask
    bias = gaussian_bias(gaussian, q.shape[-2] - gaussian.rows.shape[-2])
    if mask is not None:
        bias = bias.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else bias + mask
    return bias.to(q.dtype)
