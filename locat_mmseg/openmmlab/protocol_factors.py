"""What of a config a locality study varies, and what it holds equal.

The factors are those of "Inducing Spatial Locality in Vision Transformers through the Training
Protocol" (arXiv 2605.16390), and LocAt.
"""
import copy
import hashlib
import json
from typing import Any, NamedTuple

from mmengine.config import Config

AUTOAUGMENT, CUTMIX, LABEL_SMOOTHING, LOCAT = FACTORS = (
    'AutoAugment', 'CutMix', 'label smoothing', 'LocAt')
# Tiny-ImageNet has colour jitter in AutoAugment's place.
_AUGMENTATIONS = ('CIFARAutoAugment', 'AutoAugment', 'ColorJitter')
_TRAINED = ('model', 'data_preprocessor', 'train_dataloader', 'val_dataloader', 'train_cfg',
            'optim_wrapper', 'param_scheduler')
# How a loader works, not what it gives: may differ from machine to machine.
_LOADING = ('num_workers', 'persistent_workers', 'pin_memory', 'prefetch_factor')


class Protocol(NamedTuple):
    """What a config trains.

    Attributes:
        factors: that are on, in the order of `FACTORS`.
        digest: of all that decides over the result, but the seed.
        group: the same without the factors.
    """
    factors: list[str]
    digest: str
    group: str


def read_protocol(cfg: Config) -> Protocol:
    """Find the factors of a config and digest the rest; any config that the Runner takes."""
    rest = {key: copy.deepcopy(value) for key, value in cfg.to_dict().items() if key in _TRAINED}
    for name in ('train_dataloader', 'val_dataloader'):
        for key in _LOADING:
            (rest.get(name) or {}).pop(key, None)
    digest = _digest(rest)
    model = rest.get('model') or {}
    on = {AUTOAUGMENT: _take_augmentation(rest.get('train_dataloader') or {}),
          CUTMIX: _take_cutmix(model), LABEL_SMOOTHING: _take_label_smoothing(model),
          LOCAT: _take_locat(model)}
    return Protocol([factor for factor in FACTORS if on[factor]], digest, _digest(rest))


def _take_augmentation(loader: dict) -> bool:
    dataset = loader.get('dataset') or {}
    pipeline = dataset.get('pipeline') or []
    dataset['pipeline'] = [step for step in pipeline if step.get('type') not in _AUGMENTATIONS]
    return len(dataset['pipeline']) < len(pipeline)


def _take_cutmix(model: dict) -> bool:
    settings = model.get('train_cfg') or {}
    kinds = [augment.get('type') for augment in settings.get('augments') or []]
    if kinds != ['CutMix']:
        return False  # other mixtures are no factor, but a difference
    probability = settings.pop('probs', None)  # None: always
    return probability is None or sum(probability if isinstance(probability, (list, tuple))
                                      else [probability]) > 0


def _take_label_smoothing(model: dict) -> bool:
    loss = (model.get('head') or {}).get('loss') or {}
    return bool(loss.pop('label_smooth_val', 0.))


def _take_locat(model: dict) -> bool:
    backbone, neck = model.get('backbone') or {}, model.get('neck') or {}
    gaug = backbone.pop('gaug', str(backbone.get('type')).startswith('LocAt'))
    if neck.get('refine', True) == gaug:  # one of the two alone is a difference, not the factor
        neck.pop('refine', None)
    return gaug


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
