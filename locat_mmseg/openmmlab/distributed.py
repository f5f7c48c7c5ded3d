"""Several processes without an accelerator: ``torchrun ... --launcher pytorch`` over gloo.

mmengine's launcher binds each process to a GPU before anything else, and its Runner hands the
GPU's number to DistributedDataParallel. Here the process group exists before the Runner is built,
which then leaves it alone, and the model wrapper drops the number.
"""
import os
from datetime import timedelta

import torch.distributed as dist
from mmengine.config import Config
from mmengine.model import MMDistributedDataParallel
from mmengine.registry import MODEL_WRAPPERS
from torch import nn

from .amp import has_accelerator
from .errors import UserError, warn

_TORCHRUN_VARIABLES = ('RANK', 'LOCAL_RANK', 'WORLD_SIZE', 'MASTER_ADDR', 'MASTER_PORT')
_DEFAULT_WRAPPER = 'MMDistributedDataParallel'


@MODEL_WRAPPERS.register_module()
class CPUDistributedDataParallel(MMDistributedDataParallel):
    """MMDistributedDataParallel that stays on the CPU.

    Args:
        module: The model.
        device_ids: Ignored; the Runner always passes it.
        **kwargs: As for MMDistributedDataParallel.
    """

    def __init__(self, module: nn.Module, device_ids: list[int] | None = None, **kwargs) -> None:
        super().__init__(module=module, **kwargs)


def prepare_launch(cfg: Config, launcher: str) -> None:
    """Set the launcher in a config; without an accelerator, also start gloo and adapt the model.

    Args:
        cfg: Changed in place.
        launcher: 'none', 'pytorch' (torchrun), 'slurm' or 'mpi'.

    Raises:
        UserError: torchrun did not start this process, or the launcher or the model wrapper
            needs accelerators and there are none.
    """
    cfg.launcher = launcher
    if launcher == 'none':
        return
    if launcher == 'pytorch':
        _check_torchrun()
    if has_accelerator():
        return
    if launcher != 'pytorch':
        raise UserError(f'--launcher {launcher} needs an accelerator in each process and there '
                        'is none: use torchrun with --launcher pytorch (tools/dist_train.sh)')
    _replace_sync_bn(cfg)
    _wrap_for_cpu(cfg)
    if not dist.is_initialized():
        seconds = cfg.get('env_cfg', {}).get('dist_cfg', {}).get('timeout', 1800)
        dist.init_process_group('gloo', timeout=timedelta(seconds=seconds))


def end_launch() -> None:
    """End the process group, if there is one, after all processes have come here.

    A process that leaves while its communication threads run is sometimes aborted, and torchrun
    then calls a finished run a failed one.
    """
    if dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()


def _check_torchrun() -> None:
    missing = [name for name in _TORCHRUN_VARIABLES if name not in os.environ]
    if missing:
        raise UserError(f'--launcher pytorch needs {", ".join(missing)} in the environment: start '
                        'with torchrun --nproc_per_node=N (tools/dist_train.sh CONFIG N), or '
                        'leave out --launcher for one process')


def _wrap_for_cpu(cfg: Config) -> None:
    wrapper = dict(broadcast_buffers=False,
                   find_unused_parameters=cfg.get('find_unused_parameters', False))
    wrapper.update(cfg.get('model_wrapper_cfg') or {})
    kind = wrapper.get('type', _DEFAULT_WRAPPER)
    if kind != _DEFAULT_WRAPPER:
        raise UserError(f"model_wrapper_cfg.type='{kind}' needs accelerators and there are none: "
                        'leave model_wrapper_cfg out, or run one process')
    cfg.model_wrapper_cfg = dict(wrapper, type='CPUDistributedDataParallel')


def _replace_sync_bn(cfg: Config) -> None:
    """BN instead of SyncBN, which exists on GPUs only; one warning if there was any."""
    found = cfg.pop('sync_bn', None) is not None
    waiting = [cfg.model]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict) and node.get('type') == 'SyncBN':
            node['type'] = 'BN'
            found = True
        children = node.values() if isinstance(node, dict) else node
        waiting.extend(c for c in children if isinstance(c, (dict, list, tuple)))
    if found:
        warn('SyncBN does not run on the CPU: replaced by BN, whose statistics are of one '
             "process's images")
