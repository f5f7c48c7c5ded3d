"""k-NN and linear probe of a frozen backbone on the images of a classification config."""
import sys
from collections.abc import Iterable, Sequence

import torch
from mmengine.structures import BaseDataElement
from mmengine.utils import track_iter_progress
from torch import Tensor

from ..analysis.knn import knn_scores, topk_accuracy
from ..analysis.linear_probe import LinearProbe, choose_l2, fit_linear_probe
from .errors import UserError
from .frozen_backbone import FrozenBackbone

Labelled = tuple[Tensor, Tensor]  # features (M, C) and labels (M,)


def extract(backbone: FrozenBackbone, batches: Iterable[dict]) -> Labelled:
    """Pooled features (M, C) and labels (M,) of batches, on the CPU.

    Raises:
        UserError: if an image has no single label.
    """
    features, labels = [], []
    for batch in batches:
        pooled, samples = backbone.pooled(batch)
        features.append(pooled.cpu())
        labels += [label_of(sample) for sample in samples]
    return torch.cat(features), torch.tensor(labels)


def label_of(sample: BaseDataElement) -> int:
    """The class of a data sample.

    Raises:
        UserError: if it has none, or several.
    """
    label = sample.get('gt_label')
    if label is None or label.numel() != 1:
        raise UserError(f'an image has the label {label}: k-NN and linear probe take a '
                        'classification config with one label an image')
    return label.item()


def evaluate_knn(train: Labelled, test: Labelled, ks: Sequence[int] = (20, ),
                 temperature: float = 0.07) -> dict[str, float]:
    """Top-1 and top-5 accuracy in percent of the weighted k-NN, for each k."""
    num_classes = count_classes(train, test)
    results = {}
    for k in ks:
        scores = knn_scores(test[0], *train, num_classes, k, temperature)
        results.update({f'knn{k}/top{n}': topk_accuracy(scores, test[1], n) for n in (1, 5)})
    return results


def evaluate_linear(train: Labelled, test: Labelled, l2: Sequence[float], seed: int = 0
                    ) -> tuple[dict[str, float], LinearProbe]:
    """Top-1 and top-5 accuracy in percent of the linear probe, also on the training images; and
    the probe.

    Of several penalties ``l2``, the best on a tenth of the training images is taken; ``seed``
    draws them.
    """
    num_classes = count_classes(train, test)
    chosen = l2[0]
    if len(l2) > 1:
        print(f'choosing the penalty from {list(l2)}', flush=True)
        chosen = choose_l2(*train, num_classes, track_iter_progress(list(l2), file=sys.stdout),
                           torch.Generator().manual_seed(seed))
    print('fitting the probe', flush=True)
    probe = fit_linear_probe(*train, num_classes, chosen)
    results = {f'linear/top{n}': topk_accuracy(probe.scores(test[0]), test[1], n) for n in (1, 5)}
    return {**results, 'linear/train_top1': topk_accuracy(probe.scores(train[0]), train[1]),
            'linear/l2': chosen}, probe


def count_classes(*parts: Labelled) -> int:
    """Classes that occur, counted from 0."""
    return 1 + max(int(labels.max()) for _, labels in parts)
