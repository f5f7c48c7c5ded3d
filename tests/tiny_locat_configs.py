"""Lines that turn the tiny configs of `tiny_runs` into models with a backbone of this package."""
from pathlib import Path

import torch
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope

BACKBONE = """
custom_imports = dict(imports=['locat_mmseg'], allow_failed_imports=False)
model['backbone'] = dict(type='LocAtViT', img_size=32, patch_size=8, out_indices={out_indices},
                         arch=dict(embed_dims=32, num_layers=2, num_heads=2, mlp_ratio=2), {extra})
"""
SEGMENTOR = BACKBONE.format(out_indices='(1, )', extra='frozen_stages=2, with_cp=True')
CLASSIFIER = BACKBONE.format(out_indices='-1', extra="out_type='tokens'") + """
model['neck'] = dict(type='PRRPool', embed_dims=32, num_heads=2)
"""


def checkpoint_of(config: Path) -> Path:
    """A checkpoint of the config's model with random weights."""
    cfg = Config.fromfile(config)
    init_default_scope(cfg.default_scope)
    torch.manual_seed(0)
    model = MODELS.build(dict(cfg.model, data_preprocessor=cfg.model.get('data_preprocessor')
                              or cfg.data_preprocessor))
    path = config.with_suffix('.pth')
    torch.save(dict(state_dict=model.state_dict()), path)
    return path
