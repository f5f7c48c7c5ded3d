"""Changes of pictures whose effect is measured: shuffled, rotated, shifted, filtered.

Each takes pictures (..., H, W); the geometric ones take label maps just so, and change them alike.
"""
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torchvision.transforms import InterpolationMode
from torchvision.transforms import functional as TF

from .frequency import RADII, high_pass, low_pass


def shuffle_patches(pictures: Tensor, patch: int, seed: int = 0) -> Tensor:
    """Shuffle square patches, all pictures alike; what is no whole patch, right and below, stays.

    Args:
        pictures: (..., H, W).
        patch: side of a patch in pixels.
        seed: of the order, which depends on nothing else but the number of patches.

    Raises:
        ValueError: if there are fewer than two patches to shuffle.
    """
    rows, columns = (side // patch for side in pictures.shape[-2:]) if patch > 0 else (0, 0)
    if rows * columns < 2:
        raise ValueError(f'patches of {patch} pixels in pictures of {pictures.shape[-2]} x '
                         f'{pictures.shape[-1]}: expected a side that is positive and leaves at '
                         'least two of them')
    order = torch.randperm(rows * columns, generator=torch.Generator().manual_seed(seed))
    whole = pictures[..., :rows * patch, :columns * patch]
    patches = whole.unflatten(-1, (columns, patch)).unflatten(-3, (rows, patch)).transpose(-3, -2)
    shuffled = patches.flatten(-4, -3)[..., order.to(pictures.device), :, :]
    changed = pictures.clone()
    changed[..., :rows * patch, :columns * patch] = \
        shuffled.unflatten(-3, (rows, columns)).transpose(-3, -2).flatten(-4, -3).flatten(-2)
    return changed


def shift(pictures: Tensor, pixels: int) -> Tensor:
    """Move pictures down and to the right; what leaves them comes in at the other side."""
    return pictures.roll((pixels, pixels), (-2, -1))


def rotate(pictures: Tensor, degrees: float) -> Tensor:
    """Rotate pictures (B, C, H, W) counterclockwise about their centre; black around them."""
    return TF.rotate(pictures, degrees, InterpolationMode.BILINEAR)


def rotate_labels(labels: Tensor, degrees: float, void: int) -> Tensor:
    """Rotate label maps (B, H, W) as `rotate` does pictures; void around them."""
    return TF.rotate(labels[:, None], degrees, InterpolationMode.NEAREST, fill=[void])[:, 0]


@dataclass(frozen=True)
class Change:
    """One change of pictures.

    Attributes:
        kind: of the change, with a name in `CHANGES`.
        value: how much.
        pictures: from pictures (B, 3, H, W) in [0, 1] to such.
        labels: from label maps (B, H, W) of the pictures' size, and the void label, to such; None
            where they stay.
    """
    kind: str
    value: float
    pictures: Callable[[Tensor], Tensor]
    labels: Callable[[Tensor, int], Tensor] | None = None


def make_change(kind: str, value: float, seed: int = 0) -> Change:
    """A change by name.

    Raises:
        ValueError: if there is no such kind, the value is infinite or no number, or a number of
            pixels is not whole.
    """
    if kind not in CHANGES:
        raise ValueError(f'change {kind!r}: expected one of {", ".join(CHANGES)}')
    if not math.isfinite(value):
        raise ValueError(f'{kind} {value}: expected a finite number')
    if kind in ('shuffle', 'shift'):
        if value != int(value):
            raise ValueError(f'{kind} {value}: expected a whole number of pixels')
        function = partial(shift, pixels=int(value)) if kind == 'shift' else \
            partial(shuffle_patches, patch=int(value), seed=seed)
        return Change(kind, int(value), function, lambda labels, void: function(labels))
    if kind == 'rotate':
        return Change(kind, value, partial(rotate, degrees=value),
                      lambda labels, void: rotate_labels(labels, value, void))
    return Change(kind, value, partial(low_pass if kind == 'low_pass' else high_pass,
                                       radius=value))


# What the value of a change means, for axes and help.
CHANGES = {
    'low_pass': 'radius that is kept (1: highest of an axis)',
    'high_pass': 'radius that is removed (1: highest of an axis)',
    'shuffle': 'side of the shuffled patches in pixels',
    'rotate': 'rotation in degrees',
    'shift': 'shift in pixels, down and right',
}
# Values of a change where none are given.
SWEEPS = dict(low_pass=RADII, high_pass=RADII, shuffle=(16, 32),
              rotate=(15, 30, 45, 90, 135, 180), shift=(4, 8, 12))


def make_changes(kind: str, values: Sequence[float], seed: int = 0) -> list[Change]:
    """Changes of one kind; errors as in `make_change`."""
    return [make_change(kind, value, seed) for value in values]
