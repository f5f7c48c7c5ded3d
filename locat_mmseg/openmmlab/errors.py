"""A user's mistake ends in one sentence, a defect in its traceback.

What this package raises on purpose is a sentence already. For the mistakes that surface inside
OpenMMLab (an unknown type, a wrong argument, a broken checkpoint, a failed download) the sentence
is written here, and only if the traceback proves that it is this mistake; all else passes through.
"""
import difflib
import os
import re
import sysconfig
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from urllib.error import URLError

from mmengine import registry as registries
from mmengine.registry import Registry, build_from_cfg, build_scheduler_from_cfg
from mmengine.runner import CheckpointLoader

_PACKAGE = str(Path(__file__).resolve().parents[1])
_SCOPES = ('mmseg', 'mmpretrain')
_LIBRARIES = (_PACKAGE + os.sep, sysconfig.get_path('stdlib') + os.sep, '<')
_BUILDERS = (build_from_cfg.__code__, build_scheduler_from_cfg.__code__)


class UserError(ValueError):
    """A mistake in a config, a command line or a file; its text is the sentence to print."""


class FileError(UserError):
    """A fault of one file of a data set, which perhaps no other process reads."""


@contextmanager
def one_sentence_errors() -> Iterator[None]:
    """Turn a user's mistake into ``error: <sentence>`` on stderr and exit status 1.

    Under torchrun the first process of each machine prints it for all of them, unless it is about
    a file. With LOCAT_TRACEBACK=1 in the environment the traceback is shown instead.

    Raises:
        SystemExit: For a user's mistake. Any other exception passes through unchanged.
    """
    try:
        yield
    except Exception as error:
        sentence = explain(error)
        if sentence is None or os.environ.get('LOCAT_TRACEBACK') == '1':
            raise
        other_process = 'RANK' in os.environ and os.environ.get('LOCAL_RANK', '0') != '0'
        silent = other_process and not isinstance(error, FileError)
        raise SystemExit(1 if silent else f'error: {sentence}') from error


def explain(error: Exception) -> str | None:
    """The sentence for a user's mistake, None for anything else."""
    for explanation in (_raised_here, _no_type, _unknown_type, _wrong_argument, _refused_value,
                        _unreadable_checkpoint, _failed_download):
        sentence = explanation(error)
        if sentence is not None:
            return sentence
    return None


def warn(message: str) -> None:
    """Warn, in the first process of a distributed run only."""
    if os.environ.get('RANK', '0') == '0':
        warnings.warn(message, stacklevel=3)


def first_line(error: BaseException) -> str:
    """Type and first line of an error's text, to be quoted in a sentence."""
    text = str(error).strip().partition('\n')[0]
    return f'{type(error).__name__}: {text}' if text else type(error).__name__


def place_of(error: BaseException) -> str:
    """' at FILE:LINE' for the innermost call in code that is neither a library's nor this
    package's, such as a config or a user's transform; '' if there is none.

    Calls outside of the innermost building from a config do not count: they are the tool's.
    """
    for frame, line in reversed(list(traceback.walk_tb(error.__traceback__))):
        if frame.f_code in _BUILDERS:
            break
        file = frame.f_code.co_filename
        if not file.startswith(_LIBRARIES) and \
                not {'site-packages', 'dist-packages'} & set(Path(file).parts):
            return f' at {file}:{line}'
    return ''


def _raised_here(error: Exception) -> str | None:
    if isinstance(error, UserError):
        # A data loader's worker sends the whole traceback as text, the sentence at its end.
        return str(error).rpartition(f'{type(error).__name__}: ')[2].strip()
    if isinstance(error, ValueError) and error.__traceback__ is not None:
        place = traceback.extract_tb(error.__traceback__)[-1]
        # By the package's rule a ValueError is about what the user gave; one that no `raise`
        # statement made (say, a failed unpacking) is a defect.
        if place.filename.startswith(_PACKAGE) and place.line.startswith('raise '):
            return str(error)
        return _raised_in_worker(error)
    return None


def _raised_in_worker(error: ValueError) -> str | None:
    """The sentence of this package's ValueError in a data loader's worker, which sends the whole
    traceback as text."""
    text = str(error)
    *_, place = re.findall(r'^  File "(.*)", line \d+, in .*\n    (.*)$', text, re.M) or [('', '')]
    if 'in DataLoader worker' in text and place[0].startswith(_PACKAGE) \
            and place[1].startswith('raise '):
        return re.split(rf'^(?:[\w.]+\.)?{type(error).__name__}: ', text, flags=re.M)[-1].strip()
    return None


def _no_type(error: Exception) -> str | None:
    if isinstance(error, KeyError) and 'must contain the key "type"' in str(error):
        builder = _frames(error)[-1].f_locals
        return f"the config lacks type='...' in a dict from which a {builder['registry'].name} " \
               f"is built; its keys are {', '.join(builder['cfg']) or 'none'}"
    return None


def _unknown_type(error: Exception) -> str | None:
    match = re.search(r'(\S+) is not in the (?:(\S+)::)?(.+?) registry', str(error))
    if not isinstance(error, KeyError) or match is None:
        return None
    name, scope, kind = match.groups()
    name, scope = name.lstrip('\'"'), scope or 'mmengine'
    bare = name.rpartition('.')[2]
    homes = {r.scope: set(r.module_dict) for r in _registries(kind)}
    if bare in homes.get('mmengine', ()):
        advice = f"write type='{bare}', without a scope before it"
    elif found := [s for s in homes if bare in homes[s]]:
        advice = f"{found[0]} has it: write type='{found[0]}.{bare}', or default_scope = " \
                 f"'{found[0]}' if the whole config is for {found[0]}"
    else:
        known = homes.get('mmengine', set()) | homes.get(scope, set())
        close = difflib.get_close_matches(bare, known, n=1)
        advice = (f'did you mean {close[0]!r}? ' if close else '') + \
            'If it is a class of your own, name the module that defines it: custom_imports = ' \
            "dict(imports=['your_module'], allow_failed_imports=False)"
    return f"the config asks for type='{name}', which is no {kind} known to {scope}: {advice}"


def _registries(kind: str) -> list[Registry]:
    """The root registry of a kind and its children, filled."""
    for scope in _SCOPES:
        if find_spec(scope) is not None:
            import_module(f'{scope}.registry')
    roots = [r for r in vars(registries).values() if isinstance(r, Registry)]
    family = [r for root in roots for r in (root, *root.children.values()) if r.name == kind]
    for registry in family:
        registry.import_from_location()
    return family


def _wrong_argument(error: Exception) -> str | None:
    builds = _builds(error)
    if not isinstance(error, TypeError) or not builds:
        return None
    keyword = re.search(r"unexpected keyword argument '(\w+)'", str(error))
    from_config = keyword and any(keyword[1] in f.f_locals.get('args', ()) for f in builds)
    if not from_config and _frames(error)[-1] is not builds[-1]:
        return None  # the arguments were taken; what failed is inside
    return f'the config cannot build {_built(builds)}: {error}; check the spelling of its arguments'


def _refused_value(error: Exception) -> str | None:
    builds = _builds(error)
    if not isinstance(error, (ValueError, AssertionError)) or not builds or not str(error):
        return None
    # Only what a library checks on purpose, not an error that its code runs into.
    if not traceback.extract_tb(error.__traceback__)[-1].line.startswith(('raise ', 'assert ')):
        return None
    return f'the config cannot build {_built(builds)}: {first_line(error)}{place_of(error)}'


def _unreadable_checkpoint(error: Exception) -> str | None:
    for frame in _frames(error):
        if frame.f_code is CheckpointLoader.load_checkpoint.__func__.__code__:
            return f'checkpoint {frame.f_locals["filename"]} cannot be read ' \
                   f'({first_line(error)}): it is missing, incomplete or no PyTorch checkpoint; ' \
                   'copy or download it again, and give its path'
    return None


def _failed_download(error: Exception) -> str | None:
    if not isinstance(error, URLError):
        return None
    for frame in _frames(error):
        dataset = frame.f_locals.get('self')
        if hasattr(dataset, 'url') and hasattr(dataset, 'data_prefix'):
            return f'{type(dataset).__name__} is not in {dataset.data_prefix["root"]} and cannot ' \
                   f'be downloaded ({error.reason}): fetch {dataset.url} on a machine with ' \
                   "network and unpack it there, or set the data set's data_root"
    return None


def _builds(error: Exception) -> list[FrameType]:
    """The calls in which something was being built from a config, outermost first."""
    return [frame for frame in _frames(error) if frame.f_code in _BUILDERS]


def _built(builds: list[FrameType]) -> str:
    names = builds[-1].f_locals
    kind = names.get('obj_type') or names.get('scheduler_type')
    return getattr(kind, '__name__', str(kind))


def _frames(error: Exception) -> list[FrameType]:
    return [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
