"""Reading weights from a file, an address or a hub, without running code from them.

A .pth file is a pickle, and unpickling can run any program. Here safetensors and torch's restricted
unpickler read; a file that needs more is refused unless it is trusted explicitly.
"""
import os
import os.path as osp
import pickle
import re
import sys
import zipfile
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlsplit

import timm
import torch
from huggingface_hub import hf_hub_download
from huggingface_hub.utils import EntryNotFoundError
from safetensors.torch import load_file
from timm.models import get_pretrained_cfg
from torch import Tensor

from .foreign_weights import StateDict, to_timm
from .weights import names

REMOTE = ('http://', 'https://', 'timm:', 'hf-hub:')
TRUST_VARIABLE = 'LOCAT_TRUST_CHECKPOINT'
HUB_FILES = ('model.safetensors', 'pytorch_model.bin')
WRAPPERS = ('state_dict', 'model', 'model_ema', 'teacher')
PARTS = ('backbone.', 'neck.', 'head.', 'decode_head.', 'auxiliary_head.', 'dino_head.',
         'ibot_head.', 'student.', 'teacher.', 'loss_module.')
# Of our own DINO checkpoints; better than the student beside it.
TEACHER = 'teacher.module.backbone.'
# torch.serialization.safe_globals takes a class, or one with the name that it has in files.
Allowed = Sequence[Callable | tuple[Callable, str]]


class UntrustedCheckpoint(ValueError):
    """A file that cannot be read without running code from it."""


class UnreadableCheckpoint(ValueError):
    """A file that is incomplete, or no checkpoint."""


def read_weights(source: str, prefix: str | None = None, trust: bool = False) -> StateDict:
    """Weights of a backbone in timm's names, for `load_weights`, without OpenMMLab.

    Args:
        source: see `read_source`.
        prefix: part of the checkpoint to take, such as ``'backbone.'``.
        trust: see `read_source`.

    Raises:
        ValueError: see `read_source`, `unwrap` and `select`.
    """
    return select(unwrap(read_source(source, trust=trust), source), prefix, source)[0]


def read_source(source: str, map_location: Any = 'cpu', allowed: Allowed = (),
                trust: bool = False) -> Any:
    """Read what a checkpoint holds.

    Args:
        source: a file (.safetensors, or anything that `torch.save` wrote), an http(s) address,
            ``timm:NAME`` for timm's pre-trained weights, or ``hf-hub:OWNER/NAME`` (or
            ``hf-hub:OWNER/NAME/FILE``; a revision comes after the name: ``NAME@REVISION``).
        map_location: as in `torch.load`.
        allowed: classes that the file may hold beside tensors and Python's own containers.
        trust: whether to unpickle whatever the file holds, which runs code from it.

    Raises:
        FileNotFoundError: there is no such file.
        UntrustedCheckpoint: the file needs another class, and is not trusted.
        UnreadableCheckpoint: it is broken, or something else.
        ValueError: timm or the hub has no such weights.
    """
    if source.startswith('timm:'):
        return timm_weights(source.removeprefix('timm:'), map_location)
    return read_file(local_path(source), map_location, allowed, trust)


def read_file(path: str, map_location: Any = 'cpu', allowed: Allowed = (), trust: bool = False
              ) -> Any:
    """Read a local file; see `read_source`."""
    if osp.isdir(path):
        raise FileNotFoundError(f'{path} is a folder: name a file in it')
    if not osp.isfile(path):
        raise FileNotFoundError(f'{path} does not exist')
    trust = trust or os.environ.get(TRUST_VARIABLE) == '1'
    try:
        if path.endswith('.safetensors'):
            named = isinstance(map_location, (str, torch.device))
            return load_file(path, str(map_location) if named else 'cpu')
        with torch.serialization.safe_globals(list(allowed)):
            return torch.load(path, map_location, weights_only=not trust)
    except Exception as error:  # torch and safetensors raise whatever they stumble over
        if isinstance(error, pickle.UnpicklingError) and not trust and looks_pickled(path):
            raise UntrustedCheckpoint(refusal(path, what_it_needs(error), allowed)) from error
        raise UnreadableCheckpoint(
            f'checkpoint {path} cannot be read ({reason_of(error)}): it is incomplete, or not what '
            f'{"safetensors" if path.endswith(".safetensors") else "torch.save"} writes; copy or '
            'download it again') from error


def refusal(path: str, needed: str, allowed: Allowed) -> str:
    """The sentence that refuses a file which needs a class that is not ``allowed``."""
    if needed.startswith('mmengine.') and not allowed:
        return (f'{path} is the checkpoint of a training run, and only weights are read here: '
                f'convert it by python tools/convert_weights.py {path} OUT.safetensors --to timm, '
                'and give OUT.safetensors')
    class_ = f' (it needs {needed})' if needed else ''
    return (f'{path} is refused: reading it would run code from the file{class_}, which could do '
            'anything to this machine. If you trust its author, write trust_checkpoint=True in '
            'init_cfg; for tools, load_from, --resume and other projects set '
            f'{TRUST_VARIABLE}=1 in the environment')


def reason_of(error: Exception) -> str:
    """What a library says of a file, short: the first sentence of its text."""
    if isinstance(error, (pickle.UnpicklingError, KeyError)):
        return 'no pickle'  # torch's text advises to switch its safety off
    text = re.sub(r'^\[enforce fail at .*?\] \. ', '', str(error))
    return re.split(r'\n|\. ', text)[0] or 'it ends too early'


def looks_pickled(path: str) -> bool:
    """Whether a file is one of torch's archives or begins like a binary pickle."""
    if zipfile.is_zipfile(path):
        return True
    with open(path, 'rb') as file:
        return file.read(1) == pickle.PROTO


def what_it_needs(error: pickle.UnpicklingError) -> str:
    """The class or module that torch refused; '' if torch names none."""
    match = re.search(r'GLOBAL (\S+) was not an allowed|module (\S+) is blocked', str(error))
    return (match[1] or match[2]) if match else ''


def local_path(source: str) -> str:
    """Path of a file; one that lies elsewhere is downloaded, once."""
    if source.startswith('hf-hub:'):
        owner, _, rest = source.removeprefix('hf-hub:').partition('/')
        name, _, file = rest.partition('/')
        if not owner or not name:
            raise ValueError(f'{source}: expected hf-hub:OWNER/NAME')
        return hub_weights(f'{owner}/{name}', [file] if file else HUB_FILES)
    if source.startswith(REMOTE):
        folder = osp.join(torch.hub.get_dir(), 'checkpoints')
        path = osp.join(folder, osp.basename(urlsplit(source).path))
        if not osp.exists(path):
            os.makedirs(folder, exist_ok=True)
            torch.hub.download_url_to_file(source, path, progress=sys.stderr.isatty())
        return path
    return osp.expanduser(source)


def timm_weights(name: str, map_location: Any = 'cpu') -> StateDict:
    """State dict of timm's pre-trained model ``name``, with or without a tag, such as
    'vit_tiny_patch16_224.augreg_in21k_ft_in1k'.

    Raises:
        ValueError: timm has no such model or tag, or no weights for it on the hub.
    """
    try:
        cfg = get_pretrained_cfg(name) if timm.is_model(name) else None
    except RuntimeError:  # timm's word for an unknown tag
        cfg = None
    if cfg is None or not cfg.hf_hub_id:
        known = timm.list_models(f'{name.partition(".")[0]}*', pretrained=True)
        raise ValueError(f'timm {timm.__version__} has no weights {name} on the hub; it has '
                         f'{", ".join(known) or "none for such a model"}')
    files = [cfg.hf_hub_filename] if cfg.hf_hub_filename else HUB_FILES
    weights = read_file(hub_weights(cfg.hf_hub_id, files), map_location)
    # timm's own loading brings old names up to date; building its model must not change the
    # random numbers that the run draws afterwards.
    with torch.random.fork_rng(devices=[]):
        model = timm.create_model(name, pretrained=True,
                                  pretrained_cfg_overlay=dict(state_dict=weights))
    return model.state_dict()


def hub_weights(repository: str, files: Sequence[str]) -> str:
    """Local copy of the first of ``files`` that a Hugging Face repository has.

    Raises:
        ValueError: it has none of them, or cannot be reached and no copy is here.
    """
    for file in files:
        try:
            return hub_file(repository, file)
        except EntryNotFoundError as error:
            reason = error
    raise ValueError(f'{repository} on the Hugging Face hub gives none of {", ".join(files)}; name '
                     'its file: hf-hub:OWNER/NAME/FILE') from reason


def hub_file(repository: str, file: str) -> str:
    """Local copy of a file of a Hugging Face repository, ``OWNER/NAME`` or
    ``OWNER/NAME@REVISION``; the only place that asks the hub."""
    name, _, revision = repository.partition('@')
    return hf_hub_download(name, file, revision=revision or None)


def unwrap(content: Any, source: str) -> StateDict:
    """The state dict in what a checkpoint holds, without DataParallel's ``module.``.

    Raises:
        ValueError: there is none.
    """
    for wrapper in WRAPPERS:
        if isinstance(content, dict) and isinstance(content.get(wrapper), dict):
            content = content[wrapper]
            break
    if not isinstance(content, dict) or not content or not all(
            isinstance(key, str) and isinstance(value, Tensor) for key, value in content.items()):
        raise ValueError(f'{source} holds no state dict: expected tensors by name, bare or '
                         f'under one of {WRAPPERS}')
    return {name.removeprefix('module.'): weight for name, weight in content.items()}


def select(state_dict: StateDict, prefix: str | None, source: str
           ) -> tuple[StateDict, list[str]]:
    """Split a state dict into what is below ``prefix``, in timm's names without it, and the names
    of the rest. A bare backbone, which has no parts, is taken whole whatever ``prefix`` is.

    Raises:
        ValueError: nothing is below ``prefix``, or without one the state dict is that of a whole
            model.
    """
    prefix = prefix or ''
    if prefix and not prefix.endswith('.'):  # mmengine takes both, too
        prefix += '.'
    if not any(name.startswith(prefix) for name in state_dict) and \
            any(name.startswith(('patch_embed.', 'model.patch_embed.')) for name in state_dict):
        prefix = ''
    below = {name.removeprefix(prefix): weight for name, weight in state_dict.items()
             if name.startswith(prefix)}
    outside = [name for name in state_dict if not name.startswith(prefix)]
    if not below:
        parts = sorted({name.partition('.')[0] + '.' for name in state_dict})
        raise ValueError(f"{source} has no keys below prefix='{prefix}'; its parts are: "
                         f'{names(parts)}. Set prefix (init_cfg.prefix, --prefix) to one of them '
                         'or leave it out')
    if not prefix and all(name.startswith(PARTS) for name in below):
        part = TEACHER if any(name.startswith(TEACHER) for name in below) else 'backbone.'
        raise ValueError(f'{source} is a whole model; to load its backbone set '
                         f"init_cfg=dict(type='Pretrained', checkpoint=..., prefix='{part}')")
    return to_timm(below), outside
