"""GAug written out: the (n, n, 2) form, a yardstick for the separable one and nothing else.

The exponent of every pair of patches and axis is a number of its own, and attention gets the result
as a dense bias that asks for a gradient. The same function as `add_gaug`, to be measured against.
"""
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..addon import TWINS, GaussianAttention, add_gaug
from ..addon.convert import attention_layers
from ..layers import GaussianAugment, Grid
from ..layers.gaussian import max_squared_offset, stabiliser


class DenseGaussianAugment(GaussianAugment):
    """Predicts the Gaussian of all pairs, for inputs of the pre-training grid only.

    Arguments as in `GaussianAugment`.
    """

    def __init__(self, head_dim: int, grid: int | Grid) -> None:
        super().__init__(head_dim, grid)
        axes = (torch.arange(side, dtype=torch.float32) for side in self.grid)
        places = torch.stack(torch.meshgrid(*axes, indexing='ij'), dim=-1).flatten(0, 1)
        offsets = 0.5 * (places[:, None] - places) ** 2
        self.register_buffer('offsets', offsets.clamp(max=max_squared_offset(self.grid)),
                             persistent=False)  # (n, n, 2)

    def forward(self, q: Tensor, grid: Grid, num_prefix_tokens: int = 0) -> Tensor:
        """Write out the Gaussian.

        Args:
            q: (B, H, P + n, d) queries.
            grid: (h, w) of this input.
            num_prefix_tokens: P.

        Returns:
            (B, H, n, n), at least float32.

        Raises:
            ValueError: if the grid is not that of pre-training.
        """
        if tuple(grid) != self.grid:
            raise ValueError(f'the dense form is built for the grid {self.grid}, the input has '
                             f'{tuple(grid)}: build the model with the img_size of the input')
        q = q[..., num_prefix_tokens:, :]
        log_var, log_alpha = (linear(q).to(torch.promote_types(q.dtype, torch.float32))
                              for linear in (self.log_var, self.log_alpha))
        variance = self.variance(log_var, grid) + stabiliser(self.grid)
        exponent = -(self.offsets / variance[..., None, :]).sum(dim=-1)
        return F.softplus(log_alpha) * exponent.exp()


class DenseGaussianAttention(GaussianAttention):
    """Mixed in before a twin: its Gaussian is dense, and so is the bias of its attention."""

    def _add_gaussian(self, *args, **kwargs) -> None:
        super()._add_gaussian(*args, **kwargs)
        self.gaug = DenseGaussianAugment(self.gaug.log_var.in_features, self.gaug.grid)

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, gaussian: Tensor,
                mask: Tensor | None) -> Tensor:
        bias = F.pad(gaussian, (self.num_prefix_tokens, 0, self.num_prefix_tokens, 0))
        if mask is not None:
            bias = bias + mask
        x = F.scaled_dot_product_attention(q, k, v, attn_mask=bias.to(q.dtype))
        return x.transpose(1, 2).flatten(2)


DENSE_TWINS = {layer: type(f'Dense{twin.__name__}', (DenseGaussianAttention, twin), {})
               for layer, twin in TWINS.items()}


def add_dense_gaug(model: nn.Module) -> nn.Module:
    """`add_gaug` in the dense form, with the same parameter names.

    Raises:
        ValueError: as `add_gaug`.
    """
    layer, *_ = attention_layers(model).values()
    return add_gaug(model, attn=DENSE_TWINS[type(layer)])
