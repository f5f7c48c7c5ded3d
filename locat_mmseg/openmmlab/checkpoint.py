"""Weights for a backbone from a checkpoint file, through `init_cfg`.

mmengine's own `Pretrained` initialiser loads what fits and logs the rest, so a file of another
model trains from scratch without a word. Here every key is accounted for or it is an error.
"""
import logging

from mmengine.logging import print_log
from mmengine.model import BaseModule
from mmengine.runner import CheckpointLoader
from torch import Size

from ..addon.foreign_weights import StateDict
from ..addon.weight_sources import UnreadableCheckpoint, UntrustedCheckpoint, select, unwrap
from ..addon.weights import LoadReport, load_weights, names
from .checkpoint_loader import trusting

REMEDY = 'Name an existing file, timm:NAME or hf-hub:OWNER/NAME'


def load_backbone(backbone: BaseModule, checkpoint: str, prefix: str | None = None,
                  map_location: str = 'cpu', strict: bool = True,
                  trust_checkpoint: bool = False) -> LoadReport:
    """Load a checkpoint into a backbone shell and log what became of each key.

    Args:
        backbone: a shell whose timm model is its child ``model``.
        checkpoint: file, http(s) address, ``timm:NAME`` or ``hf-hub:OWNER/NAME``; its names may be
            those of a shell, of timm, or of any project that `to_timm` knows.
        prefix: part of the checkpoint to load, ``'backbone.'`` for a model of `tools/train.py`.
        map_location: as in `torch.load`.
        strict: False lets keys be missing or unexpected, with a warning that names them.
        trust_checkpoint: whether to run whatever code a pickled file holds.

    Raises:
        ValueError: if the file can't be read, holds nothing under ``prefix``, or does not fit.
    """
    remedy = f'{REMEDY} with --cfg-options model.backbone.init_cfg.checkpoint=FILE'
    if backbone.frozen_stages < 0:
        remedy += ', or train from scratch with --cfg-options model.backbone.init_cfg=None'
    state_dict, outside = select(
        read_state_dict(checkpoint, map_location, trust_checkpoint, remedy), prefix, checkpoint)
    # The shell's own layers, beside those of the timm model: UPerNet's LayerNorm per output.
    own = {name: weight.shape for name, weight in backbone.state_dict().items()
           if not name.startswith('model.')}
    own_weights = {name: state_dict[name] for name in own.keys() & state_dict.keys()}
    check_own(own, own_weights, checkpoint, strict)
    timm_weights = {name: weight for name, weight in state_dict.items() if name not in own}
    try:
        report = load_weights(backbone.model, timm_weights, backbone.pruned_keys, strict)
    except ValueError as error:
        raise ValueError(f'{checkpoint}: {error}') from error
    frozen = {name.removeprefix('model.') for name, parameter in backbone.named_parameters()
              if not parameter.requires_grad}
    if untrained := [name for name in report.missing if name in frozen]:
        raise ValueError(f'{checkpoint} lacks {names(untrained)}, and frozen_stages='
                         f'{backbone.frozen_stages} would leave them untrained for ever; take '
                         'weights that have them, set gaug=False, or freeze less')
    backbone.load_state_dict(own_weights, strict=False)
    report.loaded += len(own_weights)
    report.missing += sorted(own.keys() - own_weights.keys())
    report.unused += outside
    level = logging.WARNING if report.missing or report.unexpected or report.note else logging.INFO
    print_log(f'{type(backbone).__name__} weights from {checkpoint}: {report}', 'current', level)
    return report


def check_own(own: dict[str, Size], weights: StateDict, checkpoint: str, strict: bool) -> None:
    """Refuse a shell's own layers of another shape, or some of them only; none at all is fine.

    Raises:
        ValueError: naming them.
    """
    lacking = sorted(own.keys() - weights.keys()) if weights and strict else []
    differing = [f'{name} {tuple(weight.shape)} instead of {tuple(own[name])}'
                 for name, weight in sorted(weights.items()) if weight.shape != own[name]]
    if lacking or differing:
        raise ValueError(f'{checkpoint} was made with other out_indices: its norms lack '
                         f'{names(lacking)}, and of another shape are {names(differing)}; set '
                         'out_indices as there')


def read_state_dict(checkpoint: str, map_location: str = 'cpu', trust: bool = False,
                    remedy: str = REMEDY) -> StateDict:
    """The state dict of a checkpoint, as it is named there; see `unwrap`.

    Raises:
        UntrustedCheckpoint: it cannot be read without running code from it.
        ValueError: it can't be read, ending in ``remedy``, or holds no state dict.
    """
    try:
        with trusting(trust):
            content = CheckpointLoader.load_checkpoint(checkpoint, map_location, logger='current')
    except UntrustedCheckpoint:
        raise
    except UnreadableCheckpoint as error:
        raise ValueError(f'{error}. {remedy}') from error
    except Exception as error:  # no such file or no network
        raise ValueError(f'pre-trained weights {checkpoint} cannot be read ({error}). {remedy}'
                         ) from error
    return unwrap(content, checkpoint)
