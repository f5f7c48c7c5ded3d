"""Pictures in a folder, and label maps beside them, brought to one size."""
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset
from torchvision.transforms.v2 import InterpolationMode
from torchvision.transforms.v2 import functional as transforms

SUFFIXES = {'.bmp', '.jpeg', '.jpg', '.png', '.webp'}


class PictureFolder(Dataset):
    """Pictures (3, H, W) in [0, 1], RGB, in the order of their paths.

    Each is scaled until it covers (H, W), then cropped at its centre.

    Args:
        folder: pictures in it and below it, however deep.
        size: (H, W) in pixels.
        masks: folder of label maps, PNG, under the same relative paths.
        limit: at most so many pictures, evenly spaced in their order.

    Raises:
        ValueError: if there are no pictures, or a picture has no label map.
    """

    def __init__(self, folder: str | Path, size: tuple[int, int],
                 masks: str | Path | None = None, limit: int | None = None) -> None:
        self.folder = Path(folder)
        self.size = size
        self.masks = None if masks is None else Path(masks)
        paths = sorted(path for path in self.folder.rglob('*') if path.suffix.lower() in SUFFIXES)
        if not paths:
            raise ValueError(f'{folder} holds no pictures ({", ".join(sorted(SUFFIXES))}): give '
                             'the folder that they are in or below')
        self.paths = paths = [paths[number] for number in evenly_spaced(len(paths), limit)]
        if self.masks is not None:
            lacking = [path for path in paths if not self.mask_path(path).is_file()]
            if lacking:
                raise ValueError(f'{lacking[0]} has no label map {self.mask_path(lacking[0])} '
                                 f'({len(lacking)} of {len(paths)} pictures have none)')

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Tensor:
        """Raises:
            ValueError: if the picture cannot be read.
        """
        with opened(self.paths[index]) as image:
            pixels = torch.from_numpy(np.array(image.convert('RGB')))
        picture = cover(pixels.permute(2, 0, 1), self.size, InterpolationMode.BILINEAR)
        return picture.float() / 255

    def mask_path(self, picture: Path) -> Path:
        return (self.masks / picture.relative_to(self.folder)).with_suffix('.png')

    def mask(self, index: int) -> Tensor:
        """Label map (H, W) of a picture, integers.

        Raises:
            ValueError: if it cannot be read, has several channels, or another size than its
                picture.
        """
        path = self.mask_path(self.paths[index])
        with opened(path) as image, opened(self.paths[index]) as picture:
            if image.size != picture.size:
                raise ValueError(f'label map {path} is {image.height} x {image.width}, but its '
                                 f'picture {picture.height} x {picture.width}: pair each picture '
                                 'with its own label map, of the same size')
            labels = torch.from_numpy(np.array(image)).long()
        if labels.ndim != 2:
            raise ValueError(f'{path} has {labels.shape[2]} channels: expected label numbers, one '
                             'channel')
        return cover(labels[None], self.size, InterpolationMode.NEAREST_EXACT)[0]


@contextmanager
def opened(path: Path) -> Iterator[Image.Image]:
    """An image file, wholly read.

    Raises:
        ValueError: if it cannot be read.
    """
    try:
        with Image.open(path) as image:
            image.load()
    except (OSError, SyntaxError, ValueError, EOFError, Image.DecompressionBombError) as error:
        raise ValueError(f'{path} cannot be read ({type(error).__name__}): repair the file, or '
                         'take it out of the folder') from error
    yield image


def to_pixels(picture: Tensor) -> np.ndarray:
    """Bytes (H, W, 3) of a picture (3, H, W) in [0, 1]."""
    return (picture.clamp(0, 1) * 255).round().byte().movedim(0, -1).cpu().numpy()


def evenly_spaced(length: int, limit: int | None) -> list[int]:
    """Places of at most ``limit`` things among ``length``; all for None or 0."""
    count = min(limit or length, length)
    return [number * length // count for number in range(count)]


def cover(image: Tensor, size: tuple[int, int], interpolation: InterpolationMode) -> Tensor:
    """Scale (C, h, w) until it covers a size (H, W), and crop that at its centre."""
    scale = max(wanted / side for wanted, side in zip(size, image.shape[-2:]))
    scaled = [max(math.floor(side * scale + 0.5), wanted)
              for wanted, side in zip(size, image.shape[-2:])]
    return transforms.center_crop(transforms.resize(image, scaled, interpolation), list(size))
