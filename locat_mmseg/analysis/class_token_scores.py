"""The table of the class-token experiments: accuracy, or mIoU, with tokens separated or left out.

See `class_token` for the experiments and `token_readout` for the readouts. With patch refinement
(PRR) there is one more layer in which tokens meet, the last one.
"""
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from .class_token import (CLASS, check_layer, check_separable, class_token_only, isolated,
                          token_groups)
from .picture_model import PictureModel
from .scores import ClassScores, MapScores
from .token_readout import TokenReadout, grid_of

Batch = tuple[Tensor, Tensor]
Report = Callable[[int], None]
PLAIN, ISOLATED, ONLY = 'plain', 'isolated class token', 'class token only'
EACH = 'each patch alone'


@dataclass
class ClassTokenTable:
    """What the experiments found.

    Attributes:
        rows: one for each experiment and layer: ``experiment``, ``layer`` (None where there is
            none), and the scores.
        heat_maps: scores (h, w) of each patch alone, by name.
        left_out: sentences on what could not be run, and why.
        images: how many were scored.
    """
    rows: list[dict[str, str | int | float | None]]
    heat_maps: dict[str, Tensor] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    images: int = 0


@torch.inference_mode()
def score_class_token(model: PictureModel, batches: Iterable[Batch],
                      layers: Sequence[int] | None = None, patch: tuple[int, int] | None = None,
                      insert: str = 'propagated', registers: str = 'patches',
                      report: Report | None = None) -> ClassTokenTable:
    """All class-token experiments that a classifier allows, in one pass over labelled pictures.

    Args:
        model: a classifier of a ViT, on the device to work on.
        batches: pictures (B, 3, H, W) in [0, 1], all of one size, and labels (B,).
        layers: L of the separated class token; by default all, from 0 to the depth.
        patch: (row, column) of the single patch; by default the middle one.
        insert, registers: of `class_token.isolated`.
        report: called after each batch with the number of images that are done.

    Returns:
        Of each patch alone the mean over the positions, and the best position of each score.

    Raises:
        ValueError: if an argument is out of range, or pictures and labels do not fit the model.
    """
    readout = TokenReadout(model)
    separable, left_out = what_applies(readout)
    layers = check_layers(layers, readout.depth) if separable else []
    scores: dict[tuple[str, int | None], ClassScores] = {}
    grid: tuple[int, int] | None = None

    def add(experiment: str, layer: int | None, logits: Tensor) -> None:
        scores.setdefault((experiment, layer), ClassScores()).update(logits, labels)

    for pictures, labels in batches:
        pictures, labels = pictures.to(model.device), labels.to(model.device)
        if grid not in (None, grid_of(model, pictures)):
            raise ValueError(f'pictures of {grid} and of {grid_of(model, pictures)} patches: '
                             'positions can be compared in pictures of one size only')
        grid = grid_of(model, pictures)
        logits, tokens = readout(pictures)
        add(PLAIN, None, logits)
        if readout.reads_vectors:
            for name, chosen in token_choices(readout, tokens, grid, patch).items():
                add(name, None, readout.vector_head(chosen))
        for layer in layers:
            add(ISOLATED, layer, isolated_logits(readout, pictures, layer, insert, registers))
            add(ONLY, layer, only_logits(readout, pictures, layer, registers))
        if report is not None:
            report(scores[PLAIN, None].count)
    if not scores:
        raise ValueError('no pictures: expected at least one batch')
    return make_table(scores, grid, left_out)


def what_applies(readout: TokenReadout) -> tuple[bool, list[str]]:
    """Whether the class token can be separated, and sentences on what cannot be run."""
    left_out = []
    separable = readout.reads_class_token
    if separable:
        check_separable(readout.model.core)
    else:
        left_out.append(f'{ISOLATED}, {ONLY}: the classifier pools patches, no class token')
    if not readout.reads_vectors:
        left_out.append(f'means and single patches: the classifier reads '
                        f'{readout.num_class_tokens} tokens joined to one vector')
    return separable, left_out


def check_layers(layers: Sequence[int] | None, depth: int) -> list[int]:
    """Layers from 0 to the depth; all of them for None."""
    layers = list(range(depth + 1) if layers is None else layers)
    for layer in layers:
        check_layer(layer, depth)
    return layers


def token_choices(readout: TokenReadout, tokens: Tensor, grid: tuple[int, int],
                  patch: tuple[int, int] | None) -> dict[str, Tensor]:
    """What takes the place of the pooled vector (B, C), by experiment; each patch is (B, n, C)."""
    row, column = patch or (grid[0] // 2, grid[1] // 2)
    if not (0 <= row < grid[0] and 0 <= column < grid[1]):
        raise ValueError(f'patch {(row, column)}: expected a row and a column of the grid {grid}')
    tokens = readout.refined(tokens)
    patches = tokens[:, readout.num_prefix_tokens:]
    class_tokens, registers, _ = tokens.tensor_split(
        [readout.num_class_tokens, readout.num_prefix_tokens], dim=1)
    choices = {'mean of patches': patches.mean(1)}
    if readout.num_class_tokens:
        choices['mean of patches and class token'] = torch.cat([class_tokens, patches], 1).mean(1)
    if registers.shape[1]:
        choices['mean of registers'] = registers.mean(1)
    return {**choices, f'patch {row}, {column} alone': patches[:, row * grid[1] + column],
            EACH: patches}


def isolated_logits(readout: TokenReadout, pictures: Tensor, layer: int, insert: str,
                    registers: str) -> Tensor:
    """Logits with the class token isolated up to a layer, perhaps in the refinement as well."""
    core = readout.model.core
    with isolated(core, min(layer, len(core.blocks)), insert, registers):
        logits, tokens = readout(pictures)
    if layer > len(core.blocks):
        return readout.class_head(tokens)
    return logits


def only_logits(readout: TokenReadout, pictures: Tensor, layer: int, registers: str) -> Tensor:
    """Logits with the class token alone from a layer on, in the refinement as well."""
    core = readout.model.core
    if layer > len(core.blocks):
        return readout(pictures)[0]
    with class_token_only(core, layer, registers):
        tokens = readout(pictures)[1]
    keep = token_groups(core, tokens.shape[1], registers) == CLASS
    return readout.head(tokens[:, keep.to(tokens.device)])


def make_table(scores: dict[tuple[str, int | None], ClassScores], grid: tuple[int, int],
               left_out: list[str]) -> ClassTokenTable:
    """Scores as rows, those of one experiment together."""
    order = list(dict.fromkeys(experiment for experiment, _ in scores))
    rows, heat_maps = [], {}
    for experiment, layer in sorted(scores, key=lambda key: order.index(key[0])):
        score = scores[experiment, layer]
        if experiment != EACH:
            rows.append(dict(experiment=experiment, layer=layer, **score.result()))
            continue
        heat_maps = {name: values.view(grid) for name, values in score.places().items()}
        best = {name: (values.min() if name == 'cross_entropy' else values.max()).item()
                for name, values in heat_maps.items()}
        rows += [dict(experiment=f'{EACH}, average', layer=None, **score.result()),
                 dict(experiment=f'{EACH}, best position', layer=None, **best)]
    return ClassTokenTable(rows, heat_maps, left_out, scores[PLAIN, None].count)


@torch.inference_mode()
def score_isolated_maps(model: PictureModel, batches: Iterable[Batch], num_classes: int,
                        void: int = 255, layers: Sequence[int] | None = None,
                        insert: str = 'propagated', registers: str = 'patches',
                        report: Report | None = None) -> ClassTokenTable:
    """mIoU of a segmentation model whose backbone isolates the class token up to each layer.

    Args:
        model: maps pictures to logit maps, such as a linear probe on a frozen backbone.
        batches: pictures (B, 3, H, W) in [0, 1] and label maps (B, H', W').
        num_classes: of the labels.
        void: label that does not count.
        layers, insert, registers, report: as in `score_class_token`.

    Raises:
        ValueError: as in `score_class_token`.
    """
    check_separable(model.core)
    layers = check_layers(layers, len(model.core.blocks))
    plain = MapScores(num_classes, void)
    scores = {layer: MapScores(num_classes, void) for layer in layers}
    for pictures, labels in batches:
        pictures, labels = pictures.to(model.device), labels.to(model.device)
        plain.update(model(pictures), labels)
        for layer, score in scores.items():
            with isolated(model.core, layer, insert, registers):
                score.update(model(pictures), labels)
        if report is not None:
            report(plain.count)
    rows = [dict(experiment=PLAIN, layer=None, **plain.result())]
    rows += [dict(experiment=ISOLATED, layer=layer, **score.result())
             for layer, score in scores.items()]
    return ClassTokenTable(rows, images=plain.count)
