"""Tiny pairs of a classifier of a config of cutmix_locality and the one that needs no OpenMMLab."""
import mmpretrain.models  # noqa: F401
import torch
from config_helpers import load
from mmengine.config import Config
from mmengine.registry import MODELS, DefaultScope
from mmpretrain.structures import DataSample
from torch import Tensor, nn

from locat_mmseg.analysis.compact_vit import ARCHITECTURES, build_compact_vit

NUM_CLASSES = 7
TINY = dict(embed_dim=24, depth=2, num_heads=3)


def config_of(architecture: str, protocol: str) -> Config:
    """The config of a protocol with the switches of an architecture, a few channels wide."""
    switches = ARCHITECTURES[architecture]
    family = 'locatvit' if architecture == 'locatvit' else 'vit'
    cfg = load(f'cutmix_locality/{family}-compact_{protocol}_cifar100')
    if family == 'vit':
        cfg.model.backbone.gaug = switches.get('gaug', False)
        cfg.model.neck.refine = switches.get('prr', False)
    if 'num_registers' in switches:
        cfg.model.backbone.num_registers = switches['num_registers']
        cfg.model.neck.num_prefix_tokens = 1 + switches['num_registers']
    return cfg


def shrink(cfg: Config) -> Config:
    """The same config with the sizes in `TINY`."""
    cfg.model.backbone.arch = dict(embed_dims=TINY['embed_dim'], num_layers=TINY['depth'],
                                   num_heads=TINY['num_heads'], mlp_ratio=2)
    cfg.model.neck.update(embed_dims=TINY['embed_dim'], num_heads=TINY['num_heads'])
    cfg.model.head.update(in_channels=TINY['embed_dim'], num_classes=NUM_CLASSES)
    cfg.data_preprocessor.num_classes = NUM_CLASSES
    return cfg


def build(cfg: Config) -> nn.Module:
    """The classifier of a config."""
    cfg.model.data_preprocessor = cfg.data_preprocessor
    with DefaultScope.overwrite_default_scope('mmpretrain'):
        return MODELS.build(cfg.model)


def timm_names(model: nn.Module) -> dict[str, Tensor]:
    """Parameters of a config's classifier under the names of the other."""
    return {name.removeprefix('backbone.model.').replace('head.fc.', 'head.'): parameter
            for name, parameter in model.named_parameters()}


def twins(architecture: str, protocol: str) -> tuple[Config, nn.Module, nn.Module]:
    """A tiny config, its classifier, and the other one with the same weights, none of them 0."""
    cfg = shrink(config_of(architecture, protocol))
    theirs = build(cfg)
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    ours = build_compact_vit(NUM_CLASSES, **ARCHITECTURES[architecture], **TINY,
                             fused_attn=cfg.model.backbone.get('fused_attn'))
    ours.load_state_dict(timm_names(theirs))
    return cfg, theirs, ours


def batch(count: int, seed: int = 0) -> tuple[Tensor, Tensor, dict]:
    """Random bytes, random labels, and both in the form that a config's loader gives."""
    generator = torch.Generator().manual_seed(seed)
    images = torch.randint(256, (count, 3, 32, 32), dtype=torch.uint8, generator=generator)
    labels = torch.randint(NUM_CLASSES, (count, ), generator=generator)
    samples = [DataSample().set_gt_label(label.item()) for label in labels]
    return images, labels, dict(inputs=images.clone(), data_samples=samples)
