"""One image file as a batch for a frozen backbone, prepared as a config's test data is."""
import os.path as osp
from collections.abc import Sequence

import mmcv
import numpy as np
from mmengine.config import Config
from mmengine.dataset import Compose
from mmengine.registry import init_default_scope
from torch import Tensor, nn

from .config_data import test_pipeline, type_of
from .errors import UserError
from .frozen_backbone import FrozenBackbone


def read_image(backbone: FrozenBackbone, cfg: Config, path: str, img_size: Sequence[int]
               ) -> tuple[Tensor, np.ndarray]:
    """An image file, as the backbone takes it and as it is shown.

    Args:
        backbone: whose preprocessor normalises it.
        cfg: whose test pipeline loads and packs it.
        path: of the file.
        img_size: (height, width) that it is resized to.

    Returns:
        (1, 3, height, width), normalised; and (height, width, 3), RGB, 0 to 255.

    Raises:
        UserError: if the config does not load image files, or this is none.
    """
    init_default_scope(cfg.get('default_scope', 'mmengine'))
    pipeline = test_pipeline(cfg)
    load = [t for t in pipeline if type_of(t).startswith('LoadImage')]
    if not load:
        raise UserError('the test pipeline loads no image file: take a config whose data are files')
    size = img_size[1], img_size[0]
    resize = dict(type='Resize', scale=size, keep_ratio=False)
    ready = [t for t in pipeline if type_of(t) == 'Normalize' or type_of(t).startswith('Pack')]
    shown = mmcv.imread(path) if osp.isfile(path) else None
    if shown is None:
        raise UserError(f'{path} does not exist or is no image: give the path of an image file')
    sample = Compose([*load, resize, *ready])(dict(img_path=path))
    data = backbone.preprocessor(dict(inputs=[sample['inputs']],
                                      data_samples=[sample['data_samples']]), False)
    return data['inputs'], mmcv.imresize(mmcv.bgr2rgb(shown), size)


def num_heads_of(model: nn.Module) -> int:
    """Heads of the last attention layer of a timm model.

    Raises:
        UserError: if it has none.
    """
    heads = [module.num_heads for module in model.modules() if hasattr(module, 'num_heads')]
    if not heads:
        raise UserError(f'{type(model).__name__} has no attention heads: pictures per head take a '
                        'vision transformer')
    return heads[-1]
