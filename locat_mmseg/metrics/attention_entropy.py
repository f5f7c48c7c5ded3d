"""Normalised entropy of attention: over how many patches a patch spreads its look.

Shape legend: B batch, W windows an image, H heads, n = h*w patches.
"""
import torch
from torch import Tensor


def attention_entropy(attention: Tensor, allowed: Tensor | None = None) -> Tensor:
    """Entropy of each query's attention over that of a uniform one.

    Args:
        attention: (B, H, n, n) among patches, rows summing to 1 (see `patch_attention`); of
            windows (B * W, H, n, n).
        allowed: (W, n, n), as for `patch_attention`: a uniform look covers the allowed keys only.

    Returns:
        (B, H, n): ``-sum_j A_ij ln(A_ij) / ln(keys)``; 0 one patch, 1 uniform. NaN for a query
        with fewer than two allowed keys.
    """
    entropy = torch.special.entr(attention).sum(-1)
    if allowed is None:
        keys = entropy.new_tensor(attention.shape[-1])
    else:
        keys = allowed.sum(-1).to(entropy).repeat(len(attention) // len(allowed), 1)[:, None]
    return torch.where(keys > 1, entropy / keys.log(), torch.nan)
