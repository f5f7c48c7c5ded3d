"""Gaussian-augmented attention (GAug): the additive Gaussian term, in its separable exact form.

LocAtViT, arXiv 2603.04892, section 3. Every patch query i predicts a variance per axis and a
strength alpha, and the logit towards patch key j gains

    S_ij = alpha_i * exp(-D_row(i, j) / (var_row_i + eps) - D_col(i, j) / (var_col_i + eps))

The exponent is a sum over the two axes, so S_ij = rows_i[row_j] * cols_i[col_j]: per query one
vector of length h and one of length w describe all n = h * w keys, exactly. These follow in turn
from the three predicted numbers, which are all that is kept.

Shape legend: B batch, H heads, N tokens, P prefix tokens, n = h*w patches, d head width.
"""
import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Grid = tuple[int, int]
LOG2_E = math.log2(math.e)

# Both keep numbers inside float16's range of 65504: the exponent (an offset over the smallest
# eps, 0.1) and its slope (the largest offset over eps^2, twice).
MAX_SQUARED_OFFSET = 6550.0
MAX_STABLE_RATIO = 32500.0


class GaussianFactors(NamedTuple):
    """The Gaussian of every patch query as two factors, ``S_ij = rows_i[row_j] * cols_i[col_j]``.

    Attributes:
        rows: (B, H, n, h), the strength alpha times the Gaussian along the rows.
        cols: (B, H, n, w), the Gaussian along the columns.
    """
    rows: Tensor
    cols: Tensor


class Gaussian(NamedTuple):
    """The Gaussian of every patch query as the three numbers that it is made of, to base 2:

        S_ij = 2 ** (strength_i - D_row(i, j) * precision_row_i - D_col(i, j) * precision_col_i)

    An attention layer keeps these for its backward pass, not the h + w numbers of the factors.

    Attributes:
        strength: (B, H, n, 1), log2(alpha).
        precision: (B, H, n, 2), log2(e) / (variance + eps) along rows and columns, 1 / patches^2.
        grid: (h, w) with h * w = n, patches in row-major order.
        max_offset: the squared offset D = 0.5 * delta^2 is clipped at this value, in patches^2.
    """
    strength: Tensor
    precision: Tensor
    grid: Grid
    max_offset: float = MAX_SQUARED_OFFSET

    @property
    def num_patches(self) -> int:
        """n."""
        return self.strength.shape[-2]

    @property
    def alpha(self) -> Tensor:
        """(B, H, n, 1), the strength."""
        return self.strength.exp2()

    @property
    def sigma(self) -> Tensor:
        """(B, H, n, 2), standard deviation along rows and columns in patches, eps included."""
        return (LOG2_E / self.precision).sqrt()

    def factors(self) -> GaussianFactors:
        """Evaluate along the rows and along the columns; n * (h + w) exponentials a head."""
        # Only the distance from a query's row (column) to each row (column) matters: h*h and w*w
        # numbers. Queries are row-major: the row term repeats along w, the column term along h.
        strength, precision = (t.unflatten(-2, self.grid) for t in (self.strength, self.precision))
        offsets = [squared_offsets(side, self.max_offset, precision) for side in self.grid]
        rows = torch.addcmul(strength, -offsets[0][:, None, :], precision[..., :1])
        cols = -offsets[1] * precision[..., 1:]
        return GaussianFactors(rows.exp2().flatten(2, 3), cols.exp2().flatten(2, 3))


def check_grid(grid: int | Grid, name: str = 'grid') -> Grid:
    """Return ``grid`` as a pair of positive integers (rows, columns).

    Raises:
        ValueError: if it is neither a positive integer nor a pair of them.
    """
    pair = tuple(grid) if isinstance(grid, Sequence) else (grid, grid)
    if len(pair) != 2 or not all(isinstance(side, int) and side > 0 for side in pair):
        raise ValueError(f'{name}={grid!r}: expected a positive integer or a pair (rows, columns) '
                         'of positive integers, counted in patches')
    return pair


def max_squared_offset(initial_grid: Grid) -> float:
    """Largest ``0.5 * delta^2`` (patches^2) that the Gaussian of a training grid tells apart."""
    return min(0.5 * (max(initial_grid) - 1) ** 2, MAX_SQUARED_OFFSET)


def stabiliser(initial_grid: Grid) -> float:
    """The eps added to the variance: 0.1, doubled until the exponent's slope stays finite in half
    precision. It follows from the pre-training grid, so it is part of the weights' meaning."""
    eps = 0.1
    while 0.5 * (max(initial_grid) - 1) ** 2 / eps ** 2 > MAX_STABLE_RATIO:
        eps *= 2
    return eps


def make_gaussian(variance: Tensor, alpha: Tensor, grid: Grid, eps: float,
                  max_offset: float = MAX_SQUARED_OFFSET) -> Gaussian:
    """Put variances and strengths into the form that attention takes.

    Args:
        variance: (B, H, n, 2), variance along rows and columns in patches^2.
        alpha: (B, H, n, 1), the strength, not negative.
        grid: (h, w) with h * w = n, patches in row-major order.
        eps: added to the variance.
        max_offset: the squared offset ``0.5 * delta^2`` is clipped at this value.
    """
    # To base 2, since torch evaluates exp2 in a third of the time of exp on a CPU.
    strength = alpha.clamp(min=torch.finfo(alpha.dtype).tiny).log2()
    return Gaussian(strength, (variance + eps).reciprocal() * LOG2_E, tuple(grid), max_offset)


def squared_offsets(size: int, max_offset: float, like: Tensor) -> Tensor:
    """(size, size) table of ``0.5 * (i - j)^2`` along one axis, clipped, placed as ``like`` is."""
    position = torch.arange(size, device=like.device, dtype=like.dtype)
    return (0.5 * (position[:, None] - position) ** 2).clamp(max=max_offset)


def gaussian_bias(gaussian: Gaussian, num_prefix_tokens: int = 0) -> Tensor:
    """Write the Gaussian out as a dense additive attention term.

    Args:
        gaussian: of n patch queries.
        num_prefix_tokens: P; their rows and columns are 0.

    Returns:
        (B, H, P + n, P + n).
    """
    rows, cols = gaussian.factors()
    bias = (rows[..., :, None] * cols[..., None, :]).flatten(-2)
    return F.pad(bias, (num_prefix_tokens, 0, num_prefix_tokens, 0))


class GaussianAugment(nn.Module):
    """Predicts the Gaussian of every patch query from the query itself; 3 * (d + 1) parameters.

    One module serves all heads of an attention layer. At initialisation the variance is about
    1 patch^2 and the strength about ln 2 (arXiv 2603.04892, section 3).

    Args:
        head_dim: width d of a query.
        grid: (h, w) of pre-training, or one integer for a square. It fixes the largest variance,
            eps and the clip of the offsets: the same weights on another ``grid`` here are another
            function. Inputs of other grids are served by rescaling the variance.

    Raises:
        ValueError: if head_dim or grid is not positive.
    """

    def __init__(self, head_dim: int, grid: int | Grid) -> None:
        super().__init__()
        if head_dim < 1:
            raise ValueError(f'head_dim={head_dim}: expected the width of an attention head, >= 1')
        self.grid = check_grid(grid)
        self.log_var = nn.Linear(head_dim, 2)
        self.log_alpha = nn.Linear(head_dim, 1)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Truncated normal weights (std 0.02) and zero biases."""
        for linear in (self.log_var, self.log_alpha):
            nn.init.trunc_normal_(linear.weight, std=0.02)
            nn.init.zeros_(linear.bias)

    def forward(self, q: Tensor, grid: Grid, num_prefix_tokens: int = 0) -> Gaussian:
        """Predict the Gaussian for one image grid.

        Args:
            q: (B, H, P + n, d) queries, the patches row-major, after any q-norm, before the
                1/sqrt(d) scale and before any rotation.
            grid: (h, w) of this input, h * w = n.
            num_prefix_tokens: P, the first queries, which have no Gaussian.

        Returns:
            Gaussian, at least float32 (no exponential or softplus in half precision).

        Raises:
            ValueError: if h * w differs from n.
        """
        num_patches = q.shape[-2] - num_prefix_tokens
        if grid[0] * grid[1] != num_patches:
            raise ValueError(f'{num_patches} patch queries do not fill the grid {tuple(grid)} of '
                             f'{grid[0] * grid[1]} patches; pass the grid of this input')
        # One product for the three numbers of a query instead of two; of all tokens, since a part
        # of the queries would have to be copied first.
        predicted = F.linear(q, torch.cat([self.log_var.weight, self.log_alpha.weight]),
                             torch.cat([self.log_var.bias, self.log_alpha.bias]))
        predicted = predicted[..., num_prefix_tokens:, :]
        predicted = predicted.to(torch.promote_types(predicted.dtype, torch.float32))
        return make_gaussian(self.variance(predicted[..., :2], grid),
                             F.softplus(predicted[..., 2:]), grid, stabiliser(self.grid),
                             max_squared_offset(self.grid))

    def variance(self, log_var: Tensor, grid: Grid) -> Tensor:
        """Variance in patches^2 from the predicted value (..., 2): a sigmoid between 0 and the
        squared longer side M of the pre-training grid, shifted so that 0 gives 1 (0.5 if M = 1)."""
        largest = max(self.grid) ** 2
        shift = math.log(largest - 1) if largest > 2 else 0.0
        variance = largest * torch.sigmoid(log_var - shift)
        if tuple(grid) != self.grid:
            variance = variance * (min(grid) / min(self.grid))
        return variance

    def extra_repr(self) -> str:
        return f'grid={self.grid}'
