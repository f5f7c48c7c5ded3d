"""Tiny backbones of every family, and what their tests measure on them."""
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from locat_mmseg.openmmlab.backbones import LocAtSwin, LocAtTIMM, LocAtViT

TINY = dict(embed_dims=24, num_layers=3, num_heads=3, mlp_ratio=2)
TINY_SWIN = dict(embed_dims=12, depths=(1, 2, 1), num_heads=(3, 3, 6))
SIZES = [(32, 32), (40, 24), (33, 47), (5, 70)]  # (height, width), whole patches or not


def vit(**kwargs) -> LocAtViT:
    """Depth 3, patches of 8 pixels, pre-training grid 4 x 4."""
    return LocAtViT(TINY, **{'img_size': 32, 'patch_size': 8, **kwargs})


def swin(**kwargs) -> LocAtSwin:
    """Three stages of 1, 2 and 1 blocks, patches of 2 pixels, windows of 4 x 4."""
    return LocAtSwin(TINY_SWIN, **{'img_size': 32, 'patch_size': 2, 'window_size': 4,
                                   'out_indices': (0, 1, 2), **kwargs})


def jumbo(**kwargs) -> LocAtViT:
    """Three class tokens."""
    return LocAtViT(dict(TINY, num_class_tokens=3, jumbo_mlp_ratio=2),
                    **{'img_size': 32, 'patch_size': 8, **kwargs})


def dinov2(**kwargs) -> LocAtTIMM:
    return LocAtTIMM('vit_small_patch14_reg4_dinov2', dict(
        img_size=56, embed_dim=24, depth=3, num_heads=3), **kwargs)


VITS = {'vit': vit, 'regvit': partial(vit, num_registers=4), 'ropevit': partial(vit, rope=True),
        'jumbo': jumbo, 'dinov2': dinov2}
BACKBONES = {**VITS, 'swin': swin}
each_backbone = pytest.mark.parametrize('build', BACKBONES.values(), ids=BACKBONES.keys())
each_vit = pytest.mark.parametrize('build', VITS.values(), ids=VITS.keys())


def images(*sizes: tuple[int, int]) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(2, 3, *size, generator=generator) for size in sizes]


def gradients(backbone: nn.Module, *inputs: Tensor) -> dict[str, Tensor | None]:
    """Gradients of a loss that weighs every number of every output differently."""
    backbone.zero_grad()
    outputs = [output for x in inputs for output in backbone(x)]
    sum((output * torch.linspace(-1, 1, output.numel()).view_as(output)).sum()
        for output in outputs).backward()
    return {name: p.grad for name, p in backbone.named_parameters()}
