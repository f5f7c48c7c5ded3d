"""When does attention become local? Measured during training."""
import json
import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from mmengine.dist import all_reduce, get_rank, get_world_size, is_main_process
from mmengine.hooks import Hook
from mmengine.registry import HOOKS
from mmengine.runner import IterBasedTrainLoop, Runner
from torch import nn
from torch.utils.data import DataLoader, Subset

from ..analysis import Locality, LocalityMeter, evaluation_mode
from ..analysis.picture_folder import evenly_spaced
from .errors import UserError
from .hooks import unwrap


@HOOKS.register_module()
class LocalityHook(Hook):
    """Measures attention distance and entropy per layer and head every so often.

    Before the first iteration, then every ``interval`` epochs or iterations, and at the end; on
    whole images of ``val_dataloader``, with the weights being trained (not their EMA). The minimum
    and the mean of each layer go to the log and the visualizer backends as ``locality/...``; all
    numbers to a file in the work dir, one JSON object a line: ``epoch`` and ``iter`` (completed)
    and what `Locality` holds. A resumed run goes on with the file; a new one begins it anew.

    Training runs as without the hook: weights, modes and random states stay as they are. Several
    processes share the images; the grids in the file are those of the first one.

    Args:
        interval: epochs, or iterations.
        by_epoch: whether ``interval`` counts epochs.
        num_images: how many, evenly spaced over the data set; None for all.
        filename: in the work dir.

    Raises:
        ValueError: for an interval or number of images below 1. When training begins, for a model
            that `capture_attention` refuses, a config without validation data, or fewer images
            than processes.
    """

    # Before CheckpointHook: a checkpoint never exists without its line.
    priority = 'NORMAL'

    def __init__(self, interval: int = 1, by_epoch: bool = True, num_images: int | None = 256,
                 filename: str = 'locality.jsonl') -> None:
        for name, value in (('interval', interval), ('num_images', num_images)):
            if value is not None and value < 1:
                raise ValueError(f'{name}={value}: expected a number from 1 on')
        self.interval = interval
        self.by_epoch = by_epoch
        self.num_images = num_images
        self.filename = filename

    def before_train(self, runner: Runner) -> None:
        """Check, make the file fit the iteration at which training begins, and measure there."""
        if runner.val_loop is None:
            raise UserError('LocalityHook measures on val_dataloader, which the config does not '
                            'have: add val_dataloader, val_cfg and val_evaluator')
        if self.by_epoch and isinstance(runner.train_loop, IterBasedTrainLoop):
            raise UserError('LocalityHook counts epochs, but train_cfg counts iterations: give '
                            'it by_epoch=False and an interval in iterations')
        if is_main_process():
            path = self._path(runner)
            removed = keep_lines(path, last_iter=runner.iter if runner.iter else -1)
            if removed:
                runner.logger.info(f'LocalityHook: {removed} lines of an earlier run, beyond '
                                   f'iteration {runner.iter}, are removed from {path}')
        if runner.iter == 0:
            self._measure(runner, 0, 0)

    def after_train_epoch(self, runner: Runner) -> None:
        """Measure if it is time."""
        if self.by_epoch and (self.every_n_epochs(runner, self.interval)
                              or self.is_last_train_epoch(runner)):
            self._measure(runner, runner.epoch + 1, runner.iter)

    def after_train_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None,
                         outputs: dict | None = None) -> None:
        """Measure if it is time."""
        if not self.by_epoch and (self.every_n_train_iters(runner, self.interval)
                                  or self.is_last_train_iter(runner)):
            self._measure(runner, runner.epoch, runner.iter + 1)

    def _path(self, runner: Runner) -> Path:
        return Path(runner.work_dir, self.filename)

    def _measure(self, runner: Runner, epoch: int, iteration: int) -> None:
        loader = part_of_loader(runner.val_dataloader, self.num_images, get_rank(),
                                get_world_size())
        result = measure_shared(unwrap(runner.model), loader)
        if not is_main_process():
            return
        with open(self._path(runner), 'a') as file:
            file.write(json.dumps(dict(epoch=epoch, iter=iteration, **result.to_dict()),
                                  allow_nan=False) + '\n')
        scalars = summary(result)
        runner.logger.info(f'Locality after {epoch} epochs, {iteration} iterations: '
                           + '  '.join(f'{name}: {value:.4f}' for name, value in scalars.items()))
        runner.visualizer.add_scalars({f'locality/{name}': value for name, value
                                       in scalars.items()},
                                      step=epoch if self.by_epoch else iteration)


def measure_shared(model: nn.Module, loader: DataLoader) -> Locality:
    """Measure a mmseg or mmpretrain model on the images of all processes together.

    Args:
        model: whose backbone is one that `capture_attention` takes.
        loader: gives this process's share of the images, at least one.
    """
    with random_states_kept(), evaluation_mode(model), torch.no_grad(), \
            LocalityMeter(model.backbone) as meter:
        for batch in loader:
            model.backbone(model.data_preprocessor(batch, False)['inputs'])
    if get_world_size() > 1:
        meter.sum_processes(all_reduce)
    return meter.result()


def part_of_loader(loader: DataLoader, num_images: int | None, rank: int, world_size: int
                   ) -> DataLoader:
    """A loader of one process's share of images that are evenly spaced over a data set.

    Raises:
        UserError: if there are fewer images than processes.
    """
    chosen = evenly_spaced(len(loader.dataset), num_images)
    if len(chosen) < world_size:
        raise UserError(f'LocalityHook: {len(chosen)} images for {world_size} processes; give each '
                        'at least one (num_images, and the size of val_dataloader.dataset)')
    return DataLoader(Subset(loader.dataset, chosen[rank::world_size]),
                      batch_size=loader.batch_size or 1, num_workers=loader.num_workers,
                      collate_fn=loader.collate_fn)


def summary(result: Locality) -> dict[str, float]:
    """Few numbers for the log: the minimum, and each layer's mean over its heads."""
    scalars = {'min_distance': result.min_distance_diagonal}
    for name, measure in (('distance', 'distance_diagonal'), ('entropy', 'entropy')):
        for layer in result.layers:
            values = getattr(layer, measure)
            scalars[f'{name}_{layer.depth}'] = sum(values) / len(values)
    return scalars


def keep_lines(path: Path, last_iter: int) -> int:
    """Remove from a file the lines of later iterations, and what a killed run left unfinished.

    Returns:
        The number of lines removed.
    """
    if not path.exists():
        return 0
    lines, kept = path.read_text().splitlines(), []
    for line in lines:
        try:
            record = json.loads(line)
        except json.JSONDecodeError:
            continue  # cut off while it was written
        if record['iter'] <= last_iter:
            kept.append(line + '\n')
    partial = path.with_suffix('.partial')
    partial.write_text(''.join(kept))
    os.replace(partial, path)
    return len(lines) - len(kept)


@contextmanager
def random_states_kept() -> Iterator[None]:
    """Give Python's, numpy's and torch's generators back as they were: a loader draws from them."""
    python, arrays = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=[]):  # nothing is drawn on an accelerator
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(arrays)
