"""A folder of visualised features that can be continued, and its contact sheet.

Each feature has a PNG and, written after it, a JSON with its settings and activations.
"""
import json
from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from PIL import Image
from torch import Tensor
from tqdm import tqdm

from .feature_hooks import check_features
from .feature_layers import FeatureLayer
from .feature_vis import Recipe, maximize_features
from .picture_folder import to_pixels
from .picture_model import PictureModel
from .run_record import check_target, write_json
from .run_settings import Settings, check_same


class FeatureGrid:
    """Pictures by layer and feature, in a folder.

    Args:
        folder: made if it is not there.
        settings: of the run, what a picture depends on beside its layer and feature.
        redo: make anew what was made with other settings, instead of refusing it.

    Raises:
        ValueError: if the folder is a file, or inside one.
    """

    def __init__(self, folder: Path, settings: Settings, redo: bool = False) -> None:
        self.folder = Path(folder)
        self.settings = json.loads(json.dumps(settings))  # tuples become lists, as in the files
        self.redo = redo
        check_target(self.folder / 'sheet.png')
        self.folder.mkdir(parents=True, exist_ok=True)

    def missing(self, layer: int, features: Sequence[int]) -> list[int]:
        """The features of a layer that are still to be made.

        Raises:
            ValueError: if one was made with other settings, or its note cannot be read, unless
                ``redo``.
        """
        return [feature for feature in features if not self._is_done(layer, feature)]

    def save(self, layer: int, feature: int, picture: Tensor, record: Settings) -> None:
        """Write a picture (3, H, W) in [0, 1], and what is to be noted of it."""
        path = self.path(layer, feature)
        path.with_suffix('.json').unlink(missing_ok=True)  # never beside another picture
        Image.fromarray(to_pixels(picture)).save(path)
        note = dict(layer=layer, feature=feature, **record, settings=self.settings)
        write_json(path.with_suffix('.json'), note)

    def path(self, layer: int, feature: int) -> Path:
        return self.folder / f'layer{layer:02d}_feature{feature:05d}.png'

    def record(self, layer: int, feature: int) -> Settings:
        return json.loads(self.path(layer, feature).with_suffix('.json').read_text())

    def draw_sheet(self, layers: Sequence[int], features: Sequence[int], names: Sequence[str],
                   path: Path) -> None:
        """Draw the pictures, a row for each layer (called by ``names``), a column a feature."""
        figure, axes = plt.subplots(len(layers), len(features), squeeze=False, layout='constrained',
                                    figsize=(1.7 * len(features) + 1, 1.9 * len(layers)))
        for row, layer, name in zip(axes, layers, names, strict=True):
            for axis, feature in zip(row, features):
                axis.imshow(plt.imread(self.path(layer, feature)))
                activation = self.record(layer, feature)['activation']
                axis.set_title(f'{feature}: {activation:.2f}', fontsize=8)
                axis.set(xticks=[], yticks=[])
            row[0].set_ylabel(name, fontsize=8)
        figure.supxlabel('feature: mean activation of its picture', fontsize=8)
        figure.savefig(path, dpi=150)
        plt.close(figure)

    def _is_done(self, layer: int, feature: int) -> bool:
        path = self.path(layer, feature)
        note = path.with_suffix('.json')
        if not (note.is_file() and path.is_file()):
            return False
        try:
            check_same(read_settings(note), self.settings, note)
        except ValueError:
            if self.redo:
                return False
            raise
        return True


def read_settings(note: Path) -> Settings:
    """The settings of a picture, from its note.

    Raises:
        ValueError: if it is none.
    """
    try:
        return json.loads(note.read_text())['settings']
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f'{note} is no note of a picture ({type(error).__name__}): remove it, or '
                         'give --redo to make the picture anew') from error


def fill_grid(grid: FeatureGrid, model: PictureModel, layers: Sequence[FeatureLayer],
              numbers: Sequence[int], features: Sequence[int], recipe: Recipe,
              size: tuple[int, int], seed: int = 0, batch: int = 4) -> None:
    """Make the missing pictures of a grid, a batch of features at a time, with progress bars.

    Args:
        grid: to fill.
        model: on the device to work on.
        layers: from `feature_layers` of this model.
        numbers: of the layers whose features are wanted.
        features: numbers of the features, the same in every layer.
        recipe, size, seed: of `maximize_features`.
        batch: features optimised at once.

    Raises:
        ValueError: as `FeatureGrid.missing`, before any work, and `maximize_features`.
    """
    check_features(model, [layers[number] for number in numbers], features, size)
    missing = {number: grid.missing(number, features) for number in numbers}
    for number, wanted in missing.items():
        for start in range(0, len(wanted), batch):
            chosen = wanted[start:start + batch]
            with tqdm(total=recipe.steps, desc=f'{layers[number].name} {chosen}') as bar:
                def report(step: int, activations: Tensor, bar=bar) -> None:
                    bar.set_postfix_str(' '.join(f'{a:.3f}' for a in activations.tolist()))
                    bar.update()
                made = maximize_features(model, layers[number], chosen, size, recipe, seed, report)
            for i, feature in enumerate(chosen):
                grid.save(number, feature, made.pictures[i],
                          dict(name=layers[number].name, **record_of(
                              made.activations[i], made.start[i], made.history[:, i])))


def record_of(activation: Tensor, start: Tensor, history: Tensor, every: int = 20) -> Settings:
    """What is noted of a picture: its activation, that of the initial noise, and the curve of the
    augmented copies, every few steps and at the end."""
    last = torch.tensor([len(history) - 1])
    steps = torch.unique(torch.cat([torch.arange(0, len(history), every), last]))
    return dict(activation=activation.item(), start=start.item(),
                curve={int(s): round(history[s].item(), 5) for s in steps})
