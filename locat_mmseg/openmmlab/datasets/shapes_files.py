"""The self-drawn pictures as files that need no disk: a ``shapes://`` backend for mmengine.

Whatever reads images through ``mmengine.fileio`` reads these too: the loading transforms of mmcv
and mmseg, the visualization hooks, the inferencers. A path holds all that the drawing needs::

    shapes://<seed>/<height>x<width>/shapes_<split>_<index>.png          the picture
    shapes://<seed>/<height>x<width>/shapes_<split>_<index>_label.png    its label map
"""
import re
from collections.abc import Sequence

import cv2
from mmengine.fileio import BaseStorageBackend, register_backend

from .draw_shapes import Picture, check_picture, draw_layout, label_map
from .paint_shapes import draw_image

_PATH = re.compile(r'shapes://(\d+)/(\d+)x(\d+)/shapes_([a-z]+)_(\d+)(_label)?\.png')


def list_pictures(split: str, num_images: int, img_size: Sequence[int], seed: int
                  ) -> list[Picture]:
    """The first ``num_images`` pictures of a split; arguments as for :class:`Picture`.

    Raises:
        ValueError: They cannot be drawn, or ``num_images`` is not positive.
    """
    if num_images < 1:
        raise ValueError(f'num_images is {num_images}; give at least 1')
    pictures = [Picture(seed, split, index, tuple(img_size)) for index in range(num_images)]
    check_picture(pictures[0])
    return pictures


def image_path(picture: Picture) -> str:
    """Path of a picture."""
    return _stem(picture) + '.png'


def label_path(picture: Picture) -> str:
    """Path of a picture's label map."""
    return _stem(picture) + '_label.png'


def _stem(picture: Picture) -> str:
    height, width = picture.img_size
    return f'shapes://{picture.seed}/{height}x{width}/shapes_{picture.split}_{picture.index:06d}'


@register_backend('shapes', prefixes='shapes')
class ShapesBackend(BaseStorageBackend):
    """Draws the file that is asked for."""

    def get(self, filepath: str) -> bytes:
        """The PNG of a picture or a label map.

        Raises:
            ValueError: The path has another form than this module's header says, or an argument
                in it is out of range.
        """
        match = _PATH.fullmatch(str(filepath))
        if match is None:
            raise ValueError(f'no self-drawn picture is called {filepath!r}; paths look like '
                             f'{image_path(Picture(0, "test", 12, (128, 128)))!r}')
        seed, height, width, split, index, is_label = match.groups()
        picture = Picture(int(seed), split, int(index), (int(height), int(width)))
        pixels = label_map(draw_layout(picture)) if is_label else draw_image(picture)
        return cv2.imencode('.png', pixels, [cv2.IMWRITE_PNG_COMPRESSION, 1])[1].tobytes()

    def get_text(self, filepath: str, encoding: str = 'utf-8') -> str:
        """There is none: raises ValueError."""
        raise ValueError(f'{filepath!r} is a picture and has no text; read it with get')
