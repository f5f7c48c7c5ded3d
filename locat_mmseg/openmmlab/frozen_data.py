"""Images for evaluating a frozen backbone: a config's training data, read as its test data.

What is memorised or fitted comes from ``train_dataloader``, what is scored from ``test_dataloader``
or, where there is none, ``val_dataloader``; neither is augmented.
"""
import sys
from collections.abc import Iterator, Sequence
from copy import deepcopy
from itertools import chain

import torch
from mmengine.config import Config
from mmengine.registry import init_default_scope
from mmengine.runner import Runner
from mmengine.utils import ProgressBar
from torch.utils.data import DataLoader, Dataset, Subset

from .config_data import build_dataset, test_loader_name, test_pipeline, type_of
from .errors import UserError
from .label_checks import guard_loaders, plain_datasets
from .preflight import check_data

Size = Sequence[int]


def classification_loaders(cfg: Config, img_size: int | None, counts: Sequence[int | None],
                           seed: int, **loader: int) -> tuple[DataLoader, DataLoader]:
    """Loaders of the training and the test images of a classification config.

    Args:
        cfg: the whole config.
        img_size: side that images are resized to, before they are normalised and packed; None: as
            the config's test pipeline leaves them.
        counts: training and test images to take, at random; None: all.
        seed: of their choice.
        **loader: batch_size and num_workers.

    Raises:
        UserError: if the config lacks the data, or its two parts have different classes.
    """
    pipeline = deepcopy(test_pipeline(cfg))
    if img_size is not None:
        last = next((number for number, transform in enumerate(pipeline)
                     if type_of(transform) in ('Normalize', 'PackInputs')), len(pipeline))
        pipeline.insert(last, dict(type='Resize', scale=(img_size, img_size),
                                   interpolation='bicubic', backend='pillow'))
    return build_loaders(cfg, pipeline, pipeline, counts, seed, **loader)


def segmentation_loaders(cfg: Config, img_size: Size | None, counts: Sequence[int | None],
                         seed: int, **loader: int) -> tuple[DataLoader, DataLoader]:
    """Loaders of the training and the test images of a segmentation config.

    Training labels are resized with their images; test labels stay as they are, for the score.

    Args:
        cfg: the whole config.
        img_size: (height, width) that images are resized to; None: each stays as it is, which takes
            a batch of its own.
        counts: training and test images to take, at random; None: all.
        seed: of their choice.
        **loader: batch_size and num_workers.

    Raises:
        UserError: if the config lacks the data, its two parts have different classes, or its test
            pipeline has no LoadAnnotations and PackSegInputs.
    """
    pipeline = test_pipeline(cfg)
    load = [t for t in pipeline if type_of(t).startswith('Load')]
    labels = [t for t in load if type_of(t) == 'LoadAnnotations']
    pack = [t for t in pipeline if type_of(t).startswith('Pack')]
    if not labels or not pack:
        raise UserError('dense retrieval takes images with label maps, and the test pipeline is '
                        f'{[type_of(t) for t in pipeline]}: expected LoadImageFromFile, '
                        'LoadAnnotations and PackSegInputs, as in a segmentation config')
    resize = [] if img_size is None else [
        dict(type='Resize', scale=(img_size[1], img_size[0]), keep_ratio=False)]
    image = [t for t in load if t not in labels]
    if img_size is None:
        loader['batch_size'] = 1
    return build_loaders(cfg, [*load, *resize, *pack], [*image, *resize, *labels, *pack], counts,
                         seed, **loader)


def build_loaders(cfg: Config, train_pipeline: list[dict], test_pipeline: list[dict],
                  counts: Sequence[int | None], seed: int, batch_size: int = 32,
                  num_workers: int = 2) -> tuple[DataLoader, DataLoader]:
    """Loaders of a part of both data sets, in their order, with other pipelines."""
    if not cfg.get('train_dataloader'):
        raise UserError('the config has no train_dataloader: a frozen backbone is evaluated with '
                        'the training and the test data of a config')
    names = ('train_dataloader', test_loader_name(cfg))
    check_data(cfg, names)
    init_default_scope(cfg.get('default_scope', 'mmengine'))
    pipelines = (train_pipeline, test_pipeline)
    datasets = [build_dataset(cfg[name].dataset, name, pipeline)
                for name, pipeline in zip(names, pipelines)]
    for dataset in chain(*map(plain_datasets, datasets)):
        if hasattr(getattr(dataset, 'pipeline', None), 'transforms'):
            guard_loaders(dataset.pipeline)
    classes = [dataset.metainfo.get('classes') for dataset in datasets]
    if classes[0] != classes[1]:
        raise UserError(f'{names[0]} and {names[1]} have different classes ({classes[0]}; '
                        f'{classes[1]}): their labels would not mean the same')
    return tuple(Runner.build_dataloader(dict(
        dataset=random_part(dataset, count, seed), batch_size=batch_size, num_workers=num_workers,
        sampler=dict(type='DefaultSampler', shuffle=False)))
        for dataset, count in zip(datasets, counts))


def random_part(dataset: Dataset, count: int | None, seed: int) -> Dataset:
    """``count`` images at random, in the order of the data set; all of them if None.

    Raises:
        UserError: if there are fewer.
    """
    if count is None:
        return dataset
    if not 0 < count <= len(dataset):
        raise UserError(f'{count} images of {len(dataset)}: expected from 1 to {len(dataset)}')
    order = torch.randperm(len(dataset), generator=torch.Generator().manual_seed(seed))
    return Subset(dataset, sorted(order[:count].tolist()))


def dataset_of(loader: DataLoader) -> Dataset:
    """The data set of a loader, whole."""
    return loader.dataset.dataset if isinstance(loader.dataset, Subset) else loader.dataset


def with_progress(loader: DataLoader, what: str) -> Iterator[dict]:
    """The batches of a loader, with a progress bar over its images."""
    print(f'{what} {len(loader.dataset)} images', flush=True)
    bar = ProgressBar(len(loader.dataset), file=sys.stdout)
    for batch in loader:
        yield batch
        bar.update(len(batch['inputs']))
    bar.file.write('\n')
