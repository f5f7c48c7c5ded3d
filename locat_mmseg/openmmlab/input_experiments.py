"""The experiments with tokens and inputs of models on labelled pictures, with progress bars."""
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..analysis.class_token import check_separable
from ..analysis.class_token_scores import (ClassTokenTable, score_class_token, score_isolated_maps)
from ..analysis.feature_responses import feature_responses
from ..analysis.input_changes import Change
from ..analysis.robustness import (Probed, Row, score_changes, score_map_parts, score_parts)
from ..analysis.scores import ClassScores, MapScores
from ..analysis.token_readout import TokenReadout
from .errors import UserError
from .input_tools import progress
from .labelled_pictures import LabelledPictures


def check_class_token(probed: Probed, has_maps: bool) -> None:
    """Refuse a model on which the class-token experiments cannot be run.

    Args:
        probed: the model.
        has_maps: whether it is to be scored on label maps.

    Raises:
        ValueError: saying which model, and why.
    """
    try:
        if has_maps:
            check_separable(probed.model.core)
        else:
            TokenReadout(probed.model)
    except ValueError as error:
        raise ValueError(f'{probed.name}: {error}') from error


def class_token_table(probed: Probed, data: LabelledPictures, batch: int, workers: int,
                      patch: tuple[int, int] | None = None, **chosen: Any) -> ClassTokenTable:
    """The class-token experiments on one model.

    Args:
        probed: the model.
        data: its labels.
        batch: images at once.
        workers: processes that read images.
        patch: of `score_class_token`, on images with one label each.
        **chosen: layers, insert and registers of `score_class_token`.
    """
    batches = ((probed.fit(pictures), labels) for pictures, labels in data.batches(batch, workers))
    with progress(len(data), probed.name) as report:
        if data.has_maps:
            return score_isolated_maps(probed.model, batches, data.num_classes, data.void,
                                       **chosen, report=report)
        return score_class_token(probed.model, batches, patch=patch, **chosen, report=report)


def changes_table(models: Sequence[Probed], data: LabelledPictures, changes: Sequence[Change],
                  batch: int, workers: int) -> list[Row]:
    """Scores of models on whole and on changed pictures."""
    new_scores: Callable = (lambda: MapScores(data.num_classes, data.void)) if data.has_maps \
        else ClassScores
    with progress(len(data)) as report:
        return score_changes(models, data.batches(batch, workers), changes, new_scores, data.void,
                             report)


def responses_table(models: Sequence[Probed], data: LabelledPictures, changes: Sequence[Change],
                    batch: int, workers: int) -> list[Row]:
    """Responses of features to changed copies, by layer."""
    rows = []
    for probed in models:
        pictures = (probed.fit(pictures) for pictures, _ in data.batches(batch, workers))
        with progress(len(data), probed.name) as report:
            rows += [dict(model=probed.name, **row) for row in feature_responses(
                probed.model, pictures, changes, report)]
    return rows


def parts_table(models: Sequence[Probed], data: Mapping[str, LabelledPictures], batch: int,
                workers: int) -> list[Row]:
    """Scores of foreground and background of classified images.

    Args:
        models: that classify.
        data: by part of `visible_part.PARTS`.
        batch: images at once.
        workers: processes that read images.

    Raises:
        UserError: if the images have label maps.
    """
    whole = data['whole']
    if whole.has_maps:
        raise UserError('--boxes and --masks divide images with one class each; give '
                        '--foreground CLASS ... for those with label maps')
    with progress(len(data) * len(whole)) as report:
        return score_parts(models, {part: pictures.batches(batch, workers)
                                    for part, pictures in data.items()}, report)


def map_parts_table(models: Sequence[Probed], data: LabelledPictures, foreground: Sequence[str],
                    batch: int, workers: int) -> list[Row]:
    """Scores of foreground and background of images with label maps.

    Args:
        models: that segment.
        data: with label maps.
        foreground: names or numbers of classes.
        batch: images at once.
        workers: processes that read images.

    Raises:
        UserError: if the images have one class each, or a class is unknown.
    """
    if not data.has_maps:
        raise UserError('--foreground divides images with label maps; give --boxes DIR or --masks '
                        'DIR for those with one class each')
    labels = [label_of(name, data) for name in foreground]
    with progress(len(data)) as report:
        return score_map_parts(models, data.batches(batch, workers), data.num_classes, labels,
                               data.void, report)


def label_of(name: str, data: LabelledPictures) -> int:
    """The label of a class by its name or number.

    Raises:
        UserError: if there is no such class.
    """
    if name in data.classes:
        return data.classes.index(name)
    if name.isdecimal() and int(name) < data.num_classes:
        return int(name)
    raise UserError(f'--foreground {name}: expected one of {", ".join(data.classes)}, or a number '
                    f'below {data.num_classes}')
