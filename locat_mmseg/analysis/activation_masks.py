"""Where in a picture a feature is active, drawn, and compared with segmentation masks.

Shape legend: k pictures of (H, W) pixels, h x w patches, K classes.
"""
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from matplotlib.figure import Figure
from torch import Tensor

from .feature_hooks import FeatureReader, as_map
from .feature_layers import FeatureLayer
from .picture_model import PictureModel

# Queries, keys and values have a place as well, but a Swin keeps them in the order of its windows.
KINDS_WITH_PLACE = ('hidden', 'block', 'channel')


@torch.no_grad()
def activation_maps(model: PictureModel, layer: FeatureLayer, pictures: Tensor) -> Tensor:
    """Activations (k, h, w, F) of pictures (k, 3, H, W), for a kind in `KINDS_WITH_PLACE`."""
    features, = FeatureReader(model, [layer])(pictures.to(model.device))
    return as_map(features, model.core, tuple(pictures.shape[-2:])).cpu()


def stretch(maps: Tensor) -> Tensor:
    """Each map (..., h, w) to [0, 1] by its minimum and maximum; 0 where they are equal."""
    low = maps.amin((-2, -1), keepdim=True)
    span = maps.amax((-2, -1), keepdim=True) - low
    return torch.where(span > 0, (maps - low) / span.where(span > 0, 1), 0)


def on_pixels(maps: Tensor, size: tuple[int, int]) -> Tensor:
    """Maps (k, h, w) on pixels (k, H, W): each pixel has the value of its patch."""
    rows, columns = (torch.arange(side) * cells // side
                     for side, cells in zip(size, maps.shape[-2:]))
    return maps[:, rows[:, None], columns]


@dataclass
class MaskMatch:
    """How well a feature's activation marks a class.

    Attributes:
        label: of the class that it marks best.
        iou: at the best threshold, one for all pictures.
        threshold: active means at least this.
        share: of the class in these pictures: the IoU of marking everything.
        inside, outside: mean activation in and out of the class.
    """
    label: int
    iou: float
    threshold: float
    share: float
    inside: float
    outside: float


def match_classes(maps: Tensor, labels: Tensor, void: int | None = 255) -> MaskMatch | None:
    """The class that thresholded maps mark best.

    Exact: the IoU on pixels, with maps enlarged by `on_pixels`, at every possible threshold.

    Args:
        maps: activations (k, h, w) of one feature in k pictures.
        labels: label maps (k, H, W) of the same pictures.
        void: a label that does not count; None counts all.

    Returns:
        None, if all pixels are void.
    """
    size = tuple(labels.shape[-2:])
    cells = torch.arange(maps.numel()).view(maps.shape)
    valid = torch.ones_like(labels, dtype=torch.bool) if void is None else labels != void
    if not valid.any():
        return None
    num_classes = int(labels[valid].max()) + 1
    places = on_pixels(cells, size)[valid] * num_classes + labels[valid]
    # Pixels of each class in each patch, patches of the highest activation first.
    counts = torch.bincount(places, minlength=maps.numel() * num_classes).view(-1, num_classes)
    values, order = maps.flatten().sort(descending=True)
    counts = counts[order]
    hits = counts.cumsum(0)
    marked = hits.sum(1, keepdim=True)
    iou = hits / (marked + hits[-1] - hits).clamp(min=1)
    iou[:-1][values[:-1] == values[1:]] = 0  # a threshold cannot part equal activations
    row, label = divmod(int(iou.argmax()), num_classes)
    inside, area = counts[:, label], counts.sum(1)
    rest = area - inside
    return MaskMatch(label, iou[row, label].item(), values[row].item(),
                     (inside.sum() / area.sum()).item(),
                     ((values * inside).sum() / inside.sum()).item(),
                     ((values * rest).sum() / rest.sum().clamp(min=1)).item())


def darkened(pictures: Tensor, maps: Tensor) -> Tensor:
    """Pictures (k, 3, H, W) in [0, 1], darker where a feature's maps (k, h, w) are lower."""
    masks = on_pixels(stretch(maps), tuple(pictures.shape[-2:]))
    return pictures * (0.2 + 0.8 * masks[:, None])


def draw_masks(rows: Sequence[tuple[str, Tensor, Tensor]], path: Path) -> None:
    """Draw pictures, each with its activation mask over it, into an image file.

    Args:
        rows: see `mask_figure`.
        path: of the file.
    """
    mask_figure(rows).savefig(path, dpi=130)


def mask_figure(rows: Sequence[tuple[str, Tensor, Tensor]]) -> Figure:
    """A row of pictures for each feature, each picture with its activation mask beside it.

    Args:
        rows: for each feature a title, pictures (k, 3, H, W), and maps (k, h, w).
    """
    columns = max(len(pictures) for _, pictures, _ in rows)
    height, width = rows[0][1].shape[-2:]
    row_height = max(1.2 * height / width, 0.5)  # inches; a title takes three lines
    figure = Figure((2.4 * columns + 1.5, row_height * len(rows) + 0.2), layout='constrained')
    axes = figure.subplots(len(rows), 2 * columns, squeeze=False)
    for axis in axes.flat:
        axis.set(xticks=[], yticks=[], frame_on=False)
    for row, (title, pictures, maps) in zip(axes, rows):
        for number, pair in enumerate(zip(pictures, darkened(pictures, maps))):
            for axis, picture in zip(row[2 * number:], pair):
                axis.imshow(picture.movedim(0, -1).numpy())
        row[0].set_ylabel(title, fontsize=7, rotation=0, ha='right', va='center')
    return figure
