"""The augmentations of a picture's copies: the ensemble that feature visualisation averages over.

Each function takes the copies (k, 3, H, W) of one picture, a random generator on their device, and
how far the optimisation is, from 0 to 1; it returns the changed copies. arXiv 2212.06727, section 3
(text) and its published code differ in order, colour and noise; both are here.
"""
from collections.abc import Callable, Sequence

import torch
from torch import Generator, Tensor
from torch.nn import functional as F

Augmentation = Callable[[Tensor, Generator, float], Tensor]


def uniform(shape: Sequence[int], like: Tensor, generator: Generator) -> Tensor:
    """U(-1, 1)."""
    return torch.rand(shape, generator=generator, device=like.device, dtype=like.dtype) * 2 - 1


def jitter(copies: Tensor, generator: Generator, progress: float, most: int = 32) -> Tensor:
    """Roll all copies around by the same dy, dx, each of U{-most .. most} pixels."""
    shifts = torch.randint(-most, most + 1, (2,), generator=generator, device=copies.device)
    return copies.roll(shifts.tolist(), dims=(-2, -1))


def scale_shift(copies: Tensor, generator: Generator, progress: float) -> Tensor:
    """Colour of the paper's text: sigma x + mu for each copy and channel; mu ~ U(-1, 1), sigma ~
    exp(U(-1, 1))."""
    shift, log_scale = uniform((2, *copies.shape[:2], 1, 1), copies, generator)
    return copies * log_scale.exp() + shift


def shift_scale(copies: Tensor, generator: Generator, progress: float) -> Tensor:
    """Colour of the paper's code: (x - mu) / sigma, drawn likewise."""
    shift, log_scale = uniform((2, *copies.shape[:2], 1, 1), copies, generator)
    return (copies - shift) / log_scale.exp()


def pixel_noise(copies: Tensor, generator: Generator, progress: float) -> Tensor:
    """Noise of the paper's text: N(0, 1) for each pixel and channel."""
    return copies + torch.randn(copies.shape, generator=generator, device=copies.device,
                                dtype=copies.dtype)


def channel_noise(copies: Tensor, generator: Generator, progress: float,
                  std: float = 0.5) -> Tensor:
    """Noise of the paper's code: one offset for each copy and channel, constant over the picture.

    Its standard deviation falls linearly from ``std`` to 0, of 400 steps two before the end.
    """
    offset = torch.randn((*copies.shape[:2], 1, 1), generator=generator, device=copies.device,
                         dtype=copies.dtype)
    return copies + offset * std * max(398 / 400 - progress, 0.)


def flip(copies: Tensor, generator: Generator, progress: float) -> Tensor:
    """Mirror each copy with probability 1/2."""
    mirrored = uniform((len(copies), 1, 1, 1), copies, generator) < 0
    return torch.where(mirrored, copies.flip(-1), copies)


def center(copies: Tensor, generator: Generator, progress: float, part: float = 7 / 8,
           std: float = 1 / 32) -> Tensor:
    """Crop all copies to ``part`` of their sides, around a centre that moves by N(0, std side), and
    resize back: what matters is driven to the middle."""
    sides = copies.shape[-2:]
    crop = [max(round(side * part), 1) for side in sides]
    moves = torch.randn(2, generator=generator, device=copies.device).tolist()
    (top, left) = (min(max(round((side - size) / 2 + move * std * side), 0), side - size)
                   for side, size, move in zip(sides, crop, moves))
    cropped = copies[..., top:top + crop[0], left:left + crop[1]]
    return F.interpolate(cropped, size=sides, mode='bilinear', align_corners=False)


def tile(copies: Tensor, generator: Generator, progress: float, times: int = 2) -> Tensor:
    """Repeat the picture ``times`` x ``times``, each as large as before: a texture.

    The model then sees pictures that much larger.
    """
    return copies.repeat(1, 1, times, times)


AUGMENTATIONS: dict[str, Augmentation] = {
    f.__name__: f for f in (jitter, scale_shift, shift_scale, pixel_noise, channel_noise, flip,
                            center, tile)}


def augment(copies: Tensor, names: Sequence[str], generator: Generator,
            progress: float) -> Tensor:
    """Apply augmentations by name, the first one first.

    Raises:
        ValueError: for a name that is not in `AUGMENTATIONS`.
    """
    for name in names:
        if name not in AUGMENTATIONS:
            raise ValueError(f'augmentation {name!r}: expected some of {list(AUGMENTATIONS)}')
        copies = AUGMENTATIONS[name](copies, generator, progress)
    return copies
