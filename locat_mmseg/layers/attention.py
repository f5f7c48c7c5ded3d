"""One softmax attention with an additive Gaussian: ``softmax(q k^T / sqrt(d) + S + mask) v``.

Shape legend: B batch, H heads, N = P + n tokens, P prefix tokens, n = h*w patches, d head width.
"""
import torch
from torch import Tensor
from torch.nn import functional as F

from .gaussian import GaussianFactors, gaussian_bias


def attend(q: Tensor, k: Tensor, v: Tensor, gaussian: GaussianFactors | None = None,
           mask: Tensor | None = None, dropout_p: float = 0.0, fused: bool = True) -> Tensor:
    """Scaled dot-product attention with the Gaussian of GAug (arXiv 2603.04892, section 3).

    Args:
        q, k, v: (B, H, N, d).
        gaussian: factors of the last n of the N tokens; the first P = N - n are prefix tokens,
            which neither give nor receive a Gaussian.
        mask: broadcastable to (B, H, N, N). Boolean: True means keep. Float: added to the logits.
        dropout_p: dropout of the attention weights.
        fused: False computes the weights explicitly instead of in one fused kernel.

    Returns:
        (B, H, N, d).

    Raises:
        ValueError: if there are more Gaussians than tokens.
    """
    bias = attention_bias(q, gaussian, mask)
    if fused:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, dropout_p=dropout_p)
    weights = F.dropout(attention_weights(q, k, bias), dropout_p, training=dropout_p > 0)
    return weights @ v


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
    num_prefix_tokens = q.shape[-2] - gaussian.rows.shape[-2]
    if num_prefix_tokens < 0:
        raise ValueError(f'Gaussian factors of {gaussian.rows.shape[-2]} patches for '
                         f'{q.shape[-2]} tokens: there must be at least as many tokens')
    bias = gaussian_bias(gaussian, num_prefix_tokens)
    if mask is not None:
        bias = bias.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else bias + mask
    return bias.to(q.dtype)
