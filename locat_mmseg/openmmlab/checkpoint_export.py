"""Checkpoints to give away: in timm's names, or stripped of all but weights and class names."""
import hashlib
import io
import re
from pathlib import Path

import torch
from mmengine.runner import CheckpointLoader
from safetensors.torch import save_file

from ..addon.foreign_weights import StateDict, to_timm
from ..addon.weight_sources import select, unwrap
from .errors import UserError

PUBLISHED_META = ('dataset_meta', 'epoch', 'iter', 'mmengine_version')


def in_timm_names(state_dict: StateDict) -> tuple[StateDict, list[str]]:
    """A model's weights as timm and the LocAtViT reference name them.

    Args:
        state_dict: a classifier's, a segmentor's or a bare backbone's, of this package or of any
            project that `to_timm` knows.

    Returns:
        What timm has a place for: backbone, ``fc_norm`` and a linear classifier; and the names of
        the rest: a segmentor's heads, the norms of a Swin's maps.
    """
    if any(name.startswith('backbone.') for name in state_dict):
        weights, outside = select(state_dict, 'backbone.', 'the checkpoint')
    else:
        weights, outside = to_timm(state_dict), []
    left = [name for name in weights if name.startswith('out_norms.')]
    weights = {name: weight for name, weight in weights.items() if name not in left}
    is_swin = any(name.startswith('layers.0.blocks.') for name in weights)
    for name in outside:
        if match := re.fullmatch(r'neck\.(fc_norm\.\w+)', name):
            weights[match[1]] = state_dict[name]
        elif match := re.fullmatch(r'head\.(?:fc|layers\.head)\.(weight|bias)', name):
            weights[('head.fc.' if is_swin else 'head.') + match[1]] = state_dict[name]
        else:
            left.append(name)
    return weights, left


def in_own_names(weights: StateDict) -> StateDict:
    """The inverse of `in_timm_names`: a classifier of this package."""
    def new(name: str) -> str:
        if match := re.fullmatch(r'head\.(?:fc\.)?(weight|bias)', name):
            return f'head.fc.{match[1]}'
        return f'neck.{name}' if name.startswith('fc_norm.') else f'backbone.model.{name}'
    return {new(name): weight for name, weight in weights.items()}


def write_timm(state_dict: StateDict, path: str) -> list[str]:
    """Write weights in timm's names as safetensors; returns the names that have no place there."""
    check_suffix(path, '.safetensors')
    weights, left = in_timm_names(state_dict)
    # safetensors takes neither views nor tensors that share their memory.
    save_file({name: weight.clone(memory_format=torch.contiguous_format)
               for name, weight in weights.items()}, path, metadata=dict(format='pt'))
    return left


def write_own(state_dict: StateDict, path: str) -> list[str]:
    """Write weights as a checkpoint of a classifier of this package; returns as `write_timm`."""
    check_suffix(path, '.pth')
    weights, left = in_timm_names(state_dict)
    torch.save(dict(meta={}, state_dict=in_own_names(weights)), path)
    return left


def publish(checkpoint: str, path: str) -> Path:
    """Write the weights of a checkpoint and what belongs to them, under a name with their hash.

    Left out are the optimizer, its schedules and the log, and the config, which holds paths of the
    machine. Trained with EMAHook, ``state_dict`` is the average; the last raw weights are left out.

    Args:
        checkpoint: file or address to read.
        path: where to write; NAME.pth becomes NAME-HASH.pth, with the first 8 digits of SHA-256,
            which torch.hub can verify.

    Returns:
        The path of the file.
    """
    check_suffix(path, '.pth')
    content = CheckpointLoader.load_checkpoint(checkpoint, 'cpu', logger='current')
    weights = unwrap(content, checkpoint)
    meta = content.get('meta') or {}
    buffer = io.BytesIO()
    torch.save(dict(meta={key: meta[key] for key in PUBLISHED_META if key in meta},
                    state_dict=weights), buffer)
    digest = hashlib.sha256(buffer.getvalue()).hexdigest()[:8]
    target = Path(path).with_name(f'{Path(path).stem}-{digest}.pth')
    target.write_bytes(buffer.getvalue())
    return target


def check_suffix(path: str, suffix: str) -> None:
    """Refuse another kind of file, and a folder that does not exist."""
    if not path.endswith(suffix):
        raise UserError(f'{path} would be written as {suffix}: give it a name ending in {suffix}')
    if Path(path).is_dir():
        raise UserError(f'{path} is a folder: give the name of a file')
    if not Path(path).absolute().parent.is_dir():
        raise UserError(f'the folder of {path} does not exist: make it first')
