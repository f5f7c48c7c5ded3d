"""The mathematics of LocAt, on torch alone."""
from .attention import (BACKENDS, attend, attention_backend, attention_weights, choose_backend)
from .gaussian import (Gaussian, GaussianAugment, GaussianFactors, Grid, check_grid, gaussian_bias,
                       make_gaussian)
from .prr import PatchRefinement, refine

__all__ = [
    'BACKENDS', 'Gaussian', 'GaussianAugment', 'GaussianFactors', 'Grid', 'PatchRefinement',
    'attend', 'attention_backend', 'attention_weights', 'check_grid', 'choose_backend',
    'gaussian_bias', 'make_gaussian', 'refine'
]
