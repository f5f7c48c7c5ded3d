"""Models of every family that features are found in, shrunk, as `PictureModel`s."""
from functools import partial

import timm
import torch
from tiny_backbones import dinov2, swin, vit
from tiny_timm import randomize, tiny, tiny_swin, tiny_vit
from torch import Tensor, nn

from locat_mmseg.addon import add_gaug
from locat_mmseg.analysis.picture_model import PictureModel

MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.25, 0.3)


def seeded(name: str, **kwargs) -> nn.Module:
    torch.manual_seed(0)
    return timm.create_model(name, img_size=64, num_classes=7, **kwargs)


TIMM = {
    'vit': tiny_vit,
    'locatvit': lambda: add_gaug(tiny_vit()),
    'deit': partial(tiny, 'deit_tiny_distilled_patch16_224'),
    'clip': partial(tiny, 'vit_base_patch32_clip_quickgelu_224'),
    'eva': partial(tiny, 'eva02_tiny_patch14_224', img_size=56),
    'coat': partial(seeded, 'coat_tiny', embed_dims=(16, 16, 16, 16), serial_depths=(1, 1, 1, 1),
                    parallel_depth=2, num_heads=8),
    'convit': partial(seeded, 'convit_tiny', embed_dim=8, depth=3, num_heads=4,
                      local_up_to_layer=2),
    'pit': partial(seeded, 'pit_ti_distilled_224', base_dims=(8, 8, 8), depth=(1, 1, 1)),
    'swin': tiny_swin,
    'locatswin': lambda: add_gaug(tiny_swin()),
    'twins_pcpvt': partial(seeded, 'twins_pcpvt_small', embed_dims=(16, 16, 16, 16),
                           depths=(1, 1, 1, 1), num_heads=(1, 2, 2, 2)),
    'twins_svt': partial(seeded, 'twins_svt_small', embed_dims=(16, 16, 16, 16),
                         depths=(1, 2, 1, 1), num_heads=(1, 2, 2, 2)),
}
SHELLS = {'LocAtViT': vit, 'LocAtSwin': swin, 'LocAtTIMM': dinov2}
SIZES = {'eva': (56, 56), 'swin': (56, 56), 'locatswin': (56, 56), 'LocAtTIMM': (56, 42),
         'LocAtViT': (40, 24), 'LocAtSwin': (32, 32)}


def picture_model(family: str) -> PictureModel:
    """A transformer of a family, with weights that all have an effect."""
    if family in SHELLS:
        shell = randomize(SHELLS[family]())
        return PictureModel(shell, MEAN, STD, core=shell.model, size=SIZES[family])
    return PictureModel(randomize(TIMM[family]()), MEAN, STD, size=SIZES.get(family, (64, 64)))


def tiny_resnet() -> PictureModel:
    torch.manual_seed(0)
    return PictureModel(timm.create_model('resnet50', layers=(1, 1, 1, 1), num_classes=7), MEAN,
                        STD, size=(64, 64))


def pictures(model: PictureModel, count: int = 2) -> Tensor:
    """Random pictures of the model's size."""
    return torch.rand(count, 3, *model.size, generator=torch.Generator().manual_seed(1))
