"""The token grid (h, w) that the attention layers of one model share.

A patch sequence does not know its shape: 24 patches may be 4 x 6 or 6 x 4. A `TokenGrid` is a
forward hook on the patch embedding; it notes the grid of each image and the attention layers look
it up by their own number of patches.
"""
import math

import torch
from torch import Tensor, nn

from ..layers import Grid


class TokenGrid:
    """Grids of the images a model has seen, by number of patches.

    The object is itself the hook: ``copy.deepcopy`` of a model (EMA, say) then copies model, hook
    and grid together, where a closure would go on writing to the original's grid.

    Several image sizes may pass in one step, also with gradient checkpointing, where a block is
    computed again in the backward pass after other images have gone by. The one case without an
    answer, two shapes with equally many patches waiting for their recomputation, is an error.
    """

    def __init__(self) -> None:
        self._newest: Grid | None = None
        self._latest: dict[int, Grid] = {}
        # Grids that a backward pass may have to recompute, until one has been through.
        self._pending: dict[int, tuple[Grid, ...]] = {}
        self._recomputed: set[int] = set()

    def __call__(self, patch_embed: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> None:
        """Forward hook of a timm patch embedding: the grid counts dynamic padding."""
        self.record(patch_embed.dynamic_feat_size(args[0].shape[-2:]))

    def record(self, grid: Grid) -> None:
        """Note the grid (h, w) of the image that the attention layers will see next."""
        self._newest = grid = (int(grid[0]), int(grid[1]))
        if torch.compiler.is_compiling():
            return  # a graph that depended on earlier images would be compiled again after each
        num_patches = math.prod(grid)
        self._latest[num_patches] = grid
        if torch.is_grad_enabled():
            pending = self._pending.get(num_patches, ())
            if num_patches in self._recomputed:  # a backward pass is over: a new step begins
                self._recomputed.remove(num_patches)
                pending = ()
            if grid not in pending:
                self._pending[num_patches] = (*pending, grid)

    def lookup(self, num_patches: int) -> Grid:
        """The grid of the image with ``num_patches`` patches that is being computed.

        Raises:
            ValueError: if no such image was seen, or if the backward pass recomputes a layer and
                images of two shapes with this number of patches went through it since the last
                backward pass.
        """
        recomputing = not torch.compiler.is_compiling() and in_backward()
        if recomputing and num_patches in self._pending:
            return self._lookup_recomputed(num_patches)
        if self._newest is not None and math.prod(self._newest) == num_patches:
            return self._newest
        if num_patches not in self._latest:
            raise ValueError(
                f'the attention layer got {num_patches} patch tokens, but the patch embedding made '
                f'grids of {sorted(self._latest) or "no"} patches so far; the tokens between patch '
                'embedding and attention must stay whole (no patch dropout, merging or pooling), '
                'and a layer used alone needs its grid: layer(x, grid=(h, w))')
        return self._latest[num_patches]

    def _lookup_recomputed(self, num_patches: int) -> Grid:
        self._recomputed.add(num_patches)
        pending = self._pending[num_patches]
        if len(pending) > 1:
            raise ValueError(
                f'gradient checkpointing: images with grids {pending}, of {num_patches} patches '
                'each, went through the model before one backward pass, so the recomputation '
                'cannot tell them apart; run backward after each (and evaluation under '
                'torch.no_grad), or turn checkpointing off')
        return pending[0]


def in_backward() -> bool:
    """Whether autograd is running: a forward call is then a recomputation of checkpointing."""
    return torch._C._current_graph_task_id() != -1
