"""Whether a checkpoint fits a model: all of it or an error that says what it seems to be."""
import os.path as osp
import re
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from torch import nn
from torch.optim import Optimizer

from .errors import UserError


def check_fit(model: nn.Module, checkpoint: Any, path: str, may_differ: Sequence[str] = ()
              ) -> list[str]:
    """Load a checkpoint into a model, all of it but what may differ.

    Args:
        model: Changed in place.
        checkpoint: What the file holds. Tensors that may differ and have another shape than the
            model's are removed from it.
        path: Its name, for the sentence.
        may_differ: Names of modules such as 'decode_head.conv_seg'.

    Returns:
        The names of the weights that differ and may.

    Raises:
        UserError: Keys are missing or left over, or shapes differ.
    """
    checkpoint = checkpoint if isinstance(checkpoint, dict) else {}
    state = checkpoint.get('state_dict', checkpoint)
    weights = OrderedDict((re.sub(r'^module\.', '', key), w) for key, w in state.items())
    weights._metadata = getattr(state, '_metadata', OrderedDict())
    own = model.state_dict() if may_differ else {}
    differing = [key for key, w in weights.items() if _is_in(key, may_differ) and key in own
                 and getattr(w, 'shape', None) != own[key].shape]
    for key in differing:
        del weights[key]
        state.pop(key, None)
        state.pop(f'module.{key}', None)
    # A hook of the model sees both lists even if a shape differs, where torch raises instead.
    found = {}
    handle = model.register_load_state_dict_post_hook(
        lambda _, keys: found.update(missing=[k for k in keys.missing_keys
                                              if not k.endswith('num_batches_tracked')],
                                     unexpected=list(keys.unexpected_keys)))
    try:
        model.load_state_dict(weights, strict=False)
    except RuntimeError as error:
        found['of another shape'] = re.findall(r'size mismatch for ([^:]+):', str(error))
        if not found['of another shape']:
            raise
    finally:
        handle.remove()
    for kind in ('missing', 'unexpected'):
        differing += [key for key in found.get(kind, ()) if _is_in(key, may_differ)]
        found[kind] = [key for key in found.get(kind, ()) if not _is_in(key, may_differ)]
    if any(found.values()):
        raise UserError(_misfit(model, weights, checkpoint, path, found))
    return list(dict.fromkeys(differing))


def _is_in(key: str, modules: Sequence[str]) -> bool:
    return any(key == name or key.startswith(f'{name}.') for name in modules)


def _misfit(model: nn.Module, weights: dict, checkpoint: dict, path: str,
            found: dict[str, list[str]]) -> str:
    counts = '; '.join(f'{len(keys)} {kind} ({", ".join(keys[:3])}{", ..." * (len(keys) > 3)})'
                       for kind, keys in found.items() if keys)
    return f'checkpoint {path} does not fit this {type(model).__name__}: {counts}. ' \
           f'It looks like {_describe(weights, checkpoint)}. {_advice(weights, path, model)}'


def _describe(weights: dict, checkpoint: dict) -> str:
    parts = sorted({key.partition('.')[0] for key in weights})
    if 'decode_head' in parts:
        kind = 'a segmentation model'
    elif 'backbone' in parts:
        kind = 'a classification model' if 'head' in parts else 'a model with a backbone'
    else:
        kind = f'bare weights or another format ({", ".join(parts[:6])})'
    classes = ((checkpoint.get('meta') or {}).get('dataset_meta') or {}).get('classes')
    return kind + (f' for {len(classes)} classes' if classes else '')


def _advice(weights: dict, path: str, model: nn.Module) -> str:
    has_backbone = any(key.startswith('backbone.') for key in weights)
    if hasattr(model, 'backbone'):
        prefix = ", prefix='backbone.'" if has_backbone else ''
        return 'To test or resume, use the config that it was trained with; to start from its ' \
               "backbone, leave out load_from and write model.backbone.init_cfg=" \
               f"dict(type='Pretrained', checkpoint='{path}'{prefix}); to train with another " \
               "head on purpose, keep load_from and write dict(type='StrictCheckpointHook', " \
               "may_differ=('decode_head.conv_seg', 'auxiliary_head.conv_seg')) in custom_hooks"
    return 'Use the config that it was trained with'


def check_resumable(checkpoint: Any, path: str, optimizer: Optimizer | None = None) -> None:
    """Look whether training can go on from a checkpoint.

    Args:
        checkpoint: What the file holds.
        path: Its name, for the sentence.
        optimizer: The run's; None if it has several.

    Raises:
        UserError: The file holds weights only, or its optimizer has other groups of parameters.
    """
    missing = [key for key in ('meta', 'state_dict', 'message_hub', 'optimizer')
               if not isinstance(checkpoint, dict) or key not in checkpoint]
    if missing:
        raise UserError(f'{path} cannot be resumed, it has no {", ".join(missing)}: resume a '
                        'checkpoint that training saved, or start from its weights with '
                        f'load_from={path}')
    saved = [len(group['params']) for group in checkpoint['optimizer'].get('param_groups', ())]
    own = [len(group['params']) for group in optimizer.param_groups] if optimizer else saved
    if saved != own:
        raise UserError(f'{path} cannot be resumed: its optimizer has {sum(saved)} parameters in '
                        f'{len(saved)} groups, this run has {sum(own)} in {len(own)}: use the '
                        'config that it was trained with (frozen stages, paramwise_cfg), or start '
                        f'from its weights with load_from={path}')


def localize_records(message_hub: dict, work_dir: str) -> None:
    """Change the paths of the best and the last checkpoint as if this work dir had saved them."""
    info = message_hub.get('runtime_info', {})
    for key in [k for k in info if k.startswith(('best_ckpt', 'last_ckpt'))]:
        info[key] = osp.join(work_dir, osp.basename(str(info[key])))
