"""How mmengine reads every checkpoint once this package is imported: without running code from it.

mmengine's own loader unpickles anything as soon as its safe way fails, and files from the network
at once. This one is registered in its place, so it holds for ``init_cfg``, ``load_from``, resuming
and testing, in every OpenMMLab project. mmengine's further schemes (``s3://``, ``torchvision://``,
``open-mmlab://`` and the like) stay as they are.
"""
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
from mmengine.dist import barrier, get_rank
from mmengine.logging import HistoryBuffer
from mmengine.runner import CheckpointLoader

from ..addon.weight_sources import REMOTE, read_source


def history_method(cls: type, name: str) -> Callable:
    """What a checkpoint gets for the builtin getattr.

    mmengine's log pickles references to its four statistics, for which mmengine's own loading
    allows getattr as it is: with it a file reaches the globals of any function, and so can run
    anything.
    """
    if cls is not HistoryBuffer or name not in ('min', 'max', 'current', 'mean'):
        raise pickle.UnpicklingError(f'getattr of {name} is not allowed')
    return getattr(cls, name)


_multiarray = (getattr(np, '_core', None) or np.core).multiarray  # numpy 2, numpy 1
# What mmengine writes into a checkpoint: its log of scalars, in arrays, and the scores of a
# validation, such as IoUMetric's float32.
MMENGINE_CLASSES = [
    HistoryBuffer, (history_method, 'builtins.getattr'), np.ndarray, np.dtype, slice,
    *(type(np.dtype(name)) for name in ('float32', 'float64', 'int64', 'uint32')),
    *((getattr(_multiarray, name), f'numpy.{core}.multiarray.{name}')
      for name in ('_reconstruct', 'scalar') for core in ('_core', 'core')),
]
_trusted: ContextVar[bool] = ContextVar('trusted', default=False)


@contextmanager
def trusting(trust: bool) -> Iterator[None]:
    """Let `CheckpointLoader` unpickle anything, if ``trust`` is True."""
    token = _trusted.set(trust)
    try:
        yield
    finally:
        _trusted.reset(token)


@CheckpointLoader.register_scheme(prefixes=('', *REMOTE), force=True)
def load_from_locat_mmseg(filename: str, map_location: Any = None) -> Any:
    """Load a checkpoint for `CheckpointLoader`; see `read_source`."""
    if not filename.startswith(REMOTE):
        return read_source(filename, map_location, MMENGINE_CLASSES, _trusted.get())
    # The first process downloads, the others then find its copy.
    is_first = get_rank() == 0
    if not is_first:
        barrier()
    try:
        return read_source(filename, map_location, MMENGINE_CLASSES, _trusted.get())
    finally:
        if is_first:
            barrier()
