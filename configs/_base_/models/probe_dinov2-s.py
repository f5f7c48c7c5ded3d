# A frozen DINOv2 ViT-S/14 under the one-layer head of probe_vit.py.
# Weights: see ../../examples/README.md.
_base_ = './probe_vit.py'

checkpoint = 'timm:vit_small_patch14_dinov2.lvd142m'
model = dict(
    data_preprocessor=dict(mean=[123.675, 116.28, 103.53], std=[58.395, 57.12, 57.375]),
    backbone=dict(
        _delete_=True,
        type='LocAtTIMM',
        model_name='vit_small_patch14_dinov2',
        frozen_stages=12,
        init_cfg=dict(type='Pretrained', checkpoint=checkpoint)),
    decode_head=dict(in_channels=384))
