"""Foreground and background of pictures, by boxes or by masks, the other part black.

After "What do Vision Transformers Learn?" (arXiv 2212.06727): a picture is divided at its original
size, before it is resized and cropped.
"""
from collections.abc import Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
from PIL import Image

PARTS = ('whole', 'foreground', 'background')
Box = tuple[float, float, float, float]  # xmin, ymin, xmax, ymax; the maxima are outside


def read_boxes(path: Path, name: str, size: tuple[int, int]) -> list[Box]:
    """The boxes of one class in an XML file of ImageNet (or PASCAL VOC), in pixels of a picture.

    Args:
        path: of the XML file.
        name: of the class, for ImageNet its synset.
        size: (height, width) of the picture. Where the file was made for another size, its boxes
            are scaled.

    Raises:
        ValueError: if the file holds no such annotation.
    """
    try:
        root = ElementTree.parse(path).getroot()
        width, height = (float(root.findtext(f'size/{side}')) for side in ('width', 'height'))
        boxes = [tuple(float(item.findtext(f'bndbox/{side}'))
                       for side in ('xmin', 'ymin', 'xmax', 'ymax'))
                 for item in root.iter('object') if item.findtext('name') == name]
        scale = (size[1] / width, size[0] / height) * 2
    except (OSError, ElementTree.ParseError, TypeError, ValueError, ZeroDivisionError) as error:
        raise ValueError(f'{path} is no annotation with size and bndbox ({type(error).__name__}: '
                         f'{error}): expected an XML file of ImageNet or PASCAL VOC') from error
    return [tuple(side * factor for side, factor in zip(box, scale)) for box in boxes]


def boxes_mask(boxes: Sequence[Box], size: tuple[int, int]) -> np.ndarray:
    """Boolean (height, width) of the pixels in any box; ends are rounded to whole pixels."""
    mask = np.zeros(size, bool)
    for box in boxes:
        left, top, right, bottom = (max(0, round(side)) for side in box)
        mask[top:bottom, left:right] = True
    return mask


def keep_part(picture: np.ndarray, foreground: np.ndarray, part: str) -> np.ndarray:
    """The picture (height, width, ...) with the other part black.

    Args:
        picture: pixels.
        foreground: boolean (height, width).
        part: one of `PARTS`.

    Raises:
        ValueError: if there is no such part, or the mask has another size.
    """
    if part not in PARTS:
        raise ValueError(f'part {part!r}: expected one of {PARTS}')
    if foreground.shape != picture.shape[:2]:
        raise ValueError(f'a mask of {foreground.shape} for a picture of {picture.shape[:2]}: '
                         'expected the same height and width')
    if part == 'whole':
        return picture
    visible = foreground if part == 'foreground' else ~foreground
    return np.where(visible.reshape(*visible.shape, *[1] * (picture.ndim - 2)), picture, 0)


class ForegroundBoxes:
    """Foreground by the boxes of a folder of XML files, found by the picture's name.

    The class of a picture is the name of its folder, as in ImageNet, and only boxes of this class
    count.

    Args:
        folder: with the XML files, at any depth.

    Raises:
        ValueError: if there are none.
    """

    def __init__(self, folder: Path) -> None:
        self.files = files_by_name(folder, '.xml')

    def __call__(self, picture: Path, size: tuple[int, int]) -> np.ndarray | None:
        """Boolean (height, width) of a picture's foreground; None if it has no box of its class."""
        file = self.files.get(picture.stem)
        boxes = read_boxes(file, picture.parent.name, size) if file else []
        mask = boxes_mask(boxes, size)
        return mask if mask.any() else None


class ForegroundMasks:
    """Foreground by a folder of masks, found by the picture's name: what is not 0.

    Args:
        folder: with PNG files, at any depth.

    Raises:
        ValueError: if there are none.
    """

    def __init__(self, folder: Path) -> None:
        self.files = files_by_name(folder, '.png')

    def __call__(self, picture: Path, size: tuple[int, int]) -> np.ndarray | None:
        """Boolean (height, width) of a picture's foreground; None if it has no mask.

        Raises:
            ValueError: if the mask has another size.
        """
        file = self.files.get(picture.stem)
        if file is None:
            return None
        with Image.open(file) as image:
            mask = np.asarray(image)
        if mask.shape != size:
            raise ValueError(f'mask {file} of shape {mask.shape} for a picture of {size}: '
                             'expected one number a pixel, and the same height and width')
        return mask > 0 if mask.any() else None


def files_by_name(folder: Path, suffix: str) -> Mapping[str, Path]:
    """Files of a kind below a folder, by name without suffix.

    Raises:
        ValueError: if there are none, or two of one name.
    """
    files: dict[str, Path] = {}
    for path in sorted(Path(folder).rglob(f'*{suffix}')):
        if path.stem in files:
            raise ValueError(f'{path} and {files[path.stem]} have one name: pictures are found by '
                             'it, so each may occur once')
        files[path.stem] = path
    if not files:
        raise ValueError(f'no {suffix} files below {folder}: give the folder of the annotations')
    return files
