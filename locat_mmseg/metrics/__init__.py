"""Measures of locality: attention weights or tokens in, numbers out, on torch alone."""
from .attention_distance import attention_distance, grid_diagonal, patch_distances
from .attention_entropy import attention_entropy
from .class_alignment import class_alignment
from .patch_attention import patch_attention, prefix_share
from .receptive_field import central_gradient, receptive_area

__all__ = [
    'attention_distance', 'attention_entropy', 'central_gradient', 'class_alignment',
    'grid_diagonal', 'patch_attention', 'patch_distances', 'prefix_share', 'receptive_area'
]
