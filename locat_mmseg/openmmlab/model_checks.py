"""Whether a model suits its data: classes, labels, batch norm, batch size."""
import re
from collections.abc import Iterator
from typing import Any

from mmengine.dataset import InfiniteSampler
from mmengine.dist import get_world_size
from mmengine.runner import Runner
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.data import DataLoader

from .errors import UserError, warn
from .label_checks import check_labels

_IGNORE_INDEX = 255  # mmseg's, for heads that have none
# Heads and losses whose targets are no classes, as for depth.
_NO_CLASSES = re.compile('DepthHead|Regression|SiLogLoss|L1Loss|MSELoss')


def class_heads(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """The heads of a segmentor or classifier that have a number of classes, by config key."""
    for name in ('decode_head', 'auxiliary_head', 'head'):
        head = getattr(model, name, None)
        heads = {f'{name}.{k}': h for k, h in enumerate(head)} \
            if isinstance(head, nn.ModuleList) else {name: head}
        for key, module in heads.items():
            if isinstance(getattr(module, 'num_classes', None), int) and not any(
                    _NO_CLASSES.search(type(m).__name__) for m in module.modules()):
                yield f'model.{key}', module


def main_head(model: nn.Module) -> tuple[str, nn.Module] | None:
    """The (last) decode head or the classifier's head, which answers, and its config key."""
    heads = [(key, head) for key, head in class_heads(model) if 'auxiliary_head' not in key]
    return heads[-1] if heads else None


def label_limits(model: nn.Module) -> tuple[int, int] | None:
    """(num_classes, ignore_index) of the main head; None for a model without classes."""
    main = main_head(model)
    if main is None:
        return None
    ignore_index = getattr(main[1], 'ignore_index', None)
    return main[1].num_classes, _IGNORE_INDEX if ignore_index is None else ignore_index


def check_num_classes(model: nn.Module, expected: int, dataset: str) -> None:
    """Compare the classes of a data set with those of the heads and of mixup.

    Args:
        model: A segmentor or classifier; one without classes passes.
        expected: How many classes the data set has.
        dataset: Its name, for the sentence.

    Raises:
        UserError: The main head or the data preprocessor has another number. A head with a
            number of its own, which may learn something else such as boundaries, is warned of.
    """
    main = main_head(model)
    numbers = {}
    for key, head in class_heads(model):
        if main is None or head.num_classes == main[1].num_classes:
            numbers[f'{key}.num_classes'] = head.num_classes
        elif head.num_classes != expected:
            warn(f'{dataset} has {expected} classes, but {key}.num_classes is {head.num_classes}: '
                 'right only if this head learns something else')
    preprocessor = getattr(model, 'data_preprocessor', None)
    if getattr(preprocessor, 'num_classes', None) is not None:
        numbers['data_preprocessor.num_classes'] = preprocessor.num_classes
    wrong = {key: number for key, number in numbers.items() if number != expected}
    if wrong:
        raise UserError(f'{dataset} has {expected} classes, but ' +
                        ', '.join(f'{key} is {number}' for key, number in wrong.items()) +
                        f': set --cfg-options ' + ' '.join(f'{key}={expected}' for key in wrong) +
                        ', or correct the classes of the data set')


def check_batch(model: nn.Module, data_batch: Any, training: bool) -> None:
    """Check the labels of a batch.

    Args:
        model: A segmentor or classifier; one without classes passes.
        data_batch: What the data loader gives; without data samples it passes.
        training: Otherwise labels of images are not checked: in retrieval they are no classes.

    Raises:
        UserError: A label is outside the classes; see :func:`label_checks.check_labels`.
    """
    limits = label_limits(model)
    if limits is None or not isinstance(data_batch, dict):
        return
    waiting = list(data_batch.get('data_samples') or ())
    while waiting:
        sample = waiting.pop()
        if isinstance(sample, (list, tuple)):  # one list per test-time augmentation
            waiting.extend(sample)
        elif 'gt_sem_seg' in sample:
            check_labels(sample.gt_sem_seg.data, *limits, sample)
        elif training and 'gt_label' in sample:
            check_labels(sample.gt_label, limits[0], None, sample)


def check_batch_norm(model: nn.Module, loader: DataLoader) -> None:
    """Refuse batches of one image where they meet batch norm after pooling to one pixel."""
    if _smallest_batch(loader) != 1:
        return
    for name, module in model.named_modules():
        if isinstance(module, nn.Sequential) and _pools_to_one(module) and any(
                isinstance(m, _BatchNorm) and not _is_synchronized(m) for m in module.modules()):
            raise UserError(
                f'train_dataloader gives a batch of one image, in which the batch norm of {name} '
                'has a single value per channel to normalize: set train_dataloader.batch_size to '
                '2 or more, train_dataloader.drop_last=True if only the last batch is so small, '
                "or norm_cfg=dict(type='GN', num_groups=32) in the heads")


def _smallest_batch(loader: DataLoader) -> int | None:
    if loader.batch_size is None or isinstance(loader.sampler, InfiniteSampler) or \
            loader.drop_last:
        return loader.batch_size
    return len(loader.sampler) % loader.batch_size or loader.batch_size


def _pools_to_one(module: nn.Sequential) -> bool:
    return any(isinstance(m, nn.AdaptiveAvgPool2d) and m.output_size in (1, (1, 1))
               for m in module)


def _is_synchronized(norm: nn.Module) -> bool:
    return isinstance(norm, nn.SyncBatchNorm) and get_world_size() > 1


def report_batch_size(runner: Runner, loader: DataLoader) -> None:
    """Log the total batch size, with a warning if the learning rate is meant for another one."""
    if loader.batch_size is None:
        return
    steps = runner.cfg.optim_wrapper.get('accumulative_counts', 1)
    total = loader.batch_size * get_world_size() * steps
    runner.logger.info(f'total batch size {total} = {loader.batch_size} images x '
                       f'{get_world_size()} processes x {steps} accumulated')
    scale = runner.auto_scale_lr or {}
    base = scale.get('base_batch_size', total)
    if total != base and not scale.get('enable', False):
        runner.logger.warning(
            f'the learning rate is for a total batch size of {base}, but this run has {total}: '
            'set auto_scale_lr.enable=True to scale it in proportion, or choose '
            'optim_wrapper.optimizer.lr yourself')
