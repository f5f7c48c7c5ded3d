"""How predictions of several models hold when pictures change: the same pictures, side by side.

Models are compared by their score on changed pictures over their own score on whole ones
(normalised, in percent), as in "What do Vision Transformers Learn?" (arXiv 2212.06727).
"""
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from .input_changes import Change
from .picture_model import PictureModel
from .scores import ClassScores, MapScores

Batch = tuple[Tensor, Tensor]
Row = dict[str, str | int | float | None]
Scores = ClassScores | MapScores
NORMALISED = ('top1', 'top5', 'mIoU', 'aAcc')
WHOLE = 'whole'


@dataclass(frozen=True)
class Probed:
    """A model to be compared.

    Attributes:
        name: of the model.
        model: that takes pictures in [0, 1].
        size: (height, width) that pictures are resized to for it, in pixels; None: as they come.
    """
    name: str
    model: PictureModel
    size: tuple[int, int] | None = None

    def fit(self, pictures: Tensor) -> Tensor:
        """Pictures (B, 3, H, W) on the model's device, in its size."""
        pictures = pictures.to(self.model.device)
        if self.size in (None, tuple(pictures.shape[-2:])):
            return pictures
        return F.interpolate(pictures, self.size, mode='bilinear', antialias=True).clamp(0, 1)


@torch.inference_mode()
def score_changes(models: Sequence[Probed], batches: Iterable[Batch], changes: Sequence[Change],
                  new_scores: Callable[[], Scores] = ClassScores, void: int = 255,
                  report: Callable[[int], None] | None = None) -> list[Row]:
    """Score models on whole and on changed pictures, in one pass over the data.

    Args:
        models: each on its device.
        batches: pictures (B, 3, H, W) in [0, 1] and labels (B,), or label maps (B, H', W'), which
            are brought to the size in which the model sees the pictures.
        changes: applied one at a time, to pictures in the model's size.
        new_scores: makes `ClassScores`, or `MapScores` for label maps.
        void: label of pixels that do not count.
        report: called after each batch with the number of images that are done.

    Returns:
        Rows of ``model``, ``change`` (WHOLE for none), ``value`` and scores, and of each score in
        `NORMALISED` its percentage of the same model's score on whole pictures.

    Raises:
        ValueError: if there are no pictures, or they do not fit a model or a change.
    """
    scores = {(probed.name, change): new_scores() for probed in models
              for change in (None, *changes)}
    if len(scores) < len(models) * (1 + len(changes)):
        raise ValueError(f'models {[probed.name for probed in models]}: expected names and changes '
                         'that differ')
    for pictures, labels in batches:
        for probed in models:
            fitted = probed.fit(pictures)
            truth = fit_labels(labels.to(fitted.device), tuple(fitted.shape[-2:]))
            for change in (None, *changes):
                seen, wanted = apply(change, fitted, truth, void)
                scores[probed.name, change].update(probed.model(seen), wanted)
        if report is not None:
            report(scores[models[0].name, None].count)
    rows = [dict(model=name, change=WHOLE if change is None else change.kind,
                 value=None if change is None else change.value, **score.result())
            for (name, change), score in scores.items()]
    return normalise(rows)


def fit_labels(labels: Tensor, size: tuple[int, int]) -> Tensor:
    """Label maps (B, H, W) in another size, by nearest pixel; labels (B,) as they are."""
    if labels.ndim == 1 or tuple(labels.shape[-2:]) == size:
        return labels
    return F.interpolate(labels[:, None].float(), size, mode='nearest-exact')[:, 0].long()


def apply(change: Change | None, pictures: Tensor, labels: Tensor, void: int = 255) -> Batch:
    """Changed pictures, and their labels, which move along if they are maps."""
    if change is None:
        return pictures, labels
    if change.labels is not None and labels.ndim == 3:
        labels = change.labels(labels, void)
    return change.pictures(pictures), labels


def normalise(rows: Sequence[Row]) -> list[Row]:
    """Rows with ``normalised_...`` scores: percent of what the model scores on whole pictures.

    None where that is 0.
    """
    whole = {row['model']: row for row in rows if row['change'] == WHOLE}
    return [{**row, **{f'normalised_{name}': ratio(row[name], whole[row['model']][name])
                       for name in NORMALISED if name in row}} for row in rows]


def ratio(value: float, whole: float) -> float | None:
    """Percentage of a whole; None of nothing."""
    return 100 * value / whole if whole else None


@torch.inference_mode()
def score_parts(models: Sequence[Probed], parts: Mapping[str, Iterable[Batch]],
                report: Callable[[int], None] | None = None) -> list[Row]:
    """Score classifiers on whole pictures, their foreground, and their background.

    Args:
        models: each on its device.
        parts: pictures (B, 3, H, W) in [0, 1] and labels (B,), by part (`visible_part.PARTS`), of
            the same images.
        report: called after each batch with the number of pictures that are done, of all parts.

    Returns:
        Rows as those of `score_changes`; ``change`` is the part.

    Raises:
        ValueError: if the parts do not have the same number of pictures.
    """
    rows, counts, done = [], {}, 0
    for part, batches in parts.items():
        scores = {probed.name: ClassScores() for probed in models}
        for pictures, labels in batches:
            for probed in models:
                logits = probed.model(probed.fit(pictures))
                scores[probed.name].update(logits, labels.to(logits.device))
            done += len(labels)
            if report is not None:
                report(done)
        rows += [dict(model=name, change=part, value=None, **score.result())
                 for name, score in scores.items()]
        counts[part] = scores[models[0].name].count
    if len(set(counts.values())) > 1:
        raise ValueError(f'the parts have {counts} pictures: expected the same images in each')
    return normalise(sorted(rows, key=lambda row: [probed.name for probed in models].index(
        row['model'])))


@torch.inference_mode()
def score_map_parts(models: Sequence[Probed], batches: Iterable[Batch], num_classes: int,
                    foreground: Sequence[int], void: int = 255,
                    report: Callable[[int], None] | None = None) -> list[Row]:
    """Score segmentation models where only some classes, or all but these, are visible.

    The other pixels are black, and do not count; what a model scores with everything visible is
    measured on the same pixels, so that the two differ by what it sees around them.

    Args:
        models: each on its device.
        batches: pictures (B, 3, H, W) in [0, 1] and label maps (B, H', W').
        num_classes: of the labels.
        foreground: labels of the classes in the foreground; the rest is background. Void pixels
            are in neither, and black in both.
        void: label of pixels that do not count.
        report: as in `score_changes`.

    Returns:
        Rows of ``model``, ``change`` ('foreground' or 'background') and scores: ``mIoU`` of the
        classes of this part with the rest black, ``whole_mIoU`` with everything visible, and
        ``normalised_mIoU``; the same for ``aAcc``.

    Raises:
        ValueError: if one of the parts has no class, or a class is unknown.
    """
    background = sorted(set(range(num_classes)) - set(foreground))
    if not foreground or not background or max(foreground) >= num_classes or min(foreground) < 0:
        raise ValueError(f'foreground {list(foreground)} of {num_classes} classes: expected some '
                         f'labels from 0 to {num_classes - 1}, but not all')
    classes = dict(foreground=sorted(set(foreground)), background=background)
    scores = {(probed.name, part, seen): MapScores(num_classes, void, classes[part])
              for probed in models for part in classes for seen in ('part', WHOLE)}
    for pictures, labels in batches:
        for probed in models:
            fitted = probed.fit(pictures)
            truth = fit_labels(labels.to(fitted.device), tuple(fitted.shape[-2:]))
            whole = probed.model(fitted)
            for part, chosen in classes.items():
                visible = torch.isin(truth, torch.tensor(chosen, device=truth.device)) \
                    & (truth != void)
                wanted = truth.masked_fill(~visible, void)
                logits = probed.model(fitted * visible[:, None])
                scores[probed.name, part, 'part'].update(logits, wanted)
                scores[probed.name, part, WHOLE].update(whole, wanted)
        if report is not None:
            report(scores[models[0].name, 'foreground', WHOLE].count)
    rows = []
    for probed in models:
        for part in classes:
            hidden, whole = (scores[probed.name, part, seen].result() for seen in ('part', WHOLE))
            rows.append(dict(model=probed.name, change=part, value=None, **hidden,
                             **{f'whole_{name}': value for name, value in whole.items()},
                             **{f'normalised_{name}': ratio(hidden[name], whole[name])
                                for name in hidden}))
    return rows


def confounders(models: Sequence[Mapping], divided_by: str) -> list[str]:
    """What else differs, beside the architecture, when foreground and background are compared.

    Args:
        models: of each its ``name``, ``weights``, ``parameters`` and ``size``.
        divided_by: 'boxes', 'masks' or 'classes'.

    Returns:
        Sentences, to be printed with the table.
    """
    def each(key: str) -> str:
        return ', '.join(f'{model["name"]} {model[key]}' for model in models)

    lines = [f'weights, and with them data and recipe of training: {each("weights")}',
             f'parameters: {each("parameters")}',
             f'input size (None: as the data comes): {each("size")}',
             'black areas occur in no training image: all models lose by them, too']
    if divided_by == 'boxes':
        lines += ['boxes are rectangles: they hold some background, and their outline stays in '
                  'the background as a black hole',
                  "ImageNet's boxes are those of training images, on which a model that was "
                  'trained on them scores higher than on new ones']
    else:
        lines.append('masks are exact: their outline, the shape of the object, stays visible in '
                     'the background')
    return lines
