# UPerNet with narrow heads on DINOv2 ViT-S/14 (arXiv 2304.07193), with its mean, std and 518 px grid.
# Weights: see ../../examples/README.md.
_base_ = './upernet_vit.py'

checkpoint = 'timm:vit_small_patch14_dinov2.lvd142m'
model = dict(
    data_preprocessor=dict(mean=[123.675, 116.28, 103.53], std=[58.395, 57.12, 57.375]),
    backbone=dict(
        _delete_=True,
        type='LocAtTIMM',
        model_name='vit_small_patch14_dinov2',
        out_indices=(2, 5, 8, 11),
        init_cfg=dict(type='Pretrained', checkpoint=checkpoint)),
    neck=dict(in_channels=[384] * 4, out_channels=64),
    decode_head=dict(in_channels=[64] * 4, channels=64),
    auxiliary_head=dict(in_channels=64, channels=32))
