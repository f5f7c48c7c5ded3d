"""Whether a segmentation score will be right: void pixels, names of scores, mode of inference."""
from collections.abc import Mapping

from mmengine.evaluator import BaseMetric
from mmengine.runner import Runner
from torch import nn

from .errors import UserError
from .model_checks import class_heads, main_head

_SCORES = ('mIoU', 'mDice', 'mFscore')  # of mmseg's IoUMetric
_MODES = ('whole', 'slide')  # of mmseg's EncoderDecoder


def metrics_of(runner: Runner, split: str) -> dict[str, BaseMetric]:
    """The metrics of a built 'val' or 'test' loop, by config key."""
    evaluator = getattr(getattr(runner, f'{split}_loop'), 'evaluator', None)
    several = isinstance(runner.cfg.get(f'{split}_evaluator'), (list, tuple))
    return {f'{split}_evaluator' + f'.{number}' * several: metric
            for number, metric in enumerate(getattr(evaluator, 'metrics', ()))}


def check_training_void(model: nn.Module) -> None:
    """The label of void pixels is the same in all heads of these classes and in the padding.

    Raises:
        UserError: It is not.
    """
    main = main_head(model)
    if main is not None:
        others = {f'{key}.ignore_index': getattr(head, 'ignore_index', None)
                  for key, head in class_heads(model) if head.num_classes == main[1].num_classes}
        others['model.data_preprocessor.seg_pad_val'] = getattr(
            getattr(model, 'data_preprocessor', None), 'seg_pad_val', None)
        _check_void(*main, others)


def check_scoring(model: nn.Module, metrics: Mapping[str, BaseMetric]) -> None:
    """The metrics leave the main head's void pixels out, and what they are to compute exists.

    Args:
        model: A segmentor; any other passes.
        metrics: By config key.

    Raises:
        UserError: Another ignore_index, an unknown score, or an unknown mode of inference.
    """
    main = main_head(model)
    if main is not None:
        _check_void(*main, {f'{key}.ignore_index': getattr(metric, 'ignore_index', None)
                            for key, metric in metrics.items()})
    for key, metric in metrics.items():
        if 'IoUMetric' in (cls.__name__ for cls in type(metric).__mro__):
            names = [metric.metrics] if isinstance(metric.metrics, str) else metric.metrics
            unknown = [name for name in names if name not in _SCORES]
            if unknown:
                raise UserError(f'{key}.iou_metrics has {", ".join(map(repr, unknown))}, but there '
                                f'are {", ".join(_SCORES)}: correct the spelling')
    inference = getattr(type(model), 'inference', None)
    mode = (getattr(model, 'test_cfg', None) or {}).get('mode', 'whole')
    if getattr(inference, '__qualname__', '') == 'EncoderDecoder.inference' and mode not in _MODES:
        raise UserError(f"model.test_cfg.mode is {mode!r}, but there are 'whole' and 'slide' (with "
                        'crop_size and stride): correct the spelling')


def _check_void(key: str, head: nn.Module, others: Mapping[str, int | None]) -> None:
    void = getattr(head, 'ignore_index', None)
    wrong = {k: label for k, label in others.items() if label is not None and label != void}
    if void is not None and wrong:
        raise UserError(
            f'{key}.ignore_index is {void}, but ' +
            ', '.join(f'{k} is {label}' for k, label in wrong.items()) +
            ': void pixels have one label; set --cfg-options ' +
            ' '.join(f'{k}={void}' for k in wrong) +
            f', or {key}.ignore_index to that of the label maps')
