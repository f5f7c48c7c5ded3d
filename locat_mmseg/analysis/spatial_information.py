"""How much of a layer's features differs from place to place, layer by layer.

A plain class-token ViT mixes its patches in the last layer, which then hold much the same (arXiv
2212.06727, section 4); LocAt is meant to keep them apart.

Shape legend: B pictures, n patches, F features of a layer.
"""
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from torch import Tensor
from torch.nn import functional as F

from .feature_hooks import FeatureReader
from .feature_layers import feature_layers
from .picture_model import PictureModel

Curve = list[dict[str, float | str]]
LABELS = {
    'relative_std': 'std over patches / |mean|\n(median over features)',
    'cosine': 'mean cosine of two patches',
}


def relative_std(features: Tensor, eps: float = 1e-6) -> Tensor:
    """std over patches / (|mean| + eps) of each feature: (B, n, F) -> (B, F)."""
    std, mean = torch.std_mean(features, dim=1, correction=0)
    return std / (mean.abs() + eps)


def mean_cosine(features: Tensor) -> Tensor:
    """Mean cosine of all pairs of different patches: (B, n, F) -> (B,), 1 for a single patch."""
    count = features.shape[1]
    if count == 1:
        return features.new_ones(len(features))
    total = F.normalize(features, dim=-1).sum(1).square().sum(-1)
    return (total - count) / (count * (count - 1))


def spread(features: Tensor) -> dict[str, Tensor]:
    """All measures (B,) of features (B, ..., F).

    Of the ratio the median over features counts beside the mean: where a mean over patches is
    near 0, the ratio is arbitrarily large, and the mean over features says little.
    """
    features = features.flatten(1, -2).float()
    ratios = relative_std(features)
    return dict(relative_std=ratios.median(1).values, relative_std_mean=ratios.mean(1),
                cosine=mean_cosine(features))


@torch.inference_mode()
def spatial_information(model: PictureModel, batches: Iterable[Tensor],
                        kinds: Sequence[str] = ('hidden', 'block'),
                        report: Callable[[int], None] | None = None) -> dict[str, Curve]:
    """Mean over pictures of each measure, by kind of features and layer.

    Args:
        model: on the device to work on.
        batches: pictures (B, 3, H, W) in [0, 1].
        kinds: see `feature_hooks.feature_layers`.
        report: called after each batch with the number of pictures that are done.

    Returns:
        For each kind and layer, a dict of the layer's name and its measures.

    Raises:
        ValueError: if there are no pictures.
    """
    layers = {kind: feature_layers(model, kind) for kind in kinds}
    flat = [layer for kind in kinds for layer in layers[kind]]
    reader = FeatureReader(model, flat, reduce=spread)
    sums: list[dict[str, float]] = [{} for _ in flat]
    done = 0
    for batch in batches:
        for total, measures in zip(sums, reader(batch.to(model.device))):
            for name, values in measures.items():
                total[name] = total.get(name, 0.) + values.sum().item()
        done += len(batch)
        if report is not None:
            report(done)
    if not done:
        raise ValueError('no pictures: expected at least one batch')
    means = iter([{name: value / done for name, value in total.items()} for total in sums])
    return {kind: [dict(name=layer.name, **next(means)) for layer in layers[kind]]
            for kind in kinds}


def draw_curves(models: Mapping[str, Mapping[str, Curve]], path: Path) -> None:
    """Draw the curves of some models: for each kind and measure a panel.

    Args:
        models: result of `spatial_information` by the name of the model.
        path: image file to write.
    """
    kinds = list(next(iter(models.values())))
    figure, axes = plt.subplots(len(kinds), len(LABELS), squeeze=False, layout='constrained',
                                figsize=(5 * len(LABELS), 3.2 * len(kinds)))
    for row, kind in zip(axes, kinds):
        for axis, measure in zip(row, LABELS):
            draw_curve(axis, models, kind, measure)
    axes[0, 0].legend()
    figure.savefig(path, dpi=130)
    plt.close(figure)


def draw_curve(axes: Axes, models: Mapping[str, Mapping[str, Curve]], kind: str, measure: str
               ) -> None:
    """One measure (of `LABELS`) of one kind of features by layer, a line for each model."""
    for name, curves in models.items():
        axes.plot([point[measure] for point in curves[kind]], marker='.', label=name)
    axes.set(xlabel='layer', ylabel=LABELS[measure], title=f'{kind} features')
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.3)
