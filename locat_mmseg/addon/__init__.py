"""LocAt as an add-on to timm's transformers, on torch and timm."""
from .attention import (GAugAttention, GAugAttentionRope, GAugEvaAttention, GAugWindowAttention,
                        GaussianAttention)
from .convert import TWINS, add_gaug
from .grid import TokenGrid

__all__ = [
    'TWINS', 'GAugAttention', 'GAugAttentionRope', 'GAugEvaAttention', 'GAugWindowAttention',
    'GaussianAttention', 'TokenGrid', 'add_gaug'
]
