"""Self-drawn pictures: textured shapes over their shadows on cluttered ground.

Texture, its scale and its direction are drawn anew for every shape and say nothing about its
class. In two of three shapes the hue is near that of the class, so that small models learn
something within minutes; the others have any hue, and only their form tells the class. Shapes
are vivid; the ground is muted: soft noise, and on it shards and twigs in the same textures.
Integer arithmetic throughout, as in ``draw_shapes``.
"""
import numpy as np

from .draw_shapes import (
    CLASSES,
    ONE,
    SUBPIXELS,
    Box,
    Instance,
    Picture,
    RandomIntegers,
    box_around,
    direction,
    draw_layout,
    turned_coordinates,
)

_CIRCLE = 6 * 256  # steps of hue


def draw_image(picture: Picture) -> np.ndarray:
    """Draw one picture.

    Returns:
        (H, W, 3) uint8, channels in OpenCV's order: blue, green, red.

    Raises:
        ValueError: The picture cannot be drawn (see :class:`Picture`).
    """
    layout = draw_layout(picture)
    img_size = picture.img_size
    stream = RandomIntegers(picture, purpose=1)
    canvas = _ground(stream, img_size)
    for instance in layout.instances:
        _paint_shape(stream, canvas, instance)
    grain = (stream.bytes(*img_size) % 17 - 8).astype(np.int16)
    return (canvas + grain[..., None]).clip(0, 255).astype(np.uint8)


def _ground(stream: RandomIntegers, img_size: tuple[int, int]) -> np.ndarray:
    """Two colours mixed by noise of two scales, under shards and twigs; (H, W, 3) uint8."""
    noise = (_soft_noise(stream, 32, img_size) + _soft_noise(stream, 8, img_size)) // 2
    canvas = _ramp_of(_muted(stream), _muted(stream)).take(noise, axis=0)
    for _ in range(stream.integer(2, 5)):
        _paint_shard(stream, canvas)
    for _ in range(stream.integer(1, 5)):
        _paint_twig(stream, canvas)
    return canvas


def _soft_noise(stream: RandomIntegers, cell: int, img_size: tuple[int, int]) -> np.ndarray:
    """Random numbers at every ``cell``-th pixel, blended linearly between; (H, W), 0 to 255."""
    height, width = img_size
    knots = stream.bytes(height // cell + 2, width // cell + 2)
    y, x = np.arange(height, dtype=np.int32), np.arange(width, dtype=np.int32)
    rows = knots[:, x // cell] * (cell - x % cell) + knots[:, x // cell + 1] * (x % cell)
    below = (y % cell)[:, None]
    return (rows[y // cell] * (cell - below) + rows[y // cell + 1] * below) // (cell * cell)


def _paint_shard(stream: RandomIntegers, canvas: np.ndarray) -> None:
    """An irregular polygon: what is inside of five lines around a centre."""
    side = min(canvas.shape[:2])
    centre = _anywhere(stream, canvas)
    reach = side * stream.integer(8, 25) // 100
    box = box_around(centre, reach, canvas.shape[:2])
    u, v = turned_coordinates(box, centre, stream.integer(0, 255))
    normals = [direction(k * 51 + stream.integer(-20, 20), 256) for k in range(5)]
    mask = np.all([u * cos + v * sin <= reach * stream.integer(5, 14) * ONE
                   for cos, sin in normals], axis=0)
    _fill(stream, canvas[box], mask, _muted(stream), _muted(stream))


def _paint_twig(stream: RandomIntegers, canvas: np.ndarray) -> None:
    """A straight line 1 to 3 px thick."""
    centre = _anywhere(stream, canvas)
    box = box_around(centre, min(canvas.shape[:2]) * stream.integer(15, 40) // 100,
                     canvas.shape[:2])
    _, v = turned_coordinates(box, centre, stream.integer(0, 255))
    mask = abs(v) * 2 <= stream.integer(SUBPIXELS, 3 * SUBPIXELS)
    _fill(stream, canvas[box], mask, _muted(stream), _muted(stream))


def _paint_shape(stream: RandomIntegers, canvas: np.ndarray, instance: Instance) -> None:
    """A shape in two shades of a colour, over its shadow."""
    view = canvas[instance.box]
    below = view[2:, 1:]  # the shadow falls 2 px down and 1 px to the right
    below -= ((below >> 2) + (below >> 3)) * instance.mask[:-2, :-1, None]
    light = _vivid(stream, instance.label)
    dark = light * stream.integer(8, 12) // 16
    _fill(stream, view, instance.mask, dark, light)


def _fill(stream: RandomIntegers, view: np.ndarray, mask: np.ndarray, low: np.ndarray,
          high: np.ndarray) -> None:
    """Fill a mask of a piece of canvas with a texture of two colours."""
    whole: Box = tuple(slice(0, side) for side in mask.shape)
    u, v = turned_coordinates(whole, (0, 0), stream.integer(0, 255))
    texture = _TEXTURES[stream.integer(0, len(_TEXTURES) - 1)]
    amount = texture(u, v, stream.integer(4 * SUBPIXELS, 10 * SUBPIXELS))
    np.copyto(view, _ramp_of(low, high).take(amount, axis=0), where=mask[..., None])


def _ramp_of(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """The 256 colours from low to high, (256, 3) uint8."""
    return (low + (high - low) * np.arange(256)[:, None] // 255).astype(np.uint8)


def _anywhere(stream: RandomIntegers, canvas: np.ndarray) -> tuple[int, int]:
    height, width = canvas.shape[:2]
    return stream.integer(0, height - 1), stream.integer(0, width - 1)


def _vivid(stream: RandomIntegers, label: int) -> np.ndarray:
    """A saturated colour, its hue near that of the class or, one time in three, any."""
    if stream.integer(0, 2):
        hue = _CIRCLE * (label - 1) // (len(CLASSES) - 1) + stream.integer(-40, 40)
    else:
        hue = stream.integer(0, _CIRCLE - 1)
    # red peaks at hue 0, green a third of the circle later, blue another third later
    from_peak = [(hue - _CIRCLE * k // 3 + _CIRCLE // 2) % _CIRCLE - _CIRCLE // 2
                 for k in (2, 1, 0)]
    channels = (2 * 256 - abs(np.array(from_peak))).clip(0, 255)
    low, high = stream.integer(10, 60), stream.integer(200, 250)
    return low + channels * (high - low) // 255


def _muted(stream: RandomIntegers) -> np.ndarray:
    """A grey with a tint."""
    return stream.integer(60, 170) + stream.bytes(3) % 41 - 20


# One function per texture: 0 to 255 at the points (u, v), in a pattern of period p.


def _shading(u: np.ndarray, v: np.ndarray, p: int) -> np.ndarray:
    """Up and down over eight periods."""
    return abs(u % (8 * p) - 4 * p) * 255 // (4 * p)


def _checks(u: np.ndarray, v: np.ndarray, p: int) -> np.ndarray:
    return ((u % p * 2 < p) ^ (v % p * 2 < p)) * 255


def _stripes(u: np.ndarray, v: np.ndarray, p: int) -> np.ndarray:
    return (u % p * 2 < p) * 255


def _dots(u: np.ndarray, v: np.ndarray, p: int) -> np.ndarray:
    return ((u % p - p // 2) ** 2 + (v % p - p // 2) ** 2 < p * p // 9) * 255


_TEXTURES = (_shading, _checks, _stripes, _dots)
