"""Patch Representation Refinement (PRR): self-attention without parameters before pooling.

LocAtViT, arXiv 2603.04892, section 3: it sends the classification loss to every patch token.
"""
from torch import Tensor, nn
from torch.nn import functional as F


def refine(x: Tensor, num_heads: int, num_queries: int | None = None) -> Tensor:
    """Mix tokens by ``softmax(x x^T / sqrt(d)) x`` per head, heads concatenated.

    Args:
        x: (B, N, C) tokens, prefix tokens included.
        num_heads: heads that share the C channels.
        num_queries: compute only the first so many rows, O(num_queries * N), with the same values
            and gradients as those rows of the full result. All N by default.

    Returns:
        (B, num_queries or N, C).

    Raises:
        ValueError: if C is not a multiple of ``num_heads``.
    """
    if num_heads < 1 or x.shape[-1] % num_heads:
        raise ValueError(f'{x.shape[-1]} channels cannot be split into num_heads={num_heads} equal '
                         'heads; use the number of heads of the backbone that made them')
    keys = x.unflatten(-1, (num_heads, -1)).transpose(1, 2)  # (B, H, N, d)
    queries = keys[:, :, :num_queries]
    return F.scaled_dot_product_attention(queries, keys, keys).transpose(1, 2).flatten(2)


class PatchRefinement(nn.Module):
    """PRR as a layer, for tokens (B, N, C) or maps (B, C, h, w); the output has the input's shape.

    Args:
        num_heads: heads that share the C channels.
    """

    def __init__(self, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads

    def forward(self, x: Tensor) -> Tensor:
        if x.ndim == 4:
            tokens = refine(x.flatten(2).transpose(1, 2), self.num_heads)
            return tokens.transpose(1, 2).reshape(x.shape)
        if x.ndim != 3:
            raise ValueError(f'input of shape {tuple(x.shape)}: expected tokens (B, N, C) or a map '
                             '(B, C, h, w)')
        return refine(x, self.num_heads)

    def extra_repr(self) -> str:
        return f'num_heads={self.num_heads}'
