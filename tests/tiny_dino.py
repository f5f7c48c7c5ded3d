"""A tiny DINO model, random crops for it, and what mmengine's Runner tells a model."""
import itertools

import torch
from mmengine.logging import MessageHub
from mmengine.optim import OptimWrapper
from tiny_models import VIT, build
from torch import Tensor, nn

OUTPUTS = 20
SIZES = (32, 32, 16, 16)  # two global crops, of a 4 x 4 grid, and two local ones, of a 2 x 2 grid
HEAD = dict(type='DINOProjection', in_channels=24, hidden_channels=16, bottleneck_channels=8,
            out_channels=OUTPUTS)

_COUNTER = itertools.count()


def dino(loss: dict | None = None, head: dict | None = None, base_momentum: float = 0.004,
         num_global_crops: int = 2, **backbone) -> nn.Module:
    """A model of three blocks whose weights are drawn with seed 0."""
    return build('mmpretrain', dict(
        type='DINOPretraining', backbone=dict(VIT, out_type='tokens', **backbone),
        neck=dict(type='PRRPool', embed_dims=24, num_heads=3), head=head or HEAD,
        loss=dict(type='DINOLoss', **(loss or {})), base_momentum=base_momentum,
        num_global_crops=num_global_crops)).train()


def crops(images: range = range(2), sizes: tuple[int, ...] = SIZES) -> list[Tensor]:
    """One batch (B, 3, size, size) per crop; each image has numbers of its own."""
    return [torch.stack([noise(image, crop, size) for image in images])
            for crop, size in enumerate(sizes)]


def noise(image: int, crop: int, size: int) -> Tensor:
    generator = torch.Generator().manual_seed(100 * image + crop)
    return torch.randn(3, size, size, generator=generator)


def tell(**info) -> MessageHub:
    """Make a new message hub the current one, as each Runner does."""
    hub = MessageHub.get_instance(f'dino_{next(_COUNTER)}')
    for key, value in info.items():
        hub.update_info(key, value)
    return hub


def train(model: nn.Module, batch: list[Tensor], steps: int, optimizer: type = torch.optim.SGD,
          lr: float = 0.3) -> None:
    """Some steps on one batch; ``model`` may be wrapped for several processes."""
    plain = getattr(model, 'module', model)
    wrapper = OptimWrapper(optimizer(plain.parameters(), lr=lr))
    for _ in range(steps):
        loss, _ = plain.parse_losses(model(batch, mode='loss'))
        wrapper.update_params(loss)
