"""A model to be looked at, from a config and its checkpoint, or from timm by name.

What the tools for visualisation share: their arguments, and from those to a `PictureModel`.
"""
import argparse
from collections.abc import Sequence

import torch
from mmengine.config import Config, DictAction
from mmengine.model import BaseModel, revert_sync_batchnorm
from mmengine.registry import MODELS, init_default_scope
from torch import nn

from ..analysis.picture_model import PictureModel
from ..analysis.run_settings import Settings, fingerprint
from ..analysis.timm_models import PRETRAINED, RANDOM, load_timm
from .checkpoint import read_state_dict
from .errors import UserError, first_line
from .launch import check_checkpoint, load_config
from .timm_backbone import TimmBackbone


def add_model_arguments(parser: argparse.ArgumentParser) -> None:
    """A model by config and checkpoint, or by its name in timm."""
    parser.add_argument('config', nargs='?', help='config of a segmentor or classifier')
    parser.add_argument('checkpoint', nargs='?', help='its checkpoint')
    parser.add_argument('--cfg-options', nargs='+', action=DictAction, default={},
                        metavar='KEY=VALUE', help='override the config')
    parser.add_argument('--timm', metavar='NAME', help='a model of timm instead')
    parser.add_argument('--weights', default=PRETRAINED, metavar='FILE',
                        help=f'its weights: a file in the names of timm, with or without GAug; '
                        f'{PRETRAINED} (the default, a download) or {RANDOM}')
    parser.add_argument('--device', default='cuda' if torch.cuda.is_available() else 'cpu')
    parser.set_defaults(work_dir='', local_rank=0)  # what load_config reads


def load_model(args: argparse.Namespace) -> PictureModel:
    """The model that a command line names, on its device.

    Raises:
        UserError: neither or both ways are used, or the model cannot be built.
        ValueError: the weights do not fit.
    """
    if bool(args.timm) == bool(args.config):
        raise UserError('give either CONFIG CHECKPOINT or --timm NAME')
    if args.timm:
        return load_timm(args.timm, args.weights).to(args.device)
    if not args.checkpoint:
        raise UserError(f'{args.config} needs its CHECKPOINT, as tools/train.py wrote it')
    return from_config(load_config(args), check_checkpoint(args.checkpoint)).to(args.device)


def model_settings(args: argparse.Namespace) -> Settings:
    """What identifies the model in the settings of a run."""
    if args.timm:
        return dict(model=args.timm, weights=fingerprint(args.weights))
    return dict(model=fingerprint(args.config), weights=fingerprint(args.checkpoint),
                cfg_options=dict(args.cfg_options))


def from_config(cfg: Config, checkpoint: str) -> PictureModel:
    """The whole model of a config, with the weights of its checkpoint.

    Raises:
        UserError: the backbone is none of this package's.
        ValueError: the weights do not fit.
    """
    init_default_scope(cfg.get('default_scope', 'mmengine'))
    settings = dict(cfg.model)
    settings.setdefault('data_preprocessor', cfg.get('data_preprocessor'))
    model = revert_sync_batchnorm(MODELS.build(settings))
    try:
        model.load_state_dict(read_state_dict(checkpoint))
    except RuntimeError as error:
        raise ValueError(f'{checkpoint} does not fit the config: {first_line(error)} '
                         f'{str(error).strip().splitlines()[-1].strip()}') from error
    backbone = getattr(model, 'backbone', None)
    if not isinstance(backbone, TimmBackbone):
        raise UserError(f'the backbone is a {type(backbone).__name__}: its features can be found '
                        'in LocAtViT, LocAtSwin and LocAtTIMM, with or without gaug')
    backbone.frozen_stages = -1  # a frozen one runs without gradients, also those of pictures
    backbone.model.set_grad_checkpointing(False)
    mean, std, bgr = normalization(cfg, model)
    size = getattr(backbone.model.patch_embed, 'img_size', None) or (224, 224)
    return PictureModel(model, mean, std, core=backbone.model, size=tuple(size), bgr=bgr)


def normalization(cfg: Config, model: BaseModel) -> tuple[Sequence[float], Sequence[float], bool]:
    """Mean and std for pixels in [0, 1], and whether the network takes blue first.

    Raises:
        UserError: nothing in the config normalises.
    """
    preprocessor: nn.Module = model.data_preprocessor
    if getattr(preprocessor, '_enable_normalize', False):
        mean, std = (getattr(preprocessor, name).flatten().div(255).tolist()
                     for name in ('mean', 'std'))
        to_rgb = getattr(preprocessor, '_channel_conversion', None) or \
            getattr(preprocessor, 'to_rgb', False)
        return mean, std, not to_rgb
    pipeline = (cfg.get('test_dataloader') or {}).get('dataset', {}).get('pipeline', ())
    for transform in pipeline:
        if str(transform.get('type')).endswith('Normalize'):
            mean, std = ([value / 255 for value in transform[name]] for name in ('mean', 'std'))
            return mean, std, not transform.get('to_rgb', True)
    raise UserError('the config tells no normalisation: expected mean and std in data_preprocessor '
                    'or a Normalize in the pipeline of test_dataloader')
