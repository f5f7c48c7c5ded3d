"""The pictures of a data set that each feature responds to most, for all features in one pass.

The score of a picture is the mean of the feature over its patches (arXiv 2212.06727). Memory does
not grow with the data set, and a pass that was interrupted goes on where it was saved.

Shape legend: B pictures, F features of a layer, k best pictures.
"""
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Subset

from .feature_hooks import FeatureReader, pool
from .feature_layers import FeatureLayer
from .picture_model import PictureModel
from .run_settings import Settings, check_same


class StreamingTopK:
    """The k largest scores of each feature seen so far, and which pictures had them.

    Of equal scores the earlier picture comes first.

    Attributes:
        values: (F, k), descending; -inf where fewer than k pictures were seen.
        indices: (F, k), -1 likewise.
    """

    def __init__(self, num_features: int, k: int) -> None:
        self.values = torch.full((num_features, k), -torch.inf)
        self.indices = torch.full((num_features, k), -1)

    def update(self, scores: Tensor, first: int) -> None:
        """Take in scores (B, F) of pictures number ``first``, ``first + 1`` ..."""
        k = self.values.shape[1]
        scores = scores.T.float().cpu()
        indices = torch.arange(first, first + scores.shape[1]).expand(len(scores), -1)
        # Stable, and the old ones stand first: equals keep their order.
        self.values, order = torch.cat([self.values, scores], 1).sort(
            dim=1, descending=True, stable=True)
        self.indices = torch.cat([self.indices, indices], 1).gather(1, order)[:, :k]
        self.values = self.values[:, :k]


def find_top_images(model: PictureModel, layers: Sequence[FeatureLayer], pictures: Dataset, k: int,
                    batch_size: int = 32, num_workers: int = 0, state: Path | None = None,
                    settings: Settings | None = None, redo: bool = False, save_every: int = 20,
                    report: Callable[[int], None] | None = None) -> list[StreamingTopK]:
    """Run all pictures through the model once.

    Args:
        model: on the device to work on.
        layers: from `feature_layers` of this model.
        pictures: a data set of tensors (3, H, W) in [0, 1].
        k: how many pictures to keep for each feature.
        batch_size: in pictures.
        num_workers: of the data loader.
        state: file to save the pass in and to continue from.
        settings: what the result depends on, beside k and the number of pictures.
        redo: start anew instead of refusing a file of other settings.
        save_every: batches.
        report: called after each batch with the number of pictures that are done.

    Returns:
        The best pictures of each layer.

    Raises:
        ValueError: if ``state`` is no such file or was written with other settings, or k is not
            positive.
    """
    if k < 1:
        raise ValueError(f'k={k}: expected at least 1')
    settings = json.loads(json.dumps(dict(settings or {}, k=k, pictures=len(pictures),
                                          layers=[layer.name for layer in layers])))
    best, done = load_state(state, settings, redo)
    reader = FeatureReader(model, layers, reduce=pool)
    loader = DataLoader(Subset(pictures, range(done, len(pictures))), batch_size,
                        num_workers=num_workers)
    for number, batch in enumerate(loader, 1):
        with torch.inference_mode():
            scores = reader(batch.to(model.device))
        best = best or [StreamingTopK(s.shape[1], k) for s in scores]
        for layer_best, layer_scores in zip(best, scores):
            layer_best.update(layer_scores, done)
        done += len(batch)
        if state is not None and (number % save_every == 0 or done == len(pictures)):
            save_state(state, settings, best, done)
        if report is not None:
            report(done)
    return best


def load_state(path: Path | None, settings: Settings,
               redo: bool) -> tuple[list[StreamingTopK], int]:
    """What a saved pass had found, and after how many pictures.

    Raises:
        ValueError: if the file is none, or of other settings.
    """
    if path is None or not path.is_file() or redo:
        return [], 0
    try:
        saved = torch.load(path, weights_only=True)
        found = json.loads(saved['settings'])
    except Exception as error:  # broken in any way, torch's unpickler fails in any
        raise ValueError(f'{path} is no saved pass over pictures ({type(error).__name__}): remove '
                         'it, or give --redo to start anew') from error
    check_same(found, settings, path)
    best = []
    for values, indices in zip(saved['values'], saved['indices']):
        best.append(StreamingTopK(*values.shape))
        best[-1].values, best[-1].indices = values, indices
    return best, saved['done']


def save_state(path: Path, settings: Settings, best: Sequence[StreamingTopK], done: int) -> None:
    """Save a pass, never leaving half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix('.new')
    torch.save(dict(settings=json.dumps(settings), done=done, values=[b.values for b in best],
                    indices=[b.indices for b in best]), new)
    os.replace(new, path)
