"""A frozen backbone to evaluate: from a config and a checkpoint, or from timm by name.

Shape legend: B batch, C channels, h*w patches.
"""
from collections.abc import Iterator
from contextlib import contextmanager

import timm
import torch
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope
from torch import Tensor, nn

from ..analysis import features
from ..analysis.timm_models import timm_model
from .checkpoint import load_backbone, read_state_dict
from .config_data import (normalize_steps, preprocessor_of, swapped, swaps_channels,
                          takes_bgr, test_pipelines)
from .errors import warn
from .timm_backbone import TimmBackbone

BACKBONE, NECK = 'backbone.', 'neck.'


class FrozenBackbone(nn.Module):
    """Reads features of batches as a data loader of OpenMMLab gives them.

    Args:
        backbone: a registered one, or a timm model.
        preprocessor: a data preprocessor.
        neck: what pools a classifier's tokens, such as `PRRPool`.
        stage: block or stage for `patch_maps`; None: see `features.default_stage`.
    """

    def __init__(self, backbone: nn.Module, preprocessor: nn.Module, neck: nn.Module | None = None,
                 stage: int | None = None) -> None:
        super().__init__()
        self.backbone = backbone
        self.preprocessor = preprocessor
        self.neck = neck
        self.stage = stage

    @property
    def timm_model(self) -> nn.Module | None:
        """The timm model inside, if it is one."""
        model = self.backbone.model if isinstance(self.backbone, TimmBackbone) else self.backbone
        return model if hasattr(model, 'feature_info') else None

    @property
    def stride(self) -> int:
        """Pixels that one cell of `patch_maps` stands for, along each side.

        Raises:
            ValueError: if the maps of a backbone that is not timm's tell none.
        """
        if self.timm_model is not None:
            return features.stride_of(self.timm_model, self.stage)
        side = 224
        height = self._map(torch.zeros(1, 3, side, side, device=self.device)).shape[-2]
        if side % height:
            raise ValueError(f'the backbone makes {height} rows of {side} pixels, which is no '
                             'whole number of pixels a row: choose another --stage')
        return side // height

    @property
    def device(self) -> torch.device:
        return next(self.backbone.parameters()).device

    @torch.no_grad()
    def pooled(self, batch: dict) -> tuple[Tensor, list]:
        """Features (B, C) that a classifier would see, and the data samples of a batch.

        Raises:
            ValueError: if the backbone gives tokens and there is no neck to pool them, or numbers
                that are not finite.
        """
        data = self.preprocessor(batch, False)
        pooled = self._pool(data['inputs'])
        check_finite(pooled)
        return pooled, data['data_samples']

    def _pool(self, images: Tensor) -> Tensor:
        if self.backbone is self.timm_model:
            with fixed_size_errors(self.backbone, images):
                return features.pooled_features(self.backbone, images)
        outputs = self.backbone(images)
        pooled = (outputs if self.neck is None else self.neck(outputs))[-1]
        if pooled.ndim == 3:
            raise ValueError(f'the backbone gives tokens of shape {tuple(pooled.shape)}, and the '
                             "config has no neck that pools them: add neck=dict(type='PRRPool', "
                             '...), with refine=False for a plain class token')
        return pooled.flatten(2).mean(-1) if pooled.ndim == 4 else pooled

    @torch.no_grad()
    def patch_maps(self, batch: dict) -> tuple[Tensor, list]:
        """Maps (B, C, h, w) of the patches, and the data samples of a batch.

        Raises:
            ValueError: if they hold numbers that are not finite.
        """
        data = self.preprocessor(batch, False)
        maps = self._map(data['inputs'])
        check_finite(maps)
        return maps, data['data_samples']

    @torch.no_grad()
    def _map(self, images: Tensor) -> Tensor:
        if self.timm_model is not None:
            with fixed_size_errors(self.timm_model, images):
                return features.patch_features(self.timm_model, images, self.stage)
        return self.backbone(images)[-1 if self.stage is None else self.stage]


def check_finite(numbers: Tensor) -> None:
    """Refuse features that no neighbour and no probe can be found for.

    Raises:
        ValueError: if one of them is infinite or not a number.
    """
    if not numbers.isfinite().all():
        raise ValueError('the features of the backbone hold numbers that are not finite: expected '
                         'weights of a training that has not diverged; take another checkpoint')


@contextmanager
def fixed_size_errors(model: nn.Module, images: Tensor) -> Iterator[None]:
    """Say in a sentence that a timm model, of a family that asserts it, takes one size only.

    Raises:
        ValueError: instead of the assertion.
    """
    try:
        yield
    except AssertionError as error:
        raise ValueError(f'{type(model).__name__} takes no images of {images.shape[-2]} x '
                         f'{images.shape[-1]} pixels ({error}): set --img-size to the size that '
                         'it is made for') from error


def from_config(cfg: Config, checkpoint: str | None = None, prefix: str | None = None,
                stage: int | None = None, with_neck: bool = False) -> FrozenBackbone:
    """The backbone of a config, and its neck if it pools for a classifier.

    Args:
        cfg: of a classifier or a segmentor.
        checkpoint: of a classifier, a segmentor or a backbone alone; None: as the config's
            ``init_cfg`` says.
        prefix: of the backbone's keys in the checkpoint; by default ``backbone.`` if it has such.
        stage: as in `FrozenBackbone`.
        with_neck: whether to build the neck, too.

    Raises:
        ValueError: if the checkpoint does not fit exactly.
    """
    init_default_scope(cfg.get('default_scope', 'mmengine'))
    backbone = MODELS.build(cfg.model.backbone)
    neck = MODELS.build(cfg.model.neck) if with_neck and cfg.model.get('neck') else None
    if checkpoint is None:
        if not cfg.model.backbone.get('init_cfg'):
            warn('neither a checkpoint nor an init_cfg in the config: the features are those of '
                 'random weights')
        backbone.init_weights()
    else:
        load_parts(backbone, neck, checkpoint, prefix)
    return FrozenBackbone(backbone, MODELS.build(preprocessor_of(cfg)), neck, stage).eval()


def load_parts(backbone: nn.Module, neck: nn.Module | None, checkpoint: str,
               prefix: str | None) -> None:
    """Load the weights of a backbone and a neck strictly.

    Raises:
        ValueError: if they do not fit.
    """
    state_dict = read_state_dict(checkpoint)
    if prefix is None and any(name.startswith(BACKBONE) for name in state_dict):
        prefix = BACKBONE
    if prefix and not prefix.endswith('.'):
        prefix += '.'
    if isinstance(backbone, TimmBackbone):
        load_backbone(backbone, checkpoint, prefix)
    else:
        load_exactly(backbone, below(state_dict, prefix or ''), checkpoint)
    if neck is not None and len(neck.state_dict()):
        beside = (prefix or '').removesuffix(BACKBONE) + NECK
        load_exactly(neck, below(state_dict, beside), checkpoint)


def below(state_dict: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The part of a state dict that has a prefix, without it."""
    return {name.removeprefix(prefix): weight for name, weight in state_dict.items()
            if name.startswith(prefix)}


def load_exactly(module: nn.Module, state_dict: dict[str, Tensor], checkpoint: str) -> None:
    """Load a state dict that has to fit to the last key.

    Raises:
        ValueError: saying what differs.
    """
    try:
        module.load_state_dict(state_dict)
    except RuntimeError as error:
        lines = ' '.join(line.strip() for line in str(error).splitlines()[:4])
        raise ValueError(f'{checkpoint} does not fit: {lines}') from error


def from_timm(name: str, weights: str, cfg: Config, stage: int | None = None) -> FrozenBackbone:
    """A timm model, reading images that are prepared as a config says, but normalised for it.

    Args:
        name: of `timm.create_model`, with or without a tag.
        weights: see `timm_models.timm_model`.
        cfg: of a classifier or a segmentor; the mean, std and order of channels of its data
            preprocessor, or of the ``Normalize`` in its test pipelines, are replaced.
        stage: as in `FrozenBackbone`.

    Raises:
        ValueError: if there is no such model, or the weights cannot be had or do not fit.
    """
    init_default_scope(cfg.get('default_scope', 'mmengine'))
    model = timm_model(name, weights, classifier=False)
    preprocessor = normalize_for(model, cfg)
    return FrozenBackbone(model, MODELS.build(preprocessor), stage=stage).eval()


def normalize_for(model: nn.Module, cfg: Config) -> dict:
    """The data preprocessor's settings with the mean, std and order of channels, red first, that a
    timm model is trained with.

    Where a pipeline normalises instead, they are replaced there.
    """
    data = timm.data.resolve_data_config({}, model=model)
    numbers = {key: [255 * value for value in data[key]] for key in ('mean', 'std')}
    settings, bgr = preprocessor_of(cfg), takes_bgr(cfg)
    in_pipeline = [step for pipeline in test_pipelines(cfg) for step in normalize_steps(pipeline)]
    if not in_pipeline:
        return dict(settings, **numbers, **swapped(settings) if bgr else {})
    if swaps_channels(settings):  # after the pipeline
        numbers = {key: values[::-1] for key, values in numbers.items()}
    for step in in_pipeline:
        step.update(numbers, to_rgb=step.get('to_rgb', True) ^ bgr)
    return settings
