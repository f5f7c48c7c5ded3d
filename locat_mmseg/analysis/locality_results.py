"""What was measured of a model's locality: per layer and head, ready for JSON."""
import math
from dataclasses import asdict, dataclass
from typing import Any

import torch

from ..layers import Grid

HeadValues = list[float]


@dataclass
class LayerLocality:
    """The measures of one attention layer: a number a head, mean over images and queries.

    Attributes:
        name: of the layer in its timm model.
        depth: 0 for the first.
        windowed: whether it attends inside windows; its distances then are those inside the
            window, and compare only with other windowed layers.
        grids: (h, w) of the images seen (of the windows).
        distance_diagonal: mean attention distance over the grid's (window's) diagonal, 0 to 1.
        distance_patches: the same in patches.
        distance_pixels: the same in pixels of the model's input.
        entropy: normalised, 0 (one patch) to 1 (uniform).
        class_share: attention that patches give to class tokens, 0 to 1; None without one.
        register_share: to register tokens; None without one.
        gaussian_sigma_rows: width of LocAt's Gaussian along the rows, in patches; None, as all
            that follow, without GAug.
        gaussian_sigma_cols: along the columns, in patches.
        gaussian_alpha: its strength.
        gaussian_distance_diagonal: mean distance under the Gaussian alone, over the diagonal.
    """
    name: str
    depth: int
    windowed: bool
    grids: list[Grid]
    distance_diagonal: HeadValues
    distance_patches: HeadValues
    distance_pixels: HeadValues
    entropy: HeadValues
    class_share: HeadValues | None = None
    register_share: HeadValues | None = None
    gaussian_sigma_rows: HeadValues | None = None
    gaussian_sigma_cols: HeadValues | None = None
    gaussian_alpha: HeadValues | None = None
    gaussian_distance_diagonal: HeadValues | None = None


@dataclass
class Locality:
    """The measures of a model.

    Attributes:
        num_images: on which they were taken.
        layers: first layer first.
        class_alignment: mean cosine of patch tokens with the class token after each block; None
            without a class token.
        receptive_area: share of the image that makes up half of the central feature after each
            block (Swin: stage), see `receptive_areas`; None where it was not asked for.
    """
    num_images: int
    layers: list[LayerLocality]
    class_alignment: list[float] | None = None
    receptive_area: list[float] | None = None

    @property
    def min_distance_diagonal(self) -> float:
        """Smallest mean attention distance over all layers and heads, over the diagonal."""
        values = [value for layer in self.layers for value in layer.distance_diagonal]
        return torch.tensor(values, dtype=torch.float64).min().item()  # min() may pass over NaN

    def to_dict(self) -> dict[str, Any]:
        """For JSON: numbers that are not finite (a diverged model's) become None."""
        return finite(dict(asdict(self), min_distance_diagonal=self.min_distance_diagonal))

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> 'Locality':
        """What `to_dict` gave; None among numbers becomes NaN, other entries are left aside."""
        layers = [LayerLocality(**{
            name: [math.nan if item is None else item for item in value]
            if isinstance(value, list) else value for name, value in layer.items()})
            for layer in values['layers']]
        return cls(values['num_images'], layers, values.get('class_alignment'),
                   values.get('receptive_area'))


def finite(value: Any) -> Any:
    """``value`` with None for every number in it that JSON cannot hold."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
