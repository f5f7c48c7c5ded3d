"""Loader of the reference tensors in ``tests/golden``; its README says what each file holds."""
import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

FOLDER = Path(__file__).with_name('golden')


class Golden(NamedTuple):
    """One reference run: sizes and settings, state dict, inputs and outputs by name."""
    meta: dict[str, Any]
    state: dict[str, Tensor]
    inputs: dict[str, Tensor]
    outputs: dict[str, Tensor]


def load_golden(name: str) -> Golden:
    """Read ``tests/golden/NAME.npz``."""
    groups: dict[str, dict[str, Tensor]] = {'state': {}, 'in': {}, 'out': {}}
    with np.load(FOLDER / f'{name}.npz') as arrays:
        meta = json.loads(str(arrays['meta']))
        for key in arrays.files:
            group, _, rest = key.partition('/')
            if rest:
                groups[group][rest] = torch.from_numpy(arrays[key])
    return Golden(meta, *groups.values())


def relative_error(actual: Tensor, expected: Tensor) -> float:
    """Norm of the difference over the norm of what was expected."""
    return ((actual - expected).norm() / expected.norm()).item()
