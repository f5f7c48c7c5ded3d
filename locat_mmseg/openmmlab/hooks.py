"""Stop a run that cannot come out right, before an hour of it is lost.

Both hooks work under any tool that builds a Runner; list them in ``custom_hooks``.
"""
import os.path as osp
from collections.abc import Sequence
from typing import Any

from mmengine.hooks import Hook
from mmengine.model import BaseTTAModel, is_model_wrapper
from mmengine.optim import OptimWrapperDict
from mmengine.registry import HOOKS
from mmengine.runner import BaseLoop, Runner
from torch import nn
from torch.utils.data import DataLoader

from .checkpoint_checks import check_fit, check_resumable, localize_records
from .label_checks import check_label_maps, guard_loaders, plain_datasets
from .model_checks import (check_batch, check_batch_norm, check_num_classes, label_limits,
                           report_batch_size)
from .score_checks import check_scoring, check_training_void, metrics_of


@HOOKS.register_module()
class PreflightHook(Hook):
    """Checks model against data when training, validation or testing begins, then each batch.

    Once: the number of classes of the main head and of the data preprocessor (mixup) against the
    data set's; one label for void pixels in heads, padding and metrics; the names of mmseg's scores
    and its mode of inference; 64 label maps of each data set; batches of one image where batch norm
    cannot take them; the total batch size against ``auto_scale_lr.base_batch_size``. Each batch, on
    the CPU: labels outside the classes. Files that cannot be read are named. What is wrong raises a
    :class:`UserError` that says where and what to do.
    """

    priority = 'VERY_HIGH'

    def __init__(self) -> None:
        self._checked: set[str] = set()

    def before_train(self, runner: Runner) -> None:
        """Check training and validation data, scores, batch norm and batch size."""
        loader, model = runner.train_dataloader, unwrap(runner.model)
        check_training_void(model)
        if runner.val_loop is not None:
            check_scoring(model, metrics_of(runner, 'val'))
        self._check_data(runner, loader, 'train_dataloader')
        if runner.val_loop is not None:
            self._check_data(runner, runner.val_dataloader, 'val_dataloader')
        check_batch_norm(model, loader)
        report_batch_size(runner, loader)

    def before_val(self, runner: Runner) -> None:
        """Check scores, and the data unless training has done so."""
        check_scoring(unwrap(runner.model), metrics_of(runner, 'val'))
        self._check_data(runner, runner.val_dataloader, 'val_dataloader')

    def before_test(self, runner: Runner) -> None:
        """Check scores and data."""
        check_scoring(unwrap(runner.model), metrics_of(runner, 'test'))
        self._check_data(runner, runner.test_dataloader, 'test_dataloader')

    def before_train_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None) -> None:
        """Check the labels of a batch."""
        check_batch(unwrap(runner.model), data_batch, training=True)

    def before_val_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None) -> None:
        """Check the label maps of a batch."""
        check_batch(unwrap(runner.model), data_batch, training=False)

    before_test_iter = before_val_iter

    def _check_data(self, runner: Runner, loader: DataLoader, key: str) -> None:
        if key in self._checked:
            return
        self._checked.add(key)
        model = unwrap(runner.model)
        limits = label_limits(model)
        for dataset in plain_datasets(loader.dataset):
            classes = getattr(dataset, 'metainfo', {}).get('classes')
            if classes is None:
                runner.logger.info(f'{key}: {type(dataset).__name__} names no classes, so the '
                                   'num_classes of the heads are not checked')
            else:
                check_num_classes(model, len(classes), f'{type(dataset).__name__} ({key})')
            if hasattr(getattr(dataset, 'pipeline', None), 'transforms'):
                guard_loaders(dataset.pipeline)
                if limits is not None:
                    check_label_maps(dataset, *limits)


@HOOKS.register_module()
class StrictCheckpointHook(Hook):
    """Refuses a checkpoint that does not fit the model exactly.

    mmengine loads ``load_from``, a checkpoint to resume and one to test with strict=False: what
    does not fit is skipped with a line in the log, and the run goes on with random weights. When
    resuming in a copied work dir, it also makes the records of the best checkpoint point there, so
    that the original's best one is not removed for it.

    Args:
        may_differ: Names of modules, such as ('decode_head.conv_seg', 'auxiliary_head.conv_seg'),
            whose weights need not be in ``load_from``, or may have another shape there, when
            training begins: they start as the model initialised them. What that concerns is logged.
            Resuming and testing always need all weights.
    """

    priority = 'VERY_HIGH'

    def __init__(self, may_differ: Sequence[str] = ()) -> None:
        self.may_differ = (may_differ,) if isinstance(may_differ, str) else tuple(may_differ)

    def after_load_checkpoint(self, runner: Runner, checkpoint: dict) -> None:
        """Compare the file with the model, before mmengine loads it.

        Raises:
            UserError: Keys are missing or left over, shapes differ, or the file cannot be resumed.
        """
        path = runner._load_from or osp.join(runner.work_dir, 'last_checkpoint')
        if runner._resume:
            several = isinstance(runner.optim_wrapper, OptimWrapperDict)
            check_resumable(checkpoint, path,
                            None if several else runner.optim_wrapper.optimizer)
            localize_records(checkpoint['message_hub'], runner.work_dir)
        # The Runner builds its training loop before it loads, and only when it is to train.
        starts = isinstance(runner._train_loop, BaseLoop) and not runner._resume
        differing = check_fit(unwrap(runner.model), checkpoint, path,
                              self.may_differ if starts else ())
        if differing:
            runner.logger.warning(f'not loaded from {path}, as may_differ allows: '
                                  f'{", ".join(differing)}')


def unwrap(model: nn.Module) -> nn.Module:
    """The model inside DistributedDataParallel and test-time augmentation."""
    while is_model_wrapper(model) or isinstance(model, BaseTTAModel):
        model = model.module
    return model
