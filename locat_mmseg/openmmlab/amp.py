"""Mixed precision where there is no accelerator."""
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from mmengine.config import Config
from mmengine.device import (is_cuda_available, is_mlu_available, is_musa_available,
                             is_npu_available)
from mmengine.optim import OptimWrapper
from mmengine.registry import OPTIM_WRAPPERS
from torch import nn

from .errors import UserError, warn


@OPTIM_WRAPPERS.register_module()
class BFloat16OptimWrapper(OptimWrapper):
    """Forward passes and losses under bfloat16 autocast, on any device.

    bfloat16 has the exponents of float32, so the loss needs no scaling.
    """

    @contextmanager
    def optim_context(self, model: nn.Module) -> Iterator[None]:
        """Autocast, and no gradient synchronization while gradients accumulate."""
        device = next(model.parameters()).device.type
        with super().optim_context(model), torch.autocast(device, dtype=torch.bfloat16):
            yield


def has_accelerator() -> bool:
    """Whether mmengine's AmpOptimWrapper and its device-bound launchers can run here."""
    return is_cuda_available() or is_npu_available() or is_mlu_available() or is_musa_available()


def enable_amp(cfg: Config) -> None:
    """Switch a config's optimizer wrapper to mixed precision, in place; the rest of it stays.

    Raises:
        UserError: The wrapper is of a type that has no mixed-precision twin.
    """
    kind = cfg.optim_wrapper.get('type', 'OptimWrapper')
    if kind not in ('OptimWrapper', 'AmpOptimWrapper'):
        raise UserError(f"--amp replaces optim_wrapper.type='OptimWrapper', but the config has "
                        f'{kind!r}: leave out --amp, or change the type')
    cfg.optim_wrapper.type = 'AmpOptimWrapper'
    cfg.optim_wrapper.setdefault('loss_scale', 'dynamic')


def fit_amp_to_device(cfg: Config) -> None:
    """Without an accelerator, replace AmpOptimWrapper in place, with one warning."""
    if has_accelerator() or cfg.optim_wrapper.get('type') != 'AmpOptimWrapper':
        return
    for key in ('loss_scale', 'dtype', 'use_fsdp'):
        cfg.optim_wrapper.pop(key, None)
    cfg.optim_wrapper.type = 'BFloat16OptimWrapper'
    warn('no accelerator found: mixed precision runs as bfloat16 autocast on the CPU, which '
         'saves memory but not always time')
