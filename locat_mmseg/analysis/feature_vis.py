"""Activation maximisation: the picture that a feature of a model responds to most.

x* = argmin_x -E_a[ activation(a(x)) ] + lambda TV(a(x)) over augmentations a (arXiv 2212.06727,
section 3). Each picture has a random generator of its own, so it does not depend on which other
features are optimised in the same batch, except for rounding.
"""
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Generator, Tensor
from torch.optim import Adam
from torch.optim.lr_scheduler import CosineAnnealingLR

from .augmentation_ensemble import augment
from .feature_hooks import FeatureReader, check_features, pool
from .feature_layers import FeatureLayer
from .objectives import OBJECTIVES, REGULARIZERS
from .picture_model import PictureModel


@dataclass(frozen=True)
class Recipe:
    """How pictures are optimised. `PRESETS` has the paper's two.

    Attributes:
        augmentations: names in `augmentation_ensemble.AUGMENTATIONS`, first one first.
        regularizers: weight by name in `objectives.REGULARIZERS`, of the augmented copies.
        objective: name in `objectives.OBJECTIVES`.
        activation_weight: of the objective; negative minimises.
        copies: k, of the ensemble, in each step.
        steps: of Adam; the last has a learning rate of 0.
        lr: learning rate, falling by a cosine. The paper takes 1.0 for CLIP.
    """
    augmentations: tuple[str, ...] = ('jitter', 'scale_shift', 'pixel_noise')
    regularizers: tuple[tuple[str, float], ...] = (('total_variation', 5e-5), )
    objective: str = 'token_mean'
    activation_weight: float = 1.
    copies: int = 8
    steps: int = 401
    lr: float = 0.1


PRESETS = {
    'paper': Recipe(),
    # The published code: another order and noise, and (by a slip of indexing) an eighth of the
    # activation, against ten times the total variation.
    'repository': Recipe(augmentations=('shift_scale', 'channel_noise', 'jitter'),
                         regularizers=(('total_variation', 5e-4), ), activation_weight=1 / 8),
}


@dataclass
class Visualization:
    """Result of `maximize_features`.

    Attributes:
        pictures: (F, 3, H, W) in [0, 1].
        activations: (F,) of the pictures themselves, as `start` of the initial noise.
        history: (steps, F), of the augmented copies, by the objective.
    """
    pictures: Tensor
    activations: Tensor
    start: Tensor
    history: Tensor


def initial_pictures(seeds: Sequence[int], size: tuple[int, int],
                     device: torch.device) -> tuple[Tensor, list[Generator]]:
    """Noise U[0, 1) and a generator for each seed."""
    generators = [Generator(device).manual_seed(seed) for seed in seeds]
    pictures = [torch.rand((3, *size), generator=g, device=device) for g in generators]
    return torch.stack(pictures), generators


def maximize_features(model: PictureModel, layer: FeatureLayer, features: Sequence[int],
                      size: tuple[int, int], recipe: Recipe = PRESETS['paper'], seed: int = 0,
                      report: Callable[[int, Tensor], None] | None = None) -> Visualization:
    """Optimise one picture for each feature of a layer, all of them in one batch.

    Args:
        model: on the device to work on.
        layer: from `feature_layers` of this model; the forward pass stops there.
        features: numbers in the layer. The seed of a picture is ``seed`` plus this number.
        size: (height, width) of the pictures in pixels.
        recipe: how.
        seed: of the random numbers.
        report: called after each step with its number and the activations (F,).

    Raises:
        ValueError: for an unknown name in the recipe or a feature that the layer has not.
    """
    check_recipe(recipe)
    check_features(model, [layer], features, size)
    pictures, generators = initial_pictures([seed + f for f in features], size, model.device)
    reader = FeatureReader(model, [layer])
    start = activations_of(reader, pictures, features)
    pictures.requires_grad_()
    optimizer = Adam([pictures], lr=recipe.lr, betas=(0.5, 0.99), eps=1e-8)
    scheduler = CosineAnnealingLR(optimizer, max(recipe.steps - 1, 1))
    history = []
    for step in range(recipe.steps):
        progress = step / max(recipe.steps - 1, 1)
        copies = torch.stack([
            augment(picture.expand(recipe.copies, -1, -1, -1), recipe.augmentations, g, progress)
            for picture, g in zip(pictures, generators)])
        activations = objective_values(recipe, reader, copies, features)
        loss = -recipe.activation_weight * activations.sum()
        for name, weight in recipe.regularizers:
            loss = loss + weight * sum(REGULARIZERS[name](c) for c in copies)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        with torch.no_grad():
            pictures.clamp_(0, 1)
        history.append(activations.detach())
        if report is not None:
            report(step, history[-1])
    pictures = pictures.detach()
    return Visualization(pictures, activations_of(reader, pictures, features), start,
                         torch.stack(history))


def objective_values(recipe: Recipe, reader: FeatureReader, copies: Tensor,
                     features: Sequence[int]) -> Tensor:
    """The objective (F,) of the augmented copies (F, k, 3, H, W)."""
    objective = OBJECTIVES[recipe.objective]
    values, = reader(copies.flatten(0, 1))
    values = values.unflatten(0, copies.shape[:2])
    return torch.stack([objective(v, f) for v, f in zip(values, features)])


@torch.no_grad()
def activations_of(reader: FeatureReader, pictures: Tensor, features: Sequence[int]) -> Tensor:
    """Token-mean activation (F,) of pictures (F, 3, H, W), each of its own feature."""
    return pool(reader(pictures)[0])[torch.arange(len(features)), torch.tensor(features)]


def check_recipe(recipe: Recipe) -> None:
    """Refuse unknown names and impossible numbers."""
    for kind, given, known in (
            ('objective', [recipe.objective], OBJECTIVES),
            ('regularizer', [name for name, _ in recipe.regularizers], REGULARIZERS)):
        for name in given:
            if name not in known:
                raise ValueError(f'{kind} {name!r}: expected one of {list(known)}')
    if recipe.steps < 1 or recipe.copies < 1:
        raise ValueError(f'steps={recipe.steps}, copies={recipe.copies}: expected at least 1')
