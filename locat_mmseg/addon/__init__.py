"""LocAt as an add-on to timm's transformers, on torch and timm."""
from .attention import (GAugAttention, GAugAttentionRope, GAugEvaAttention, GAugWindowAttention,
                        GaussianAttention)
from .convert import TWINS, add_gaug
from .grid import TokenGrid
from .jumbo import JumboViT
from .weight_sources import read_weights
from .weights import LoadReport, load_weights

__all__ = [
    'TWINS', 'GAugAttention', 'GAugAttentionRope', 'GAugEvaAttention', 'GAugWindowAttention',
    'GaussianAttention', 'JumboViT', 'LoadReport', 'TokenGrid', 'add_gaug', 'load_weights',
    'read_weights'
]
