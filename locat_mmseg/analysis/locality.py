"""How local a model's attention is, over a data set: every measure per layer and head.

Distance and entropy follow "Inducing Spatial Locality in Vision Transformers through the Training
Protocol" (arXiv 2605.16390): attention among patches alone, rows renormalised, mean over images
and queries. Dividing the distance by the grid's diagonal is a choice of this package.
"""
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from .locality_meter import LocalityMeter
from .locality_results import Locality
from .receptive_areas import receptive_areas


def measure_locality(model: nn.Module, batches: Iterable[Tensor], field_images: int = 0
                     ) -> Locality:
    """Measure a model on images; its mode and weights stay as they are.

    Args:
        model: a timm ViT, EVA or Swin, plain or with GAug, or what calls one; called as
            ``model(images)`` in evaluation mode.
        batches: of images (B, 3, height, width), normalised, of any sizes that the model takes;
            read once, one batch in memory at a time.
        field_images: on how many images, the first ones, to measure the receptive field too,
            which takes gradients; 0 for none.

    Raises:
        ValueError: if there are no images, or as `capture_attention`.
    """
    device = next(model.parameters()).device
    meter, areas = LocalityMeter(model), []
    with evaluation_mode(model):
        for images in batches:
            images = images.to(device)
            with torch.no_grad(), meter:
                model(images)
            if len(areas) < field_images:
                areas += receptive_areas(model, images[:field_images - len(areas)]).unbind(0)
    result = meter.result()
    if areas:
        result.receptive_area = torch.stack(areas).mean(0).tolist()
    return result


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Evaluation mode, then each module's own mode again: frozen parts may differ from the rest."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, training in modes.items():
            module.training = training
