"""The projection head of DINO, from pooled features to the outputs that are compared."""
from mmengine.model import BaseModule
from mmengine.registry import MODELS
from torch import Tensor, nn
from torch.nn import functional as F


@MODELS.register_module()
class DINOProjection(BaseModule):
    """Three layers, L2 normalisation, then a weight-normalised layer (arXiv 2104.14294, section 3).

    The length of each of the last layer's K weight vectors is fixed at 1, so the outputs are
    cosines between -1 and 1.

    Args:
        in_channels: C of the pooled features.
        out_channels: K.
        hidden_channels: width of the first two layers.
        bottleneck_channels: width of the third.
        init_cfg: truncated normal weights (std 0.02) and zero biases by default.
    """

    def __init__(self, in_channels: int, out_channels: int, hidden_channels: int = 2048,
                 bottleneck_channels: int = 256, init_cfg: dict | list | None = None) -> None:
        super().__init__(init_cfg or dict(type='TruncNormal', layer='Linear', std=0.02))
        self.out_channels = out_channels
        self.mlp = nn.Sequential(
            nn.Linear(in_channels, hidden_channels), nn.GELU(),
            nn.Linear(hidden_channels, hidden_channels), nn.GELU(),
            nn.Linear(hidden_channels, bottleneck_channels))
        self.last_layer = nn.Linear(bottleneck_channels, out_channels, bias=False)

    def forward(self, features: tuple[Tensor, ...]) -> Tensor:
        """Project the last of the neck's outputs, (B, C), to (B, K).

        Raises:
            ValueError: if it is not of ``in_channels`` channels.
        """
        pooled, in_channels = features[-1], self.mlp[0].in_features
        if pooled.ndim != 2 or pooled.shape[1] != in_channels:
            raise ValueError(f'features of shape {tuple(pooled.shape)}, expected (B, {in_channels}'
                             '): set head.in_channels to the width of the backbone, and a pooling '
                             'neck such as PRRPool before the head')
        bottleneck = F.normalize(self.mlp(pooled), dim=-1)
        return F.linear(bottleneck, F.normalize(self.last_layer.weight, dim=-1))
