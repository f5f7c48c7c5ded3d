"""Separating the class token from the patches, in any block of a timm transformer.

The class-token experiments of "What do Vision Transformers Learn?" (arXiv 2212.06727): is there
information in the class token that the patches lack, and from which layer on does it suffice?
A mask that lets class token and patches attend only to their own kind is the same as running them
through a block one after the other; so one mechanism, a mask in a range of blocks, makes both

* the isolated class token: the mask in blocks [0, L). The class token that the patches meet at L is
  one and the same for all pictures;
* the kept class token: the mask in blocks [L, depth). The class token reads no patch after L.

Shape legend: B batch, J class tokens, P class and register tokens, n patches, N = P + n tokens,
C channels.
"""
import inspect
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor, nn

INSERTS = ('propagated', 'raw')
REGISTERS = ('patches', 'class', 'apart')
CLASS, PATCHES, APART = range(3)


def count_class_tokens(core: nn.Module) -> int:
    """J of a timm model: 1, several for Jumbo, 2 for a distilled DeiT, 0 without a class token."""
    registers = getattr(core, 'num_reg_tokens', None)
    if registers is None:  # EVA and DINOv3 do not tell
        tokens = getattr(core, 'reg_token', None)
        registers = 0 if tokens is None else tokens.shape[1]
    return getattr(core, 'num_prefix_tokens', 0) - registers


def check_separable(core: nn.Module) -> None:
    """Refuse a model whose class token cannot be separated from its patches by a mask.

    Raises:
        ValueError: saying why.
    """
    name = type(core).__name__
    if count_class_tokens(core) < 1:
        raise ValueError(f'{name} has no class token: take a ViT that has one')
    for block in getattr(core, 'blocks', ()):
        if 'attn_mask' not in inspect.signature(block.forward).parameters:
            raise ValueError(f'{name} is made of {type(block).__name__}, whose attention takes no '
                             'mask: take a ViT, DeiT, DINOv2, DINOv3, EVA or CLIP tower of timm')


def token_groups(core: nn.Module, num_tokens: int, registers: str = 'patches') -> Tensor:
    """The group (N,) of each token: those of one group stay together.

    Args:
        core: a timm model.
        num_tokens: N.
        registers: where register tokens belong: with the 'patches', with the 'class' token, or
            'apart' from both.
    """
    if registers not in REGISTERS:
        raise ValueError(f'registers={registers!r}: expected one of {REGISTERS}')
    groups = torch.full((num_tokens, ), PATCHES)
    groups[:core.num_prefix_tokens] = {'patches': PATCHES, 'class': CLASS,
                                       'apart': APART}[registers]
    groups[:count_class_tokens(core)] = CLASS
    return groups


@contextmanager
def separated(core: nn.Module, blocks: Sequence[int], registers: str = 'patches'
              ) -> Iterator[None]:
    """Within it, tokens attend only to those of their group in some blocks.

    Args:
        core: a timm model, plain or with GAug.
        blocks: numbers of the blocks.
        registers: see `token_groups`.

    Raises:
        ValueError: see `check_separable`.
    """
    check_separable(core)

    def add_mask(block: nn.Module, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        tokens = args[0]
        groups = token_groups(core, tokens.shape[1], registers)
        mask = torch.zeros(len(groups), len(groups)).masked_fill(
            groups[:, None] != groups, float('-inf'))  # additive: timm's slow path takes no bool
        return args, {**kwargs, 'attn_mask': mask.to(tokens)[None, None]}

    with ExitStack() as stack:
        for number in blocks:
            handle = core.blocks[number].register_forward_pre_hook(add_mask, with_kwargs=True)
            stack.callback(handle.remove)
        yield


@contextmanager
def isolated(core: nn.Module, layer: int, insert: str = 'propagated',
             registers: str = 'patches') -> Iterator[None]:
    """Within it, the class token is isolated in blocks [0, layer): it meets the patches at `layer`.

    Args:
        core: a timm model, plain or with GAug.
        layer: L; 0 changes nothing.
        insert: what the patches meet: the class token 'propagated' through the blocks alone, or
            the 'raw' one, as it enters the first block.
        registers: see `token_groups`.

    Raises:
        ValueError: if an argument is out of range, or see `check_separable`.
    """
    if insert not in INSERTS:
        raise ValueError(f'insert={insert!r}: expected one of {INSERTS}')
    check_layer(layer, len(core.blocks))
    with separated(core, range(layer), registers), ExitStack() as stack:
        if insert == 'raw' and layer:
            raw: list[Tensor] = []

            def keep(block: nn.Module, args: tuple) -> None:
                raw[:] = [args[0]]

            def put_back(block: nn.Module, args: tuple, output: Tensor) -> Tensor:
                groups = token_groups(core, output.shape[1], registers).to(output.device)
                return torch.where((groups == CLASS)[:, None], raw[0], output)

            for handle in (core.blocks[0].register_forward_pre_hook(keep),
                           core.blocks[layer - 1].register_forward_hook(put_back)):
                stack.callback(handle.remove)
        yield


@contextmanager
def class_token_only(core: nn.Module, layer: int, registers: str = 'patches') -> Iterator[None]:
    """Within it, the class token reads no patch in blocks [layer, depth), as if it were alone.

    Args:
        core: a timm model, plain or with GAug.
        layer: L; the depth changes nothing.
        registers: 'class' keeps the register tokens as well; otherwise they go with the patches.

    Raises:
        ValueError: if an argument is out of range, or see `check_separable`.
    """
    check_layer(layer, len(core.blocks))
    with separated(core, range(layer, len(core.blocks)), registers):
        yield


def check_layer(layer: int, depth: int) -> None:
    """Raises:
        ValueError: if there is no such layer.
    """
    if not 0 <= layer <= depth:
        raise ValueError(f'layer {layer}: expected 0 to {depth}, for {depth} layers')
