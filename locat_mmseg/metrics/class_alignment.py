"""Alignment of patch tokens with the class token: what is lost for dense tasks when it rises."""
from torch import Tensor
from torch.nn import functional as F


def class_alignment(tokens: Tensor, num_prefix_tokens: int) -> Tensor:
    """Cosine of each patch token with the class token.

    Args:
        tokens: (B, N, C), the class token (the first, if there are several) at the start.
        num_prefix_tokens: P >= 1 tokens before the n patches: the class token and registers.

    Returns:
        (B, n), between -1 and 1.

    Raises:
        ValueError: without a prefix token.
    """
    if num_prefix_tokens < 1:
        raise ValueError('num_prefix_tokens=0: the model has no class token to align with')
    patches = tokens[:, num_prefix_tokens:].float()
    return F.cosine_similarity(patches, tokens[:, :1].float(), dim=-1)
