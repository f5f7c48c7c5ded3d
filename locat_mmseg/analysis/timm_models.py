"""A timm model by name, plain or with GAug, ready to be looked at."""
from typing import Any

import timm
from timm.data import resolve_model_data_config
from timm.models import get_pretrained_cfg
from timm.models.eva import Eva
from timm.models.swin_transformer import SwinTransformer
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from ..addon import add_gaug, load_weights, read_weights
from ..addon.foreign_weights import StateDict
from ..addon.timm_names import check_timm_name
from ..addon.weight_sources import UnreadableCheckpoint, UntrustedCheckpoint
from .picture_model import PictureModel

PRETRAINED, RANDOM = 'pretrained', 'random'
DYNAMIC = (VisionTransformer, Eva, SwinTransformer)


def load_timm(name: str, weights: str = PRETRAINED, **kwargs: Any) -> PictureModel:
    """A timm model with its classifier and its normalisation; arguments and errors as in
    `timm_model`."""
    model = timm_model(name, weights, **kwargs)
    data = resolve_model_data_config(model)
    return PictureModel(model, data['mean'], data['std'], size=data['input_size'][1:])


def timm_model(name: str, weights: str = PRETRAINED, classifier: bool = True, **kwargs: Any
               ) -> nn.Module:
    """Build a timm model with its weights, in evaluation mode.

    A ViT, EVA or Swin takes images of any size, the other families those that they were built
    for. Weights whose names include GAug's make the model a LocAt model.

    Args:
        name: of `timm.create_model`, with or without a tag.
        weights: what `read_weights` takes, such as a file in timm's names; 'pretrained' for timm's
            own (a download), or 'random'.
        classifier: False leaves it out.
        **kwargs: of `timm.create_model`, such as ``num_classes``, which a file tells by itself.

    Raises:
        ValueError: if there is no such model, or the weights cannot be had or do not fit.
    """
    check_timm_name(name)
    state_dict = None if weights in (PRETRAINED, RANDOM) else read_named(weights)
    if not classifier:
        kwargs['num_classes'] = 0
        if state_dict is not None:
            state_dict = {key: weight for key, weight in state_dict.items()
                          if key.rpartition('.')[0] not in classifiers_of(name)}
    elif state_dict is not None:
        kwargs = {'num_classes': num_classes_of(name, state_dict), **kwargs}
    model = create(name, pretrained=weights == PRETRAINED, **kwargs)
    if state_dict is not None:
        if any('.gaug.' in key for key in state_dict):
            add_gaug(model)
        try:
            load_weights(model, state_dict)
        except ValueError as error:
            raise ValueError(f'{weights}: {error}') from error
    return model.eval()


def create(name: str, pretrained: bool, **kwargs: Any) -> nn.Module:
    """The timm model, taking images of any size if its family can.

    Raises:
        ValueError: if the weights cannot be fetched.
    """
    try:
        try:
            model = timm.create_model(name, pretrained, dynamic_img_size=True, **kwargs)
        except TypeError:  # this family has no such argument: CoaT, ConViT, PiT, Twins, CNNs
            model = timm.create_model(name, pretrained, **kwargs)
    except (OSError, RuntimeError) as error:
        if not pretrained:
            raise
        raise ValueError(f'the pretrained weights of timm model {name} cannot be had ({error}): '
                         f'give weights as a file, or {RANDOM!r}') from error
    embed = getattr(model, 'patch_embed', None)
    if hasattr(embed, 'dynamic_img_pad'):
        embed.dynamic_img_pad = True
    if isinstance(model, DYNAMIC):
        embed.strict_img_size = False
    return model


def read_named(weights: str) -> StateDict:
    """The weights that a command line names.

    Raises:
        ValueError: if they cannot be read, for whatever reason.
    """
    try:
        return read_weights(weights)
    except (UntrustedCheckpoint, UnreadableCheckpoint):
        raise
    except Exception as error:  # no such file, no network, or broken in any way
        raise ValueError(f'weights {weights} cannot be read ({type(error).__name__}: {error}); '
                         f'expected a file in the names of timm, {PRETRAINED!r} or {RANDOM!r}'
                         ) from error


def classifiers_of(name: str) -> tuple[str, ...]:
    """Modules of a timm model that classify; a distilled one has two."""
    cfg = get_pretrained_cfg(name)
    found = cfg.classifier if cfg is not None else 'head'
    return (found, ) if isinstance(found, str) else tuple(found or ())


def with_classifier(name: str, model: nn.Module, weight: Tensor, bias: Tensor) -> StateDict:
    """Weights of a timm model with another linear classifier, in timm's names.

    `timm_model` takes them, written to a file, as its ``weights``.

    Args:
        name: of `timm.create_model`, with or without a tag.
        model: built by that name, with or without a classifier.
        weight, bias: (K, C) and (K,), on the features of `features.pooled_features`.

    Raises:
        ValueError: if the model has none or several classifiers.
    """
    places = classifiers_of(name)
    if len(places) != 1:
        raise ValueError(f'{name} has {len(places)} classifiers ({", ".join(places) or "-"}): '
                         'expected a model with one, whose place a linear one can take')
    backbone = {key: value for key, value in model.state_dict().items()
                if key.rpartition('.')[0] not in places}
    return {**backbone, f'{places[0]}.weight': weight, f'{places[0]}.bias': bias}


def num_classes_of(name: str, state_dict: StateDict) -> int:
    """Number of classes of a file's classifier; 0 if it has none."""
    for classifier in classifiers_of(name)[:1]:
        if f'{classifier}.weight' in state_dict:
            return len(state_dict[f'{classifier}.weight'])
    return 0
