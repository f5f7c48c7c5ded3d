"""Look whether the data of a config is there, before anything heavy is built.

Paths are judged from the config's text, so that the sentence can name the key to change; what a
data set adds by itself (suffixes, class folders) is asked from the class, built without loading.
"""
import inspect
import os.path as osp
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from mmengine.config import Config
from mmengine.dataset import BaseDataset
from mmengine.fileio import list_dir_or_file, list_from_file
from mmengine.registry import DATASETS, init_default_scope

from .errors import UserError, place_of

_LOOK_AT = 10000  # files, when telling which suffixes a folder has


def check_data(cfg: Config, loaders: tuple[str, ...]) -> None:
    """Check the data sets of some loaders.

    Args:
        cfg: The whole config.
        loaders: Such as ('train_dataloader', 'val_dataloader'); those that are not set are fine.

    Raises:
        UserError: A path does not exist or holds no file of the right suffix. The sentence names
            the path, the key of the config and what to do.
    """
    init_default_scope(cfg.get('default_scope', 'mmengine'))
    for loader in loaders:
        if cfg.get(loader):
            for key, dataset in leaves(f'{loader}.dataset', cfg[loader].dataset):
                cls = _class_of(dataset)
                if hasattr(cls, 'url') and dataset.get('download', True):
                    continue  # it fetches what is missing
                _check_paths(key, dataset)
                if cls is None or inspect.isclass(cls) and issubclass(cls, BaseDataset):
                    _check_files(key, dataset)


def leaves(key: str, dataset: dict) -> Iterator[tuple[str, dict]]:
    """The data sets inside wrappers such as ConcatDataset and RepeatDataset, with their keys."""
    inside = dataset.get('datasets') or ([dataset['dataset']] if 'dataset' in dataset else [])
    if not inside:
        yield key, dataset
    for number, child in enumerate(inside):
        name = f'datasets.{number}' if 'datasets' in dataset else 'dataset'
        yield from leaves(f'{key}.{name}', child)


def _class_of(dataset: dict) -> Any:
    """The class (or function) that a config names, None if there is none of that name."""
    cls = dataset.get('type')
    if isinstance(cls, str):
        with DATASETS.switch_scope_and_registry(None) as registry:
            cls = registry.get(cls)
    return cls


def _check_paths(key: str, dataset: dict) -> None:
    root = dataset.get('data_root') or ''
    if root and not _exists(root):
        raise UserError(f'{key}.data_root is {root}, which does not exist: put the data there or '
                        f'set --cfg-options {key}.data_root=FOLDER')
    prefixes = dataset.get('data_prefix') or {}
    paths = {'data_prefix': prefixes} if isinstance(prefixes, str) else {
        f'data_prefix.{name}': path for name, path in prefixes.items()}
    paths['ann_file'] = dataset.get('ann_file')
    for name, path in paths.items():
        where = osp.join(root, path) if path else root
        if path and not _exists(where):
            raise UserError(f'{key}.{name} is {path!r}, and {where} does not exist: put the data '
                            f'there, or set {key}.data_root and {key}.{name}')


def _check_files(key: str, config: dict) -> None:
    try:
        dataset = DATASETS.build(dict(config, pipeline=[], lazy_init=True))
    except (AssertionError, ValueError) as error:
        raise UserError(f'{key} is not right: {error}{place_of(error)}') from error
    except TypeError:
        return  # a class that cannot be built without loading; as the Runner builds it, it tells
    prefix = dataset.data_prefix
    if hasattr(dataset, 'img_suffix') and 'seg_map_path' in prefix:
        _check_segmentation(key, dataset)
    elif hasattr(dataset, 'extensions') and not dataset.ann_file:
        _check_class_folders(key, dataset)
    elif hasattr(dataset, 'base_folder'):
        folder = osp.join(prefix['root'], dataset.base_folder)
        if not _exists(folder):
            raise UserError(f'{folder} does not exist: fetch {dataset.url} and unpack it in '
                            f"{prefix['root']}, or set {key}.data_root")


def _check_segmentation(key: str, dataset: BaseDataset) -> None:
    """The first image has the suffix, and its label map the other; later ones are sampled."""
    images, labels = (dataset.data_prefix.get(k) for k in ('img_path', 'seg_map_path'))
    if not images or not _is_local(images):
        return
    if dataset.ann_file and not osp.isdir(dataset.ann_file):
        names = list_from_file(dataset.ann_file)
        if not names:
            raise UserError(f'{key}.ann_file {dataset.ann_file} is empty: it names one image a '
                            'line, without suffix')
        stem = names[0].strip()
        if not osp.isfile(osp.join(images, stem + dataset.img_suffix)):
            raise UserError(_no_file(images, stem + dataset.img_suffix, f'{key}.img_suffix'))
    else:
        first = next(list_dir_or_file(images, list_dir=False, suffix=dataset.img_suffix,
                                      recursive=True), None)
        if first is None:
            raise UserError(_no_file(images, f'*{dataset.img_suffix}', f'{key}.img_suffix'))
        stem = first[:-len(dataset.img_suffix)]
    if labels and not osp.isfile(osp.join(labels, stem + dataset.seg_map_suffix)):
        raise UserError(_no_file(labels, stem + dataset.seg_map_suffix, f'{key}.seg_map_suffix'))


def _check_class_folders(key: str, dataset: BaseDataset) -> None:
    folder = dataset.img_prefix
    if not _is_local(folder):
        return
    if not osp.isdir(folder):
        raise UserError(f'{folder} does not exist: put the data there, or set {key}.data_root')
    wanted = f'*{{{",".join(sorted(dataset.extensions))}}}'
    found = list_dir_or_file(folder, list_dir=False, recursive=True)
    if not any(dataset.is_valid_file(name) for name in found):
        raise UserError(_no_file(folder, wanted, f'{key}.extensions'))
    classes = list(list_dir_or_file(folder, list_file=False))
    if dataset.with_label and not classes:
        raise UserError(f'{folder} has no folder per class: sort the images into folders named '
                        f'after their classes, or give a list of files and labels in '
                        f'{key}.ann_file')
    if dataset.with_label and dataset.CLASSES and len(classes) != len(dataset.CLASSES):
        raise UserError(f'{folder} has {len(classes)} class folders, but '
                        f'{type(dataset).__name__} has {len(dataset.CLASSES)} classes: add the '
                        f"missing ones, or use {key}.type='CustomDataset' and set num_classes")


def _no_file(folder: str, wanted: str, key: str) -> str:
    names = islice(list_dir_or_file(folder, list_dir=False, recursive=True), _LOOK_AT)
    suffixes = Counter(Path(name).suffix or 'no suffix' for name in names).most_common(4)
    found = ', '.join(f'{count} x {suffix}' for suffix, count in suffixes) or 'no file at all'
    return f'{folder} has no {wanted}; it has {found}: put the data there or set {key}'


def _is_local(path: str) -> bool:
    return '://' not in path


def _exists(path: str) -> bool:
    return not _is_local(path) or osp.exists(osp.expanduser(path))
