"""Stop a run that cannot come out right, before an hour of it is lost.

Both hooks work under any tool that builds a Runner; list them in ``custom_hooks``.
"""
import os.path as osp
from typing import Any

from mmengine.hooks import Hook
from mmengine.model import BaseTTAModel, is_model_wrapper
from mmengine.optim import OptimWrapperDict
from mmengine.registry import HOOKS
from mmengine.runner import Runner
from torch import nn
from torch.utils.data import DataLoader

from .checkpoint_checks import check_fit, check_resumable, localize_records
from .label_checks import check_label_maps, guard_loaders, plain_datasets
from .model_checks import (check_batch, check_batch_norm, check_num_classes, label_limits,
                           report_batch_size)


@HOOKS.register_module()
class PreflightHook(Hook):
    """Checks model against data when training, validation or testing begins, then each batch.

    Once: the number of classes of each head and of the data preprocessor (mixup) against the data
    set's; 64 label maps of each data set; batches of one image where batch norm cannot take them;
    the total batch size against ``auto_scale_lr.base_batch_size``. Each batch, on the CPU: labels
    outside the classes. Files that cannot be read are named. What is wrong raises a
    :class:`UserError` that says where and what to do.
    """

    priority = 'VERY_HIGH'

    def __init__(self) -> None:
        self._checked: set[str] = set()

    def before_train(self, runner: Runner) -> None:
        """Check training and validation data, batch norm and batch size."""
        loader = runner.train_dataloader
        self._check_data(runner, loader, 'train_dataloader')
        if runner.val_loop is not None:
            self._check_data(runner, runner.val_dataloader, 'val_dataloader')
        check_batch_norm(unwrap(runner.model), loader)
        report_batch_size(runner, loader)

    def before_val(self, runner: Runner) -> None:
        """Check validation data, unless training has done so."""
        self._check_data(runner, runner.val_dataloader, 'val_dataloader')

    def before_test(self, runner: Runner) -> None:
        """Check test data."""
        self._check_data(runner, runner.test_dataloader, 'test_dataloader')

    def before_train_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None) -> None:
        """Check the labels of a batch."""
        check_batch(unwrap(runner.model), data_batch)

    before_val_iter = before_test_iter = before_train_iter

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
    """

    priority = 'VERY_HIGH'

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
        check_fit(unwrap(runner.model), checkpoint, path)


def unwrap(model: nn.Module) -> nn.Module:
    """The model inside DistributedDataParallel and test-time augmentation."""
    while is_model_wrapper(model) or isinstance(model, BaseTTAModel):
        model = model.module
    return model
