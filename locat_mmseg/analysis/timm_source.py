"""A timm model by name and the images of a folder, as that model wants them."""
from difflib import get_close_matches
from pathlib import Path

import timm
import torch
from timm.data import ImageDataset, create_transform, resolve_model_data_config
from timm.models import load_state_dict
from torch import Tensor, nn
from torch.utils.data import DataLoader, Subset

from ..addon import add_gaug
from ..addon.weights import load_weights


def timm_model(name: str, weights: str | None = None, img_size: int | None = None) -> nn.Module:
    """A timm model without its classifier.

    Args:
        name: of `timm.create_model`.
        weights: a file in timm's names; one with GAug's parameters makes the model a LocAt model.
            None fetches timm's own.
        img_size: pixels of a side; by default what the model was trained with.

    Raises:
        ValueError: if there is no such model, or the weights cannot be read or do not fit.
    """
    if not timm.is_model(name):
        close = get_close_matches(name.partition('.')[0], timm.list_models(), n=3)
        raise ValueError(f'timm {timm.__version__} has no model {name!r}; similar: '
                         f'{", ".join(close) or "none"}')
    size = {} if img_size is None else {'img_size': img_size}
    try:
        model = timm.create_model(name, pretrained=weights is None, **size)
    except (OSError, RuntimeError) as error:  # no network, or none were published
        raise ValueError(f'the weights of {name} cannot be fetched ({error}): give a file with '
                         '--weights') from error
    classifier = model.pretrained_cfg['classifier']
    model.reset_classifier(0)
    if weights is not None:
        state_dict = load_file(weights)
        if any('.gaug.' in key for key in state_dict):
            add_gaug(model)
        load_weights(model, state_dict, may_leave={f'{classifier}.weight', f'{classifier}.bias'})
    return model.eval()


def load_file(path: str) -> dict:
    """The state dict in a file.

    Raises:
        ValueError: if there is none.
    """
    if not Path(path).is_file():
        raise ValueError(f'weights {path}: no such file; give a .safetensors or .pth file')
    try:
        return load_state_dict(path)
    except Exception as error:  # broken in any way
        raise ValueError(f'weights {path} cannot be read ({type(error).__name__}: {error}); '
                         'expected a .safetensors or .pth file of tensors') from error


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
    count = min(num_images or len(dataset), len(dataset))
    chosen = Subset(dataset, [number * len(dataset) // count for number in range(count)])
    return DataLoader(chosen, batch_size=batch_size, collate_fn=collate)


def collate(samples: list[tuple[Tensor, int]]) -> Tensor:
    """The images of a batch, without their labels."""
    return torch.stack([image for image, _ in samples])
