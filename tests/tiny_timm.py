"""timm models shrunk to a few milliseconds, and switches on their GAug."""
from typing import Any

import timm
import torch
from torch import Tensor, nn

from locat_mmseg.addon import JumboViT
from locat_mmseg.layers import GaussianAugment

TINY_SEQUENCE = dict(img_size=64, embed_dim=48, depth=2, num_heads=3, num_classes=7)
TINY_SWIN = dict(img_size=56, patch_size=4, window_size=7, embed_dim=24, depths=(2, 2),
                 num_heads=(2, 4), num_classes=7, drop_path_rate=0., strict_img_size=False)


def tiny_vit(**kwargs: Any) -> nn.Module:
    """A plain ViT on 4 x 4 patches of 16 pixels that takes other sizes too."""
    return tiny('vit_tiny_patch16_224', **{'dynamic_img_size': True, **kwargs})


def tiny_jumbo(**kwargs: Any) -> JumboViT:
    """A plain Jumbo of 3 class tokens that takes other sizes too."""
    torch.manual_seed(0)
    return JumboViT(**{**TINY_SEQUENCE, 'num_class_tokens': 3, 'dynamic_img_size': True, **kwargs})


def tiny_swin(**kwargs: Any) -> nn.Module:
    """A plain Swin of two stages, window 7, that takes other sizes too."""
    torch.manual_seed(0)
    model = timm.create_model('swin_tiny_patch4_window7_224', **{**TINY_SWIN, **kwargs})
    model.patch_embed.dynamic_img_pad = True
    return model


def tiny(name: str, **kwargs: Any) -> nn.Module:
    """A timm model on token sequences by name, with few blocks and channels."""
    torch.manual_seed(0)
    return timm.create_model(name, **{**TINY_SEQUENCE, **kwargs})


def randomize(module: nn.Module, seed: int = 0, std: float = 0.3) -> nn.Module:
    """Give every parameter a random value, so that none of them is without effect."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in module.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator) * std
    return module


def random_weights(model: nn.Module) -> dict[str, Tensor]:
    """Random values for every entry of a model's state dict."""
    generator = torch.Generator().manual_seed(0)
    return {name: torch.randn(weight.shape, generator=generator)
            for name, weight in model.state_dict().items()}


def gaussians(model: nn.Module) -> list[GaussianAugment]:
    """The GAug modules of a model, first block first."""
    return [module for module in model.modules() if isinstance(module, GaussianAugment)]


def strengthen(model: nn.Module) -> nn.Module:
    """Give GAug weights with which every query has a Gaussian of its own."""
    for module in gaussians(model):
        for parameter in module.parameters():
            nn.init.normal_(parameter)
    return model


def switch_off(model: nn.Module) -> nn.Module:
    """Make every Gaussian's strength softplus(-1e4) = 0."""
    for module in gaussians(model):
        nn.init.zeros_(module.log_alpha.weight)
        nn.init.constant_(module.log_alpha.bias, -1e4)
    return model


def parameter_gradients(model: nn.Module, loss: Tensor) -> dict[str, Tensor | None]:
    """Gradients of a scalar by parameter name; None where there is none."""
    model.zero_grad()
    loss.backward()
    return {name: parameter.grad for name, parameter in model.named_parameters()}
