"""Where the features of a vision model are.

The paper's features are the inputs of the feed-forward's second linear layer, `fc2`, in every
family (arXiv 2212.06727, section 3): timm's ViT, DeiT, CoaT, ConViT, PiT, Swin and Twins, and our
backbones. A CNN has channels instead.

Shape legend: B pictures, P prefix tokens, n patches, F features of a layer, H heads, K classes.
"""
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from timm.models.coat import CoaT
from timm.models.convit import Block as ConVitBlock
from timm.models.convit import ConVit
from timm.models.pit import PoolingVisionTransformer
from torch import Tensor, nn
from torch.nn import functional as F

from ..addon.convert import POOLS, class_path
from .picture_model import PictureModel


# Blocks of timm's CaiT and XCiT that bring the class token in; before, all tokens are patches.
LATE_CLASS_TOKEN = ('blocks_token_only', 'cls_attn_blocks')


@dataclass(frozen=True)
class FeatureLayer:
    """One layer of features.

    Attributes:
        name: of the block, for people.
        module: whose input or output is read.
        on_input: which of the two.
        read: turns that tensor into (..., F), with tokens or positions in front of the features.
        call: which call of the module in one forward pass, 0 for the first (CoaT shares some).
        num_prefix_tokens: P, dropped.
    """
    name: str
    module: nn.Module
    on_input: bool
    read: Callable[[Tensor], Tensor]
    call: int = 0
    num_prefix_tokens: int = 0


def feature_layers(model: PictureModel, kind: str = 'hidden') -> list[FeatureLayer]:
    """The layers of a model that have features of a kind, first to last.

    Args:
        model: the model.
        kind: 'hidden' (feed-forward, after the activation function), 'queries', 'keys', 'values'
            (before the split into heads), 'attention' (its output, heads side by side, before the
            projection), 'head' (the mean of that over a head's channels), 'block' (the output of
            a block), 'channel' (of a CNN's stages), or 'logit' (classes; of each pixel in a
            segmentation model).

    Raises:
        ValueError: if the kind is unknown, or the model has no such layer or a class token that
            joins the patches late.
    """
    if kind not in KINDS:
        raise ValueError(f'kind={kind!r}: expected one of {list(KINDS)}')
    late = next((name for name in LATE_CLASS_TOKEN if hasattr(model.core, name)), None)
    if late is not None and kind != 'logit':
        raise ValueError(f'{class_path(model.core)} adds its class token in {late}, so that it is '
                         'not known where a layer has its patches: take a ViT, DeiT, CoaT, '
                         'ConViT, PiT, Swin or Twins')
    layers = KINDS[kind](model)
    if not layers:
        raise ValueError(
            f'{class_path(model.core)} has no layer of kind {kind!r}. Transformers need timm\'s '
            f'names (fc2, attn.proj ...), which ViT, DeiT, CoaT, ConViT, PiT, Swin, Twins and the '
            f"backbones of this package have; a CNN of timm has kind='channel'")
    return layers


def feed_forwards(core: nn.Module) -> list[tuple[str, nn.Linear, int]]:
    """Name, module and call number of each feed-forward's second linear layer."""
    pools = tuple(name for name, module in core.named_modules() if isinstance(module, POOLS))
    calls: dict[int, int] = {}
    found = []
    # A module under several names is called once under each, in this order.
    for name, module in core.named_modules(remove_duplicate=False):
        in_pool = any(name.startswith(f'{pool}.') for pool in pools)
        if name.endswith('.fc2') and isinstance(module, nn.Linear) and not in_pool:
            found.append((name, module, calls.get(id(module), 0)))
            calls[id(module)] = found[-1][2] + 1
    return found


def hidden_layers(model: PictureModel) -> list[FeatureLayer]:
    """Input of each `fc2`: what the activation function (and a gate, if any) gave."""
    return [FeatureLayer(name.removesuffix('.fc2'), fc2, True, unchanged, call,
                         num_prefix_tokens(model.core, name))
            for name, fc2, call in feed_forwards(model.core)]


def block_layers(model: PictureModel) -> list[FeatureLayer]:
    """Output of each block with one feed-forward (so not of CoaT's parallel blocks)."""
    names = [name.rsplit('.', 2)[0] for name, _, _ in feed_forwards(model.core)]
    return [FeatureLayer(name, model.core.get_submodule(name), False, unchanged,
                         num_prefix_tokens=num_prefix_tokens(model.core, name))
            for name in names if names.count(name) == 1]


def attentions(core: nn.Module) -> dict[str, nn.Module]:
    """Name and module of each self-attention layer, by the names of its projections."""
    return {name: module for name, module in core.named_modules()
            if isinstance(getattr(module, 'proj', None), nn.Linear)
            and any(getattr(module, child, None) is not None
                    for child in ('qkv', 'q_proj', 'qk', 'q'))
            and not isinstance(module, POOLS)}


def projected_layers(part: str, model: PictureModel) -> list[FeatureLayer]:
    """Queries, keys or values of each attention layer."""
    layers = []
    for name, attn in attentions(model.core).items():
        module, weight, bias = projection(attn, part)
        layers.append(FeatureLayer(name, module, True, partial(F.linear, weight=weight, bias=bias),
                                   num_prefix_tokens=num_prefix_tokens(model.core, name)))
    return layers


def projection(attn: nn.Module, part: str) -> tuple[nn.Module, Tensor, Tensor | None]:
    """How an attention layer makes its queries, keys or values.

    Returns:
        The module whose input is projected, and weight and bias of the projection. (Not the
        output of a projection: EVA calls none as a module.)
    """
    one = part.removesuffix('s')[0]  # q, k or v
    third = 'qkv'.index(one)
    if getattr(attn, 'qkv', None) is not None:
        bias = attn.qkv.bias
        if getattr(attn, 'q_bias', None) is not None:  # EVA: the keys have a fixed one
            bias = torch.cat([attn.q_bias, attn.k_bias, attn.v_bias])
        return attn, *(None if t is None else t.chunk(3)[third] for t in (attn.qkv.weight, bias))
    if getattr(attn, 'q_proj', None) is not None:  # EVA with separate projections
        linear = getattr(attn, f'{one}_proj')
        return attn, linear.weight, linear.bias
    joint, half = ('qk', third) if hasattr(attn, 'qk') else ('kv', third - 1)
    if one in joint:  # ConViT: qk and v; Twins: q and kv, of tokens that it sub-samples before
        linear = getattr(attn, joint)
        return linear, *(None if t is None else t.chunk(2)[half]
                         for t in (linear.weight, linear.bias))
    linear = getattr(attn, one)
    return linear, linear.weight, linear.bias


def attention_layers(model: PictureModel) -> list[FeatureLayer]:
    """Attention output, heads side by side."""
    return [FeatureLayer(name, attn.proj, True, unchanged,
                         num_prefix_tokens=num_prefix_tokens(model.core, name))
            for name, attn in attentions(model.core).items()]


def head_layers(model: PictureModel) -> list[FeatureLayer]:
    """Mean attention output of each head."""
    return [FeatureLayer(name, attn.proj, True, partial(head_means, num_heads=attn.num_heads),
                         num_prefix_tokens=num_prefix_tokens(model.core, name))
            for name, attn in attentions(model.core).items()]


def channel_layers(model: PictureModel) -> list[FeatureLayer]:
    """Channels of the stages of a CNN."""
    if feed_forwards(model.core):
        return []
    return [FeatureLayer(info['module'], model.core.get_submodule(info['module']), False,
                         channels_last) for info in getattr(model.core, 'feature_info', ())]


def logit_layers(model: PictureModel) -> list[FeatureLayer]:
    """Class logits of the whole network, unless it was built without a classifier."""
    if model.is_timm and not getattr(model.core, 'num_classes', 1):
        return []
    return [FeatureLayer('logits', model.network, False, channels_last)]


KINDS: dict[str, Callable[[PictureModel], list[FeatureLayer]]] = {
    'hidden': hidden_layers,
    'queries': partial(projected_layers, 'queries'),
    'keys': partial(projected_layers, 'keys'),
    'values': partial(projected_layers, 'values'),
    'attention': attention_layers,
    'head': head_layers,
    'block': block_layers,
    'channel': channel_layers,
    'logit': logit_layers,
}


def unchanged(x: Tensor) -> Tensor:
    return x


def channels_last(x: Tensor) -> Tensor:
    """(B, C, h, w) -> (B, h, w, C); (B, K) -> (B, 1, K)."""
    return x[:, None] if x.ndim == 2 else x.movedim(1, -1)


def head_means(x: Tensor, num_heads: int) -> Tensor:
    """(..., H * d) -> (..., H)."""
    return x.unflatten(-1, (num_heads, -1)).mean(-1)


def num_prefix_tokens(core: nn.Module, name: str) -> int:
    """Class, distillation and register tokens in front of the patches in a layer."""
    if isinstance(core, PoolingVisionTransformer):
        return core.num_tokens
    if isinstance(core, CoaT):
        return 1
    if isinstance(core, ConVit):  # the class token joins after the blocks with gated attention
        block = core.get_submodule('.'.join(name.split('.')[:2]))
        return 0 if isinstance(block, ConVitBlock) and block.use_gpsa else core.num_prefix_tokens
    return getattr(core, 'num_prefix_tokens', 0)



def pick_layers(layers: Sequence[FeatureLayer], wanted: Sequence[str]) -> list[int]:
    """Numbers of layers, from numbers as text (negative ones from the last), or from 'all'.

    Raises:
        ValueError: for anything else.
    """
    if list(wanted) == ['all']:
        return list(range(len(layers)))
    numbers = []
    for text in wanted:
        if not text.lstrip('-').isdigit() or not -len(layers) <= int(text) < len(layers):
            raise ValueError(f'layer {text}: expected numbers from 0 to {len(layers) - 1}, or all')
        numbers.append(int(text) % len(layers))
    return numbers
