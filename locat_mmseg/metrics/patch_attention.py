"""Attention among patches alone, and what the other tokens take of it.

Shape legend: B batch, W windows an image, H heads, N = P + n tokens, P prefix tokens (class and
registers), n = h*w patches.
"""
import torch
from torch import Tensor


def patch_attention(weights: Tensor, num_prefix_tokens: int = 0,
                    allowed: Tensor | None = None) -> Tensor:
    """Attention of patch queries to patch keys, each row renormalised to 1.

    Args:
        weights: (B, H, N, N), rows summing to 1; of windows (B * W, H, n, n).
        num_prefix_tokens: P; their rows and columns are left out.
        allowed: (W, n, n), True where query and key belong together (windows: both inside the
            image and not parted by the shift). What is not allowed becomes 0.

    Returns:
        (B, H, n, n), at least float32. A row without an allowed key, or without any weight on
        patches, is NaN: its query has no place in a mean.

    Raises:
        ValueError: if ``allowed`` has another number of patches or of windows.
    """
    patches = weights[..., num_prefix_tokens:, num_prefix_tokens:]
    patches = patches.to(torch.promote_types(patches.dtype, torch.float32))
    if allowed is not None:
        if allowed.shape[1:] != patches.shape[-2:] or len(patches) % len(allowed):
            raise ValueError(f'allowed pairs {tuple(allowed.shape)} for attention '
                             f'{tuple(weights.shape)} with {num_prefix_tokens} prefix tokens: '
                             'expected (windows an image, patches, patches)')
        patches = patches.unflatten(0, (-1, len(allowed))) * allowed[:, None]
        patches = patches.flatten(0, 1)
    return patches / patches.sum(-1, keepdim=True)


def prefix_share(weights: Tensor, num_prefix_tokens: int) -> Tensor:
    """Share of each patch query's attention that goes to each class or register token.

    Args:
        weights: (B, H, N, N), rows summing to 1.
        num_prefix_tokens: P.

    Returns:
        (B, H, n, P), at least float32; the last dimension sums to the mass that
        `patch_attention` leaves out.
    """
    shares = weights[..., num_prefix_tokens:, :num_prefix_tokens]
    return shares.to(torch.promote_types(shares.dtype, torch.float32))
