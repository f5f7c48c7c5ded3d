"""Weights for a backbone from a checkpoint file, through `init_cfg`.

mmengine's own `Pretrained` initialiser loads what fits and logs the rest, so a file of another
model trains from scratch without a word. Here every key is accounted for or it is an error.
"""
import logging

from mmengine.logging import print_log
from mmengine.model import BaseModule
from mmengine.runner import CheckpointLoader
from torch import Tensor

from ..addon.weights import LoadReport, StateDict, load_weights, names

WRAPPERS = ('state_dict', 'model', 'model_ema')


def load_backbone(backbone: BaseModule, checkpoint: str, prefix: str | None = None,
                  map_location: str = 'cpu') -> LoadReport:
    """Load a checkpoint into a backbone shell and log what became of each key.

    Args:
        backbone: a shell whose timm model is its child ``model``.
        checkpoint: file or URL, in the names of a shell, of timm or of the LocAtViT reference.
        prefix: part of the checkpoint to load, ``'backbone.'`` for a model of `tools/train.py`.
        map_location: as in `torch.load`.

    Raises:
        ValueError: if the file can't be read, holds nothing under ``prefix``, or does not fit.
    """
    remedy = 'Name an existing file with --cfg-options model.backbone.init_cfg.checkpoint=FILE'
    if backbone.frozen_stages < 0:
        remedy += ', or train from scratch with --cfg-options model.backbone.init_cfg=None'
    state_dict, outside = select(read_state_dict(checkpoint, map_location, remedy), prefix,
                                 checkpoint)
    # The shell's own layers, beside those of the timm model: UPerNet's LayerNorm per output.
    own = {name for name in backbone.state_dict() if not name.startswith('model.')}
    timm_weights = {name.removeprefix('model.'): weight for name, weight in state_dict.items()
                    if name not in own}
    try:
        report = load_weights(backbone.model, timm_weights, may_leave=backbone.pruned_keys)
    except ValueError as error:
        raise ValueError(f'{checkpoint}: {error}') from error
    frozen = {name.removeprefix('model.') for name, parameter in backbone.named_parameters()
              if not parameter.requires_grad}
    if untrained := [name for name in report.missing if name in frozen]:
        raise ValueError(f'{checkpoint} lacks {names(untrained)}, and frozen_stages='
                         f'{backbone.frozen_stages} would leave them untrained for ever; take '
                         'weights that have them, set gaug=False, or freeze less')
    if own <= state_dict.keys():
        backbone.load_state_dict({name: state_dict[name] for name in own}, strict=False)
        report.loaded += len(own)
    else:
        report.missing += sorted(own)
    report.unused += outside
    level = logging.WARNING if report.missing or report.note else logging.INFO
    print_log(f'{type(backbone).__name__} weights from {checkpoint}: {report}', 'current', level)
    return report


def read_state_dict(checkpoint: str, map_location: str = 'cpu', remedy: str = '') -> StateDict:
    """The state dict of a checkpoint, out of its wrappers, without DataParallel's ``module.``.

    Raises:
        ValueError: if it can't be read, ending in ``remedy``, or holds no state dict.
    """
    try:
        content = CheckpointLoader.load_checkpoint(checkpoint, map_location, logger='current')
    except Exception as error:  # no such file, no network, or broken in any way
        raise ValueError(f'pre-trained weights {checkpoint} cannot be read ({error}). {remedy}'
                         ) from error
    for wrapper in WRAPPERS:
        if isinstance(content, dict) and isinstance(content.get(wrapper), dict):
            content = content[wrapper]
            break
    if not isinstance(content, dict) or not all(isinstance(v, Tensor) for v in content.values()):
        raise ValueError(f'{checkpoint} holds no state dict: expected tensors by name, bare or '
                         f'under one of {WRAPPERS}')
    return {name.removeprefix('module.'): weight for name, weight in content.items()}


def select(state_dict: StateDict, prefix: str | None,
           checkpoint: str) -> tuple[StateDict, list[str]]:
    """Split a state dict into what is below ``prefix``, without it, and the names of the rest."""
    prefix = prefix or ''
    if prefix and not prefix.endswith('.'):  # mmengine takes both, too
        prefix += '.'
    below = {name.removeprefix(prefix): weight for name, weight in state_dict.items()
             if name.startswith(prefix)}
    outside = [name for name in state_dict if not name.startswith(prefix)]
    if not below:
        parts = sorted({name.partition('.')[0] + '.' for name in state_dict})
        raise ValueError(f"{checkpoint} has no keys below prefix='{prefix}'; its parts are: "
                         f'{names(parts)}. Set init_cfg.prefix to one of them or to None')
    if not prefix and all(name.startswith(('backbone.', 'neck.', 'head.', 'decode_head.',
                                           'auxiliary_head.')) for name in below):
        raise ValueError(f"{checkpoint} is a whole model; to load its backbone set "
                         "init_cfg=dict(type='Pretrained', checkpoint=..., prefix='backbone.')")
    return below, outside
