"""Find, load and shrink the configs of the repository."""
import ast
from copy import deepcopy
from functools import lru_cache
from pathlib import Path

from mmengine.config import Config

CONFIGS = Path(__file__).parents[1] / 'configs'
LEAVES = sorted(path.relative_to(CONFIGS).with_suffix('').as_posix()
                for path in CONFIGS.rglob('*.py') if '_base_' not in path.parts)
TINY_HEADS = 3
CLASSIFICATION = ('ImageClassifier', 'DINOPretraining')  # models of mmpretrain, the others mmseg's


def leaves_in(folder: str) -> list[str]:
    """Names of the leaf configs of a folder, without those of its sub-folders."""
    return [name for name in LEAVES if name.rpartition('/')[0] == folder]


@lru_cache(maxsize=None)
def _read(name: str) -> Config:
    return Config.fromfile(CONFIGS / f'{name}.py')


def load(name: str) -> Config:
    """A config of its own for the caller to change."""
    return deepcopy(_read(name))


def bases_of(path: Path) -> list[str]:
    """What a config file says in ``_base_``."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == '_base_':
            bases = ast.literal_eval(node.value)
            return [bases] if isinstance(bases, str) else bases
    return []


def hops(path: Path) -> int:
    """How many files lie between a config and its deepest base, that one included."""
    return max((1 + hops(path.parent / base) for base in bases_of(path)), default=0)


def shrink(cfg: Config) -> Config:
    """The same model with few channels: as many blocks or stages, heads and inputs as before."""
    model, backbone = cfg.model, cfg.model.backbone
    backbone.init_cfg = None
    if backbone.type == 'LocAtSwin':
        widths = [12, 24, 48, 96]
        backbone.arch = dict(embed_dims=12, depths=[1, 2, 1, 1], num_heads=[3, 3, 6, 6])
        heads = 6
    elif backbone.type == 'LocAtTIMM':
        widths, heads = [24] * 4, TINY_HEADS
        backbone.timm_args = dict(embed_dim=24, num_heads=TINY_HEADS, mlp_ratio=1)
    else:
        depth = backbone.arch['num_layers'] if isinstance(backbone.arch, dict) else 12
        depth = 8 if backbone.arch == 'compact' else depth
        widths = [24] * 4
        jumbo = dict(num_class_tokens=6, jumbo_mlp_ratio=1) if 'jumbo' in backbone.arch else {}
        backbone.arch = dict(embed_dims=24, num_layers=depth, num_heads=TINY_HEADS, mlp_ratio=1,
                             **jumbo)
        heads = TINY_HEADS
    if model.type in CLASSIFICATION:
        model.neck.update(embed_dims=widths[-1], num_heads=heads)
        model.head.in_channels = widths[-1] * model.neck.get('num_class_tokens', 1)
        if model.type == 'DINOPretraining':
            model.head.update(hidden_channels=16, bottleneck_channels=8, out_channels=32)
        return cfg
    if model.get('neck'):
        model.neck.update(in_channels=widths, out_channels=24)
    model.decode_head.channels = 16
    if model.decode_head.type == 'UPerHead':
        model.decode_head.in_channels = widths
        model.auxiliary_head.update(in_channels=widths[model.auxiliary_head.in_index], channels=8)
    else:
        model.decode_head.in_channels = widths[-1]
    return cfg


def shrink_pixels(cfg: Config) -> Config:
    """The same segmentation pipelines at a few pixels; PASCAL Context keeps its odd ratio."""
    crop, scale = ((48, 48), (104, 104)) if 'Context' in cfg.train_dataloader.dataset.type \
        else ((64, 64), (256, 64))
    for key in ('train', 'val', 'test'):
        for step in cfg[f'{key}_dataloader'].dataset.pipeline:
            if 'scale' in step:
                step.scale = scale
            if 'crop_size' in step:
                step.crop_size = crop
    for step in cfg.tta_pipeline[-1].transforms[0]:
        step.scale = tuple(size * step.scale[1] // cfg.test_pipeline[1].scale[1] for size in scale)
    cfg.model.data_preprocessor.size = crop
    return cfg
