"""The images of a folder, as a timm model wants them."""
import torch
from timm.data import ImageDataset, create_transform, resolve_model_data_config
from torch import Tensor, nn
from torch.utils.data import DataLoader, Subset

from .picture_folder import evenly_spaced


def image_batches(model: nn.Module, folder: str, num_images: int | None, batch_size: int
                  ) -> DataLoader:
    """Batches (B, 3, height, width) of a folder's images, evenly spaced over their sorted paths,
    resized, cropped and normalised as the model was trained.

    Raises:
        ValueError: if the folder holds no images.
    """
    config = resolve_model_data_config(model, dict(input_size=(3, *model.patch_embed.img_size)))
    try:
        dataset = ImageDataset(folder, transform=create_transform(**config))
    except (AssertionError, RuntimeError) as error:  # no such folder, or nothing in it
        raise ValueError(f'no images below {folder}: give a folder of .jpg or .png files'
                         ) from error
    chosen = Subset(dataset, evenly_spaced(len(dataset), num_images))
    return DataLoader(chosen, batch_size=batch_size, collate_fn=collate)


def collate(samples: list[tuple[Tensor, int]]) -> Tensor:
    """The images of a batch, without their labels."""
    return torch.stack([image for image, _ in samples])
