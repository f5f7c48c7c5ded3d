"""`add_gaug`: turn a timm ViT, DeiT, register ViT, DINOv2/v3, EVA, RoPE-ViT or Swin into LocAt."""
import re

from timm.layers import Attention, AttentionPoolLatent, AttentionPoolPrr, AttentionRope
from timm.models.eva import EvaAttention
from timm.models.swin_transformer import WindowAttention
from torch import nn

from ..layers import Grid, check_grid
from .attention import (GAugAttention, GAugAttentionRope, GAugEvaAttention, GAugWindowAttention,
                        GaussianAttention)
from .grid import TokenGrid

TWINS: dict[type[nn.Module], type[GaussianAttention]] = {
    Attention: GAugAttention,
    AttentionRope: GAugAttentionRope,
    EvaAttention: GAugEvaAttention,
    WindowAttention: GAugWindowAttention,
}

# Layers that are called attention but pool tokens into one vector: no Gaussian has a place there.
POOLS = (AttentionPoolLatent, AttentionPoolPrr)


def add_gaug(model: nn.Module, gaug_grid: int | Grid | None = None,
             attn: type[GaussianAttention] | None = None) -> nn.Module:
    """Add GAug (arXiv 2603.04892, section 3) to every attention layer of a timm model, in place.

    Afterwards everything of timm works as before, and plain weights of the model still load with
    only the ``gaug`` keys missing.

    Args:
        model: from `timm.create_model`, also with ``features_only=True``.
        gaug_grid: (h, w) of pre-training in patches (for Swin: its window), or an integer for a
            square. By default the grid that the model was built for. Weights keep their meaning
            only with the grid that they were trained on.
        attn: class of the twins, for experiments with a subclass of one in `TWINS`; by default
            the one in `TWINS`.

    Returns:
        The same model.

    Raises:
        ValueError: if the model has attention layers without a twin, none at all, patch dropout,
            or GAug already.
    """
    core = getattr(model, 'model', model)  # features_only wraps the model
    layers = attention_layers(core)
    on_sequences = any(type(layer) is not WindowAttention for layer in layers.values())
    if on_sequences:
        check_sequence_model(core)
    token_grid = TokenGrid()
    twins = {name: make_twin(core, layer, gaug_grid, token_grid, attn or TWINS[type(layer)])
             for name, layer in layers.items()}
    # All is checked: the model changes from here on.
    if on_sequences:
        core.patch_embed.register_forward_hook(token_grid)
    for name, twin in twins.items():
        parent, _, child = name.rpartition('.')
        setattr(core.get_submodule(parent), child, twin)
    return model


def make_twin(model: nn.Module, layer: nn.Module, gaug_grid: int | Grid | None,
              token_grid: TokenGrid, attn: type[GaussianAttention]) -> GaussianAttention:
    """The twin, of class ``attn``, of one attention layer of ``model``."""
    if not issubclass(attn, TWINS[type(layer)]):
        raise ValueError(f'attn={attn.__name__}: the twin of {class_path(layer)} is '
                         f'{TWINS[type(layer)].__name__}; expected it or a subclass')
    if type(layer) is WindowAttention:
        grid, num_prefix_tokens = layer.window_size, 0
    else:
        grid, num_prefix_tokens = model.patch_embed.grid_size, model.num_prefix_tokens
    if gaug_grid is not None:
        grid = check_grid(gaug_grid, 'gaug_grid')
    return attn.from_attention(layer, grid, num_prefix_tokens, token_grid)


def attention_layers(model: nn.Module) -> dict[str, nn.Module]:
    """Name and module of each attention layer that `add_gaug` replaces.

    Raises:
        ValueError: if there are none, or some have no twin.
    """
    found = attention_named(model)
    if any(isinstance(module, GaussianAttention) for module in found.values()):
        raise ValueError(f'{class_path(model)} already has Gaussian attention layers: call '
                         'add_gaug once, on the plain timm model')
    unknown = {class_path(module) for module in found.values() if type(module) not in TWINS}
    if unknown or not found:
        # Some models compute attention inside their block: name those classes then.
        names = unknown or {class_path(block) for block in getattr(model, 'blocks', ())}
        raise ValueError(
            f'GAug cannot be added to {class_path(model)}. Attention found: '
            f'{", ".join(sorted(names)) or "none"}; supported: '
            f'{", ".join(sorted(f"{cls.__module__}.{cls.__qualname__}" for cls in TWINS))}')
    return found


def attention_named(model: nn.Module) -> dict[str, nn.Module]:
    """Name and module of everything called attention, supported or not, but for pooling layers."""
    return {name: module for name, module in model.named_modules()
            if re.search('Attn|Attention', type(module).__name__)
            and not isinstance(module, POOLS)}


def check_sequence_model(model: nn.Module) -> None:
    """Refuse a model on token sequences whose tokens do not form a known grid.

    Raises:
        ValueError: if the tokens of the model do not form the grid of its patch embedding.
    """
    patch_embed = getattr(model, 'patch_embed', None)
    if not hasattr(patch_embed, 'dynamic_feat_size') or not hasattr(model, 'num_prefix_tokens'):
        raise ValueError(
            f'{class_path(model)} does not tell the grid of its tokens: expected a patch embedding '
            f'with dynamic_feat_size (got {class_path(patch_embed)}) and num_prefix_tokens, as '
            'timm.models.vision_transformer.VisionTransformer and timm.models.eva.Eva have')
    if patch_embed.grid_size is None:
        raise ValueError(f'{class_path(model)} was built without an image size, so there is no '
                         'pre-training grid; pass img_size to timm.create_model')
    patch_drop = getattr(model, 'patch_drop', None)
    if patch_drop is not None and not isinstance(patch_drop, nn.Identity):
        raise ValueError(f'{class_path(model)} drops patches in training ({patch_drop}), which '
                         'leaves no grid for the Gaussian; build it with patch_drop_rate=0')


def class_path(module: object) -> str:
    """Full path of an object's class."""
    return f'{type(module).__module__}.{type(module).__qualname__}'
