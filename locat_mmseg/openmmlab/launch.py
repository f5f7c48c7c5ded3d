"""What the tools share: from a command line to a config and its Runner."""
import argparse
import difflib
import inspect
import os
import os.path as osp
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mmengine.config import Config, DictAction
from mmengine.registry import RUNNERS
from mmengine.runner import Runner, find_latest_checkpoint

from ..addon.weight_sources import REMOTE
from .amp import fit_amp_to_device
from .distributed import prepare_launch
from .errors import UserError, first_line, place_of, warn
from .preflight import check_data

# What a config may hold beside the arguments of the Runner.
_OTHER_KEYS = ('activation_checkpointing', 'compile', 'custom_imports', 'efficient_conv_bn_eval',
               'find_unused_parameters', 'model_wrapper_cfg', 'runner_type', 'sync_bn',
               'tta_model', 'tta_pipeline')


class _Options(DictAction):
    """DictAction whose mistakes argparse reports."""

    def __call__(self, parser, namespace, values, option_string=None) -> None:
        try:
            super().__call__(parser, namespace, values, option_string)
        except (ValueError, AssertionError):
            parser.error(f'{option_string} takes KEY=VALUE pairs without spaces, got '
                         f'{" ".join(values)!r}')


def make_config_parser(description: str, config_needed: bool = True) -> argparse.ArgumentParser:
    """A parser with the arguments of a tool that reads a config and runs in one process.

    Args:
        description: of the tool.
        config_needed: False for a tool that can also run without a config.
    """
    parser = argparse.ArgumentParser(
        description=description, epilog='A mistake ends in one sentence. With LOCAT_TRACEBACK=1 '
        'in the environment it ends in its full traceback.')
    add_config_arguments(parser, config_needed)
    parser.add_argument('--work-dir', help='folder for logs, checkpoints and results; by default '
                        'that of the config, else ./work_dirs/<its path below configs/>')
    parser.set_defaults(local_rank=0)
    return parser


def make_parser(description: str, config_needed: bool = True) -> argparse.ArgumentParser:
    """A parser with the arguments of a tool that can run in several processes, too; arguments as
    in :func:`make_config_parser`."""
    parser = make_config_parser(description, config_needed)
    parser.add_argument('--launcher', choices=['none', 'pytorch', 'slurm', 'mpi'], default='none',
                        help='pytorch: started by torchrun, with or without GPUs')
    # torch.distributed.launch passes it; torchrun sets LOCAL_RANK instead.
    parser.add_argument('--local_rank', '--local-rank', type=int, default=0,
                        help=argparse.SUPPRESS)
    return parser


def add_config_arguments(parser: argparse.ArgumentParser, config_needed: bool = True) -> None:
    """Arguments that name a config and change it, for :func:`read_config`."""
    parser.add_argument('config', nargs=None if config_needed else '?', help='config file')
    parser.add_argument('--cfg-options', nargs='+', action=_Options, default={},
                        metavar='KEY=VALUE', help='override the config: '
                        'model.backbone.with_cp=True train_dataloader.batch_size=2 '
                        'key="[(a,b),(c,d)]"; a list of dicts cannot be given, but one element '
                        'can: custom_hooks.0.type=...')


def read_config(path: str, options: dict[str, Any]) -> Config:
    """The config of a file, with ``--cfg-options`` applied.

    Raises:
        UserError: There is no such file, it cannot be evaluated, or an option does not fit or
            has no effect.
    """
    cfg = _evaluate(path)
    _check_keys(cfg, options)
    try:
        cfg.merge_from_dict(options)
    except (KeyError, TypeError, AttributeError) as error:
        raise UserError(f'--cfg-options do not fit {path} ({first_line(error)}): compare '
                        'the keys with the config') from error
    return cfg


def load_config(args: argparse.Namespace) -> Config:
    """The config of a command line of :func:`make_parser`, its work_dir set; errors as in
    :func:`read_config`."""
    os.environ.setdefault('LOCAL_RANK', str(args.local_rank))
    cfg = read_config(args.config, args.cfg_options)
    cfg.work_dir = args.work_dir or cfg.get('work_dir') or default_work_dir(args.config)
    return cfg


def default_work_dir(config: str) -> str:
    """Where a config runs if nothing else is said: its path below ``configs/``, since a config and
    its plain twin, in another folder, have the same name."""
    path = Path(config).resolve().with_suffix('')
    folders = path.parts[:-1]
    if 'configs' in folders:
        return osp.join('work_dirs', *path.parts[len(folders) - folders[::-1].index('configs'):])
    return osp.join('work_dirs', path.name)


def check_complete(cfg: Config, loaders: tuple[str, ...]) -> None:
    """Whether a config has all that reading some loaders takes.

    Args:
        cfg: The whole config.
        loaders: Such as ('train_dataloader', 'val_dataloader'). That of the validation may be
            missing, but then with its loop and evaluator.

    Raises:
        UserError: Something is missing.
    """
    for loader in loaders:
        split = loader.removesuffix('_dataloader')
        keys = (loader, f'{split}_cfg', 'optim_wrapper' if split == 'train' else
                f'{split}_evaluator')
        missing = [key for key in keys if cfg.get(key) is None]
        if missing and not (split == 'val' and len(missing) == len(keys)):
            raise UserError(f'the config has no {" and no ".join(missing)}: '
                            f'{", ".join(keys)} are needed together')


def build_runner(cfg: Config, launcher: str, loaders: tuple[str, ...]) -> Runner:
    """Fit a config to this machine, look whether its data is there, build its Runner.

    Args:
        cfg: Changed in place.
        launcher: As for :func:`distributed.prepare_launch`.
        loaders: Which data will be read, such as ('test_dataloader',).

    Raises:
        UserError: See :func:`distributed.prepare_launch` and :func:`preflight.check_data`.
    """
    prepare_launch(cfg, launcher)
    if cfg.get('optim_wrapper'):
        fit_amp_to_device(cfg)
    for loader in loaders:
        _fit_workers(cfg.get(loader) or {})
    check_data(cfg, loaders)
    return RUNNERS.build(cfg) if 'runner_type' in cfg else Runner.from_cfg(cfg)


def check_checkpoint(path: str) -> str:
    """Return the path of a checkpoint.

    Raises:
        UserError: It is a local path where no file is.
    """
    if not path:
        raise UserError('the name of the checkpoint is empty: give the path of a .pth file; a '
                        'training that has not saved one yet has no last_checkpoint to read')
    if osp.isdir(osp.expanduser(path)):
        raise UserError(f'checkpoint {path} is a folder: give the path of a file in it')
    if '://' not in path and not path.startswith(REMOTE) and not osp.isfile(osp.expanduser(path)):
        raise UserError(f'checkpoint {path} does not exist{_similar_file(path)}: give the path of '
                        'a .pth file')
    return path


def last_checkpoint(work_dir: str) -> str | None:
    """The checkpoint that training in a folder saved last; None if there is none.

    mmengine notes its absolute path. In a copied or moved folder the file lies beside the note.

    Raises:
        UserError: A checkpoint is noted, but there is no such file in either place.
    """
    if not osp.isfile(osp.join(work_dir, 'last_checkpoint')):
        return None
    noted = find_latest_checkpoint(work_dir)
    beside = osp.join(work_dir, osp.basename(noted))
    for path in (beside, noted):
        if osp.isfile(path):
            return path
    raise UserError(f'{work_dir}/last_checkpoint names {noted}, which does not exist: give a '
                    'checkpoint with --resume PATH')


def _fit_workers(loader: dict) -> None:
    """Without worker processes, drop the settings that torch then refuses."""
    if loader.get('num_workers', 0) == 0:
        loader.pop('persistent_workers', None)
        loader.pop('prefetch_factor', None)


def _evaluate(path: str) -> Config:
    if not osp.isfile(path):
        raise UserError(f'config {path} does not exist{_similar_file(path)}: give the path of a '
                        'config file')
    try:
        return Config.fromfile(path)
    except ImportError as error:
        if error.__cause__ is None:
            raise UserError(f'config {path} cannot be read: {_reason(error)}') from error
        reason = error.__cause__.__context__ or error.__cause__
        raise UserError(f'custom_imports of config {path} failed ({_reason(reason)}): install '
                        'that package, or add its folder to PYTHONPATH') from error
    except Exception as error:  # a config is a program: it may fail in any way
        raise UserError(f'config {path} cannot be read: {_reason(error)}') from error


def _reason(error: BaseException) -> str:
    return first_line(error) + place_of(error)


def _similar_file(path: str) -> str:
    folder = Path(path).parent
    names = [p.name for p in folder.iterdir()] if folder.is_dir() else []
    close = difflib.get_close_matches(Path(path).name, names, n=1)
    return f' (did you mean {folder / close[0]}?)' if close else ''


def _check_keys(cfg: Config, options: dict) -> None:
    """Refuse options for a config's helper variables, warn of those that are new.

    mmengine puts the options into the evaluated config, where nothing depends on its variables
    any more.
    """
    read = {*inspect.signature(Runner.__init__).parameters, *_OTHER_KEYS}
    if 'data_preprocessor' in (cfg.get('model') or {}):
        read.remove('data_preprocessor')  # the Runner takes that of the model
    for option in options:
        key, _, rest = option.partition('.')
        if key in cfg and key not in read:
            places = [place for part in read & cfg.keys()
                      for place in _places_of(cfg[key], cfg[part], part)]
            advice = ', '.join(f'{place}.{rest}'.rstrip('.') for place in sorted(places)) or \
                'the key where its value went'
            raise UserError(f'--cfg-options sets {option}, which is a variable of the config that '
                            f'nothing reads after it: set {advice}')
    for key in {option.partition('.')[0]: None for option in options}:
        if key not in cfg and key not in read:
            close = difflib.get_close_matches(key, {*cfg.keys(), *read}, n=1)
            hint = f'; did you mean {close[0]}?' if close else ''
            warn(f'--cfg-options sets {key}, which is no key of the config and nothing reads '
                 f'it{hint}')


def _places_of(value: Any, node: Any, place: str) -> Iterator[str]:
    """Where a value is found in a part of a config."""
    if type(node) is type(value) and node == value:
        yield place
        return
    items = node.items() if isinstance(node, dict) else \
        enumerate(node) if isinstance(node, (list, tuple)) else ()
    for key, child in items:
        yield from _places_of(value, child, f'{place}.{key}')
