"""How much of a feature's response is left when the picture it likes best is rotated or shifted.

After "What do Vision Transformers Learn?" (arXiv 2212.06727): of every feature, the picture of the
data that it responds to most, once as it is and once as mean over copies (that one included).

Shape legend: B pictures, F features of a layer.
"""
from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor

from .feature_hooks import FeatureReader, pool
from .feature_layers import KINDS, feature_layers
from .input_changes import Change
from .picture_model import PictureModel
from .robustness import Row


class BestResponses:
    """Responses of each feature to the picture that it likes best of those seen so far.

    Attributes:
        before: (F,), to the picture.
        after: (F,), mean over the copies of the same picture.
    """

    def __init__(self) -> None:
        self.before: Tensor | None = None
        self.after: Tensor | None = None

    def update(self, before: Tensor, after: Tensor) -> None:
        """Take in responses (B, F) to pictures, and means (B, F) over their copies."""
        best, picture = before.max(0)
        kept = after.gather(0, picture[None])[0]
        if self.before is None:
            self.before, self.after = best, kept
            return
        better = best > self.before
        self.before = torch.where(better, best, self.before)
        self.after = torch.where(better, kept, self.after)

    def result(self) -> dict[str, float | None]:
        """Means over features, and what is left in sum of the responses above 0.

        Not a mean of ratios, which features that barely respond would decide. None where no
        feature responds above 0.
        """
        active = self.before > 0
        ratio = (self.after[active].sum() / self.before[active].sum()).item() \
            if active.any() else None
        return dict(before=self.before.mean().item(), after=self.after.mean().item(), ratio=ratio)


@torch.inference_mode()
def feature_responses(model: PictureModel, batches: Iterable[Tensor], changes: Sequence[Change],
                      report: Callable[[int], None] | None = None) -> list[Row]:
    """Responses of all features to their best pictures and to changed copies, by kind and layer.

    Args:
        model: a transformer (features of the feed-forward layers, after the activation function)
            or a CNN (channels of its stages), on the device to work on.
        batches: pictures (B, 3, H, W) in [0, 1].
        changes: copies; those of one kind together, and with them the unchanged picture.
        report: called after each batch with the number of pictures that are done.

    Returns:
        Rows of ``change``, ``layer``, ``before``, ``after`` and ``ratio``.

    Raises:
        ValueError: if there are no pictures.
    """
    layers = feature_layers(model, 'hidden' if KINDS['hidden'](model) else 'channel')
    reader = FeatureReader(model, layers, reduce=pool)
    kinds = list(dict.fromkeys(change.kind for change in changes))
    best = {kind: [BestResponses() for _ in layers] for kind in kinds}
    done = 0
    for pictures in batches:
        pictures = pictures.to(model.device)
        before = reader(pictures)
        for kind in kinds:
            copies = [change.pictures for change in changes if change.kind == kind]
            total = [responses.clone() for responses in before]
            for copy in copies:
                for sums, responses in zip(total, reader(copy(pictures))):
                    sums += responses
            for kept, old, sums in zip(best[kind], before, total):
                kept.update(old, sums / (len(copies) + 1))
        done += len(pictures)
        if report is not None:
            report(done)
    if not done:
        raise ValueError('no pictures: expected at least one batch')
    return [dict(change=kind, layer=layer.name, **kept.result())
            for kind in kinds for layer, kept in zip(layers, best[kind])]
