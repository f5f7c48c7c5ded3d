"""Tiny segmentors and classifiers on the registered backbones, and random data for them."""
import torch
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope
from mmengine.structures import PixelData
from mmpretrain.structures import DataSample
from mmseg.structures import SegDataSample
from torch import nn
from torch.utils.data import Dataset

import locat_mmseg  # noqa: F401  registers the backbones

NUM_CLASSES = 3
VIT = dict(type='LocAtViT', img_size=32, patch_size=8,
           arch=dict(embed_dims=24, num_layers=3, num_heads=3, mlp_ratio=2))
JUMBO = dict(VIT, arch=dict(VIT['arch'], num_class_tokens=2))
SWIN = dict(type='LocAtSwin', img_size=32, patch_size=2, window_size=4,
            arch=dict(embed_dims=12, depths=(1, 2), num_heads=(3, 3)))


def segmentor(backbone: dict, norm: str = 'BN') -> dict:
    """UPerNet with an auxiliary head; the ViT gives the outputs of its first two blocks."""
    swin = backbone['type'] == 'LocAtSwin'
    channels = [12, 24] if swin else [24, 24]
    norm_cfg = dict(type=norm, requires_grad=True)
    head = dict(num_classes=NUM_CLASSES, channels=8, norm_cfg=norm_cfg, dropout_ratio=0.)
    return dict(
        type='EncoderDecoder',
        data_preprocessor=dict(type='SegDataPreProcessor', size=(32, 48), seg_pad_val=255,
                               mean=[127.5] * 3, std=[127.5] * 3),
        backbone=dict(backbone, out_indices=(0, 1)),
        neck=None if swin else dict(type='MultiLevelNeck', in_channels=channels, out_channels=24,
                                    scales=[2, 1]),
        decode_head=dict(type='UPerHead', in_channels=channels, in_index=[0, 1],
                         pool_scales=(1, 2), **head),
        auxiliary_head=dict(type='FCNHead', in_channels=channels[1], in_index=1, num_convs=1,
                            concat_input=False, **head),
        train_cfg=dict(), test_cfg=dict(mode='whole'))


def classifier(backbone: dict, **neck) -> dict:
    """PRR, pooling and a linear head."""
    channels = 24 * neck.get('num_class_tokens', 1)
    swin = dict(pool='avg', num_prefix_tokens=0) if backbone['type'] == 'LocAtSwin' else {}
    return dict(
        type='ImageClassifier',
        data_preprocessor=dict(type='ClsDataPreprocessor', num_classes=NUM_CLASSES,
                               mean=[127.5] * 3, std=[127.5] * 3),
        backbone=dict(backbone, out_type='tokens', out_indices=-1),
        neck=dict(type='PRRPool', embed_dims=24, num_heads=3, **{**swin, **neck}),
        head=dict(type='LinearClsHead', in_channels=channels, num_classes=NUM_CLASSES,
                  topk=(1, ), loss=dict(type='CrossEntropyLoss')))


def build(scope: str, cfg: dict, seed: int = 0) -> nn.Module:
    """A model as a project of this scope builds it, initialised."""
    init_default_scope(scope)
    torch.manual_seed(seed)
    model = MODELS.build(Config(cfg)._cfg_dict)
    model.init_weights()
    return model


class RandomSegmentation(Dataset):
    """Noise whose brightness is its label, of one odd size."""

    def __init__(self, length: int = 4) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> dict:
        generator = torch.Generator().manual_seed(index)
        labels = torch.randint(NUM_CLASSES, (1, 4, 5), generator=generator)
        labels = labels.repeat_interleave(8, 1).repeat_interleave(8, 2)[:, :31, :37]
        noise = torch.randint(20, labels.shape, generator=generator)
        image = (labels * 80 + noise).expand(3, -1, -1)
        sample = SegDataSample(gt_sem_seg=PixelData(data=labels), metainfo=dict(
            img_shape=(31, 37), ori_shape=(31, 37)))
        return dict(inputs=image.to(torch.uint8), data_samples=sample)


class RandomClassification(RandomSegmentation):
    """Noise whose brightness is its label."""

    def __getitem__(self, index: int) -> dict:
        generator = torch.Generator().manual_seed(index)
        label = index % NUM_CLASSES
        image = torch.randint(20, (3, 40, 24), generator=generator) + 80 * label
        return dict(inputs=image.to(torch.uint8), data_samples=DataSample().set_gt_label(label))
