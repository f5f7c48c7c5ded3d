"""Pictures of maps per layer and head for one chosen patch, models side by side.

Shape legend: L layers, H heads, h*w patches.
"""
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from ..layers import Grid

TILE = 72  # pixels along the longer side of a map
GAP = 4  # pixels between maps
DPI = 100


def save_patch_picture(path: str | Path, image: np.ndarray, patch: Grid,
                       maps: Mapping[str, Sequence[Tensor]], columns: Sequence[str], title: str,
                       limits: tuple[float, float] | None = None) -> None:
    """Draw the image with the patch marked, and beside it each model's maps: a row a layer, a
    column a head.

    Args:
        path: of the picture; its suffix says the format.
        image: (height, width, 3), RGB, 0 to 255.
        patch: (row, column).
        maps: of each model by name, (H, h, w) a layer, all of the same L, H and grid.
        columns: names of the heads.
        title: what the maps show.
        limits: values drawn darkest and brightest; None: in each layer from 0 to the largest of
            all models.

    Raises:
        ValueError: if the models' maps differ in shape.
    """
    shapes = {name: [tuple(layer.shape) for layer in layers] for name, layers in maps.items()}
    if any(shape != next(iter(shapes.values())) for shape in shapes.values()):
        raise ValueError(f'the models have other layers, heads or patches ({shapes}): compare '
                         'models of one size on one image size')
    mosaics = {name: mosaic(layers, layer_limits(maps, limits)) for name, layers in maps.items()}
    height, width = next(iter(mosaics.values())).shape[:2]
    side = height // 2 + 60
    figure = Figure(figsize=((side + len(maps) * (width + 60)) / DPI, (height + 110) / DPI),
                    dpi=DPI, layout='constrained')
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, 1 + len(maps), width_ratios=[side] + [width] * len(maps))
    draw_image(axes[0], image, patch, next(iter(shapes.values()))[0][1:])
    for axis, (name, picture) in zip(axes[1:], mosaics.items()):
        draw_mosaic(axis, picture, len(maps[name]), columns)
        axis.set_title(name)
    figure.suptitle(title)
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def layer_limits(maps: Mapping[str, Sequence[Tensor]], limits: tuple[float, float] | None
                 ) -> list[tuple[float, float]]:
    """Darkest and brightest value of each layer, common to all models."""
    layers = zip(*maps.values())
    return [limits or (0., max(float(layer.max()) for layer in models)) for models in layers]


def mosaic(layers: Sequence[Tensor], limits: Sequence[tuple[float, float]]) -> np.ndarray:
    """The coloured maps of all layers and heads, each as large cells, on white: (y, x, 3)."""
    colour = colormaps['viridis']
    scale = max(1, TILE // max(layers[0].shape[1:]))
    rows = []
    for layer, (low, high) in zip(layers, limits):
        shades = (layer.float().cpu().numpy() - low) / max(high - low, 1e-12)
        tiles = colour(shades)[..., :3].repeat(scale, axis=1).repeat(scale, axis=2)
        tiles = np.pad(tiles, ((0, 0), (0, GAP), (0, GAP), (0, 0)), constant_values=1)
        rows.append(np.concatenate(list(tiles), axis=1))
    return np.concatenate(rows)


def draw_image(axis: Axes, image: np.ndarray, patch: Grid, grid: Grid) -> None:
    """The image, with a frame around the patch."""
    height, width = (side / cells for side, cells in zip(image.shape[:2], grid))
    axis.imshow(image)
    axis.add_patch(Rectangle((patch[1] * width - .5, patch[0] * height - .5), width, height,
                             fill=False, edgecolor='red', linewidth=2))
    axis.set_title(f'patch {patch[0]}, {patch[1]}')
    axis.set_axis_off()


def draw_mosaic(axis: Axes, picture: np.ndarray, num_layers: int, columns: Sequence[str]) -> None:
    """The mosaic, with layers numbered and columns named."""
    row, column = picture.shape[0] / num_layers, picture.shape[1] / len(columns)
    axis.imshow(picture, interpolation='nearest')
    axis.set_yticks([(i + .5) * row for i in range(num_layers)], range(num_layers))
    axis.set_xticks([(i + .5) * column for i in range(len(columns))], columns)
    axis.set_ylabel('layer')
    axis.set_xlabel('head')
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)
