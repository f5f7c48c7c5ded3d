"""Layer-wise learning-rate decay for segmentation models.

mmpretrain's constructor asks the model for the depth of a parameter; its classifiers pass the
question on to their backbone, mmseg's segmentors do not.
"""
from collections.abc import Callable
from functools import partial

from mmengine.registry import OPTIM_WRAPPER_CONSTRUCTORS
from mmpretrain.engine import LearningRateDecayOptimWrapperConstructor
from torch import nn


@OPTIM_WRAPPER_CONSTRUCTORS.register_module()
class SegLearningRateDecayOptimWrapperConstructor(LearningRateDecayOptimWrapperConstructor):
    """mmpretrain's `LearningRateDecayOptimWrapperConstructor` for a model with a ``backbone``.

    ``paramwise_cfg`` is mmpretrain's: layer_decay_rate, norm_decay_mult, flat_decay_mult, ...
    Heads and necks train at the full learning rate.
    """

    def add_params(self, params: list[dict], module: nn.Module, prefix: str = '',
                   get_layer_depth: Callable | None = None, **kwargs) -> None:
        if get_layer_depth is None:
            backbone = getattr(module, 'backbone', None)
            if not hasattr(backbone, 'get_layer_depth'):
                raise ValueError(
                    'layer-wise learning-rate decay needs a backbone with get_layer_depth '
                    f'(LocAtViT, LocAtSwin, LocAtTIMM), got {type(backbone).__name__} in '
                    f'{type(module).__name__}')
            get_layer_depth = partial(backbone.get_layer_depth, prefix='backbone.')
        super().add_params(params, module, prefix, get_layer_depth, **kwargs)
