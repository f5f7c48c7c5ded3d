"""A timm model by name, plain or with GAug, ready to be looked at."""
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import timm
from timm.data import resolve_model_data_config
from timm.models import load_state_dict
from timm.models.eva import Eva
from timm.models.swin_transformer import SwinTransformer
from timm.models.vision_transformer import VisionTransformer
from torch import nn

from ..addon import add_gaug
from ..addon.weights import StateDict, load_weights
from .picture_model import PictureModel

PRETRAINED, RANDOM = 'pretrained', 'random'
DYNAMIC = (VisionTransformer, Eva, SwinTransformer)


def load_timm(name: str, weights: str = PRETRAINED, **kwargs: Any) -> PictureModel:
    """Build a timm model with its weights and its normalisation.

    A ViT, EVA or Swin takes pictures of any size, the other families those that they were built
    for. A file whose keys include GAug's makes the model a LocAt model.

    Args:
        name: of `timm.create_model`.
        weights: a file in timm's names, 'pretrained' for timm's own (a download), or 'random'.
        **kwargs: of `timm.create_model`, such as ``num_classes``, which a file tells by itself.

    Raises:
        ValueError: if there is no such model, or the weights do not fit.
    """
    if not timm.is_model(name.partition('.')[0]):
        similar = get_close_matches(name, timm.list_models(), n=5, cutoff=0.3)
        raise ValueError(f'{name!r} is no model of timm {timm.__version__}; similar names: '
                         f'{", ".join(similar) or "none"}')
    state_dict = None if weights in (PRETRAINED, RANDOM) else read_weights(weights)
    if state_dict is not None:
        kwargs = {'num_classes': num_classes_of(name, state_dict), **kwargs}
    model = create(name, pretrained=weights == PRETRAINED, **kwargs)
    if state_dict is not None:
        fill(model, state_dict, weights)
    data = resolve_model_data_config(model)
    return PictureModel(model, data['mean'], data['std'], size=data['input_size'][1:])


def create(name: str, pretrained: bool, **kwargs: Any) -> nn.Module:
    """The timm model, taking pictures of any size if its family can."""
    dynamic = dict(dynamic_img_size=True)
    try:
        model = timm.create_model(name, pretrained=pretrained, **dynamic, **kwargs)
    except TypeError:  # this family has no such argument: CoaT, ConViT, PiT, Twins, CNNs
        model = timm.create_model(name, pretrained=pretrained, **kwargs)
    except OSError as error:
        raise ValueError(f'the pretrained weights of {name} cannot be fetched ({error}); give a '
                         "file, or weights='random'") from error
    if isinstance(model, DYNAMIC):
        model.patch_embed.strict_img_size = False
        model.patch_embed.dynamic_img_pad = True
    return model


def read_weights(path: str) -> StateDict:
    """The state dict of a file."""
    if not Path(path).is_file():
        raise ValueError(f'weights {path}: no such file; give a file in the names of timm, '
                         f'{PRETRAINED!r} or {RANDOM!r}')
    try:
        return load_state_dict(path)
    except Exception as error:  # broken in any way
        raise ValueError(f'weights {path} cannot be read ({type(error).__name__}: {error}); '
                         'expected a .safetensors or PyTorch file of tensors') from error


def num_classes_of(name: str, state_dict: StateDict) -> int:
    """Number of classes of a file's classifier; 0 if it has none."""
    classifier = timm.get_pretrained_cfg(name)
    classifier = classifier.classifier if classifier else 'head'
    first = classifier if isinstance(classifier, str) else classifier[0]  # distilled: two
    weight = state_dict.get(f'{first}.weight')
    return 0 if weight is None else len(weight)


def fill(model: nn.Module, state_dict: StateDict, path: str) -> None:
    """Load a file strictly, adding GAug first if the file has it."""
    if any('.gaug.' in name for name in state_dict):
        add_gaug(model)
    try:
        if isinstance(model, DYNAMIC):
            load_weights(model, state_dict)
        else:
            model.load_state_dict(state_dict)
    except (ValueError, RuntimeError) as error:
        raise ValueError(f'{path}: {error}') from error
