"""The images of a folder, as a timm model wants them."""
from collections.abc import Callable, Sequence
from pathlib import Path

from PIL import Image
from timm.data import ImageDataset, create_transform, resolve_model_data_config
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from .picture_folder import evenly_spaced, opened


def image_batches(model: nn.Module, folder: str, num_images: int | None, batch_size: int
                  ) -> DataLoader:
    """Batches (B, 3, height, width) of a folder's images, evenly spaced over their sorted paths,
    resized, cropped and normalised as the model was trained.

    Raises:
        ValueError: if the folder holds no images; read, if one of them is broken.
    """
    config = resolve_model_data_config(model, dict(input_size=(3, *model.patch_embed.img_size)))
    try:
        paths = ImageDataset(folder).filenames(absolute=True)
    except (AssertionError, RuntimeError) as error:  # no such folder, or nothing in it
        raise ValueError(f'no images below {folder}: give a folder of .jpg or .png files'
                         ) from error
    chosen = [Path(paths[index]) for index in evenly_spaced(len(paths), num_images)]
    return DataLoader(Images(chosen, create_transform(**config)), batch_size=batch_size)


class Images(Dataset):
    """Image files as a model reads them. timm's own data set passes over those that are broken.

    Args:
        paths: of the files.
        transform: from an RGB image to (3, height, width).
    """

    def __init__(self, paths: Sequence[Path], transform: Callable[[Image.Image], Tensor]) -> None:
        self.paths, self.transform = paths, transform

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Tensor:
        with opened(self.paths[index]) as image:
            return self.transform(image.convert('RGB'))
