"""A model to be looked at, from a config and its checkpoint, or from timm by name.

What the tools for visualisation share: their arguments, and from those to a `PictureModel`.
"""
import argparse

from mmengine.config import Config
from mmengine.model import revert_sync_batchnorm
from mmengine.registry import MODELS, init_default_scope
from mmpretrain.models import TimmClassifier
from mmseg.models.segmentors import BaseSegmentor
from torch import nn

from ..analysis.picture_model import PictureModel
from ..analysis.run_settings import Settings, fingerprint
from ..analysis.timm_models import load_timm
from .checkpoint import read_state_dict
from .config_data import normalization, preprocessor_of, takes_bgr
from .errors import UserError, first_line
from .launch import add_config_arguments, check_checkpoint, load_config
from .model_arguments import add_device_argument, add_timm_arguments
from .timm_backbone import TimmBackbone


def add_model_arguments(parser: argparse.ArgumentParser) -> None:
    """A model by config and checkpoint, or by its name in timm."""
    add_config_arguments(parser, config_needed=False)
    parser.add_argument('checkpoint', nargs='?', help='its checkpoint')
    add_timm_arguments(parser)
    add_device_argument(parser)
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
        UserError: it is neither mmpretrain's `TimmClassifier`, nor its backbone this package's.
        ValueError: the weights do not fit.
    """
    init_default_scope(cfg.get('default_scope', 'mmengine'))
    model = revert_sync_batchnorm(MODELS.build(
        dict(cfg.model, data_preprocessor=preprocessor_of(cfg))))
    try:
        model.load_state_dict(read_state_dict(checkpoint))
    except RuntimeError as error:
        raise ValueError(f'{checkpoint} does not fit the config: {first_line(error)} '
                         f'{str(error).strip().splitlines()[-1].strip()}') from error
    core = timm_model_of(model)
    mean, std = normalization(cfg)
    size = getattr(getattr(core, 'patch_embed', None), 'img_size', None) or (224, 224)
    return PictureModel(model, mean, std, core=core, size=tuple(size), bgr=takes_bgr(cfg))


def num_classes_of(model: PictureModel) -> int | None:
    """Number of classes of a classifier or a segmentor; None of a head that does not tell."""
    if model.is_timm:
        return model.core.num_classes
    teller = model.network if isinstance(model.network, BaseSegmentor) else \
        getattr(model.network, 'head', None)
    return getattr(teller, 'num_classes', None)


def timm_model_of(model: nn.Module) -> nn.Module:
    """The timm model inside a model of OpenMMLab, made to pass gradients on to pictures.

    Raises:
        UserError: there is none whose features can be found.
    """
    if isinstance(model, TimmClassifier):
        return model.model
    backbone = getattr(model, 'backbone', None)
    if not isinstance(backbone, TimmBackbone):
        raise UserError(f'the backbone is a {type(backbone).__name__}: its features can be found '
                        'in LocAtViT, LocAtSwin and LocAtTIMM, with or without gaug, and in '
                        'TimmClassifier')
    backbone.frozen_stages = -1  # a frozen one runs without gradients
    backbone.model.set_grad_checkpointing(False)
    return backbone.model
