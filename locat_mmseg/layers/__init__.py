"""The mathematics of LocAt, on torch alone."""
from .attention import attend, attention_weights
from .gaussian import (GaussianAugment, GaussianFactors, Grid, check_grid, gaussian_bias,
                       gaussian_factors)
from .prr import PatchRefinement, refine

__all__ = [
    'GaussianAugment', 'GaussianFactors', 'Grid', 'PatchRefinement', 'attend',
    'attention_weights', 'check_grid', 'gaussian_bias', 'gaussian_factors', 'refine'
]
