"""OpenMMLab shells: importing this folder registers every backbone, neck, hook and data set.

What stands on mmengine alone registers in mmengine's root registries, where mmseg, mmpretrain,
mmdet and other projects find it without a scope prefix.
"""
from importlib.util import find_spec

from . import (amp, attention, backbones, checkpoint_loader, datasets,  # noqa: F401
               distributed, evaluation, hooks, locality_hook, necks)

if find_spec('mmseg') is not None:
    from . import visualizer  # noqa: F401
if find_spec('mmpretrain') is not None:
    from . import cls_visualization, knn_hook, optim, selfsup, transforms  # noqa: F401
