"""The most-activating pictures of some features, where in them these are active, and what it marks.

Shape legend: k pictures of (H, W) pixels, h x w patches.
"""
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean

import torch
from torch import Tensor

from .activation_masks import MaskMatch, activation_maps, match_classes
from .feature_layers import FeatureLayer
from .picture_folder import PictureFolder
from .picture_model import PictureModel
from .top_images import StreamingTopK


@dataclass
class FeatureExamples:
    """One feature of a layer.

    Attributes:
        feature: its number.
        value: its mean activation in the first picture.
        pictures: (k, 3, H, W), best first.
        maps: activations (k, h, w).
        match: with the label maps; None without them, or where all is void.
    """
    feature: int
    value: float
    pictures: Tensor
    maps: Tensor
    match: MaskMatch | None = None


def feature_examples(model: PictureModel, layer: FeatureLayer, best: StreamingTopK,
                     features: Sequence[int], pictures: PictureFolder,
                     void: int | None = None) -> list[FeatureExamples]:
    """Look up the best pictures of features, and where they are active.

    Args:
        model: on the device to work on.
        layer: of a kind in `activation_masks.KINDS_WITH_PLACE`.
        best: of this layer.
        features: numbers, which `feature_hooks.check_features` has seen.
        pictures: that ``best`` counts; with ``void`` also their label maps.
        void: label that does not count; None compares with no label maps.
    """
    found = []
    for feature in features:
        indices = [i for i in best.indices[feature].tolist() if i >= 0]
        images = torch.stack([pictures[i] for i in indices])
        maps = activation_maps(model, layer, images)[..., feature]
        match = None if void is None else match_classes(
            maps, torch.stack([pictures.mask(i) for i in indices]), void)
        found.append(FeatureExamples(feature, best.values[feature, 0].item(), images, maps, match))
    return found


def match_rows(layers: dict[str, Sequence[FeatureExamples]]
               ) -> tuple[list[str], list[list[object]]]:
    """Header and rows of a table: how features mark classes, mean over those of each layer."""
    rows = []
    for name, examples in layers.items():
        some = [found.match for found in examples if found.match is not None]
        rows.append([name, len(some), *(
            mean(getattr(match, key) for match in some) if some else None
            for key in ('iou', 'share', 'inside', 'outside'))])
    return ['layer', 'features', 'best IoU', 'IoU of marking everything', 'activation inside',
            'outside'], rows
