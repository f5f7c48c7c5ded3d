"""Where the shapes of a self-drawn picture are, from its name alone.

Nine classes of form: four are solid (disk, square, triangle, star), five are made of
parts 2.5 to 4 px thick at any image size (ring, cross, comb, grid, wave). Each picture has one
large shape of a random class and six to nine smaller ones on top of it, all a little tilted.
Beside a large thin shape the others are small, so that any class can be the largest by area.

The same bytes come out on every machine: random numbers are raw words of PCG64 (the part of
numpy's random numbers that is the same in all its versions), and what follows is integer
arithmetic, with lengths in sixteenths of a pixel.
"""
import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

CLASSES = ('background', 'disk', 'square', 'triangle', 'star', 'ring', 'cross', 'comb', 'grid',
           'wave')
SOLID = 4  # classes 1 to SOLID are solid, the later ones thin
SPLITS = ('train', 'test')
MIN_SIDE, MAX_SIDE = 32, 2048  # px; beyond it, products of lengths would not fit into int32
SUBPIXELS = 16  # units of length in a pixel
ONE = 1 << 14  # 1.0 of a cosine

Box = tuple[slice, slice]


class Picture(NamedTuple):
    """The name of one picture, from which it is drawn.

    Attributes:
        seed: Names the data set, 0 to 2**32 - 1.
        split: 'train' or 'test'; the two share no stream of random numbers.
        index: Number of the picture within the split, 0 to 2**32 - 1.
        img_size: (height, width) in pixels, each from ``MIN_SIDE`` to ``MAX_SIDE``.
    """
    seed: int
    split: str
    index: int
    img_size: tuple[int, int]


class Instance(NamedTuple):
    """One shape: its class, and its mask within a box of the image, hidden parts included."""
    label: int
    box: Box
    mask: np.ndarray


class Layout(NamedTuple):
    """The shapes in painting order, and where each is visible.

    ``instance_map`` is (H, W) uint8: k where the k-th shape is seen, counted from 1; 0 elsewhere.
    """
    instances: tuple[Instance, ...]
    instance_map: np.ndarray


class RandomIntegers:
    """A picture's stream of random integers, another one for each ``purpose``."""

    def __init__(self, picture: Picture, purpose: int) -> None:
        key = (picture.seed, SPLITS.index(picture.split), picture.index, purpose)
        self._generator = np.random.PCG64(np.random.SeedSequence(key))

    def integer(self, low: int, high: int) -> int:
        """One of low, ..., high."""
        return low + self._generator.random_raw() % (high - low + 1)

    def bytes(self, *shape: int) -> np.ndarray:
        """Numbers 0 to 255, int32."""
        count = math.prod(shape)
        words = self._generator.random_raw((count + 7) // 8)
        values = (words[:, None] >> np.arange(0, 64, 8, dtype=np.uint64)) & np.uint64(255)
        return values.astype(np.int32).ravel()[:count].reshape(shape)


def check_picture(picture: Picture) -> None:
    """Raise ValueError for a picture that cannot be drawn."""
    seed, split, index, img_size = picture
    if split not in SPLITS:
        raise ValueError(f'split is {split!r}; choose one of {SPLITS}')
    for name, number in (('seed', seed), ('index', index)):
        if not 0 <= number < 1 << 32:
            raise ValueError(f'{name} is {number}; give one from 0 to 2**32 - 1')
    if len(img_size) != 2 or not all(side in range(MIN_SIDE, MAX_SIDE + 1) for side in img_size):
        raise ValueError(f'img_size is {img_size}; give (height, width), each from {MIN_SIDE} '
                         f'to {MAX_SIDE} pixels')


@lru_cache(maxsize=4)  # an image and its label map are asked for one after the other
def draw_layout(picture: Picture) -> Layout:
    """Place the shapes of one picture; ValueError if it cannot be drawn."""
    check_picture(picture)
    img_size = picture.img_size
    stream = RandomIntegers(picture, purpose=0)
    instances = []
    instance_map = np.zeros(img_size, np.uint8)
    for number, (percent, label) in enumerate(_choose_shapes(stream), start=1):
        instance = _place(stream, label, percent * min(img_size) * SUBPIXELS // 100, img_size)
        instance_map[instance.box][instance.mask] = number
        instances.append(instance)
    instance_map.setflags(write=False)
    return Layout(tuple(instances), instance_map)


def label_map(layout: Layout) -> np.ndarray:
    """Class of each pixel as an index into ``CLASSES``, (H, W) uint8."""
    labels = [0] + [instance.label for instance in layout.instances]
    return np.array(labels, np.uint8)[layout.instance_map]


def largest_label(layout: Layout) -> int:
    """Class of the shape with the most visible pixels; among equals, the first one painted."""
    pixels = np.bincount(layout.instance_map.ravel(), minlength=len(layout.instances) + 1)
    return layout.instances[int(pixels[1:].argmax())].label


def direction(step: int, steps: int) -> tuple[int, int]:
    """(cos, sin) of step/steps of a turn, in units of 1/ONE.

    The last bit of a cosine differs between platforms; rounding it is safe, as for the turns in
    use (steps 3, 5 and 256) none is nearer than 0.005 units to where rounding changes.
    """
    angle = 2 * math.pi * step / steps
    return round(math.cos(angle) * ONE), round(math.sin(angle) * ONE)


def box_around(centre: tuple[int, int], reach: int, img_size: tuple[int, int]) -> Box:
    """Pixels up to ``reach`` from a centre (y, x) in both directions, within the image."""
    return tuple(slice(max(c - reach, 0), min(c + reach + 1, end))
                 for c, end in zip(centre, img_size, strict=True))


def turned_coordinates(box: Box, centre: tuple[int, int], turn: int
                       ) -> tuple[np.ndarray, np.ndarray]:
    """(u, v) of a box's pixels in axes through a centre (y, x), turned by turn/256.

    Each is int32 of the box's size, in 1/SUBPIXELS pixel.
    """
    cos, sin = direction(turn, 256)
    y, x = (np.arange(side.start, side.stop, dtype=np.int32) - c
            for side, c in zip(box, centre, strict=True))
    return (((y * sin)[:, None] + (x * cos)) * SUBPIXELS // ONE,
            ((y * cos)[:, None] - (x * sin)) * SUBPIXELS // ONE)


def _choose_shapes(stream: RandomIntegers) -> list[tuple[int, int]]:
    """(radius in per cent of the shorter side, class), largest first."""
    main = stream.integer(1, len(_MASKS))
    shapes = [(stream.integer(38, 50), main)]
    for _ in range(stream.integer(6, 9)):
        label = stream.integer(1, len(_MASKS))
        if main <= SOLID:
            percent = stream.integer(12, 34)
        else:
            percent = stream.integer(8, 11) if label <= SOLID else stream.integer(12, 24)
        shapes.append((percent, label))
    return sorted(shapes, reverse=True)


def _place(stream: RandomIntegers, label: int, radius: int, img_size: tuple[int, int]) -> Instance:
    """Put a shape's centre anywhere but in the outer eighth of the image, and tilt it."""
    centre = tuple(stream.integer(side // 8, side * 7 // 8) for side in img_size)
    box = box_around(centre, radius * 5 // 4 // SUBPIXELS + 4, img_size)
    u, v = turned_coordinates(box, centre, stream.integer(-16, 16))
    thickness = stream.integer(5 * SUBPIXELS // 2, 4 * SUBPIXELS)
    return Instance(label, box, _MASKS[label - 1](u, v, radius, thickness))


# One function per class: which points (u, v) belong to it, given its radius r and the thickness t
# of its parts. The solid ones do not use t.


def _disk(u: np.ndarray, v: np.ndarray, r: int, t: int) -> np.ndarray:
    return u * u + v * v <= r * r


def _square(u: np.ndarray, v: np.ndarray, r: int, t: int) -> np.ndarray:
    return np.maximum(abs(u), abs(v)) <= r * 3 // 4


def _triangle(u: np.ndarray, v: np.ndarray, r: int, t: int) -> np.ndarray:
    normals = [direction(k, 3) for k in range(3)]
    return np.all([u * cos + v * sin <= r * ONE // 2 for cos, sin in normals], axis=0)


def _star(u: np.ndarray, v: np.ndarray, r: int, t: int) -> np.ndarray:
    """The five lines of a pentagram: points of it are on the inner side of at least four."""
    normals = [direction(k, 5) for k in range(5)]
    inner = r * normals[1][0]
    return np.sum([u * cos + v * sin <= inner for cos, sin in normals], axis=0) >= 4


def _ring(u: np.ndarray, v: np.ndarray, r: int, t: int) -> np.ndarray:
    squared = u * u + v * v
    return (squared <= r * r) & (squared > (r - t) ** 2)


def _cross(u: np.ndarray, v: np.ndarray, r: int, t: int) -> np.ndarray:
    u, v = abs(u), abs(v)
    return (np.minimum(u, v) * 2 <= t) & (np.maximum(u, v) <= r)


def _comb(u: np.ndarray, v: np.ndarray, r: int, t: int) -> np.ndarray:
    spine = v > r // 2 - t
    return (_bars(u, r, t) | spine) & (abs(u) <= r) & (abs(v) <= r // 2)


def _grid(u: np.ndarray, v: np.ndarray, r: int, t: int) -> np.ndarray:
    half = r * 3 // 4
    return (_bars(u, half, t) | _bars(v, half, t)) & (np.maximum(abs(u), abs(v)) <= half)


def _bars(u: np.ndarray, half: int, t: int) -> np.ndarray:
    """Three to six bars of thickness t, evenly spread over -half <= u <= half, ends included."""
    gaps = min(max((2 * half - t) // (6 * t), 2), 5)
    return (u + half) % ((2 * half - t) // gaps) < t


def _wave(u: np.ndarray, v: np.ndarray, r: int, t: int) -> np.ndarray:
    """A zigzag of slope 2, along which thickness t measures sqrt(5) t, about 9/4 t, in v."""
    middle = 2 * (abs(u % r - r // 2) - r // 4)
    return (abs(v - middle) * 8 <= t * 9) & (abs(u) <= r)


_MASKS = (_disk, _square, _triangle, _star, _ring, _cross, _comb, _grid, _wave)
