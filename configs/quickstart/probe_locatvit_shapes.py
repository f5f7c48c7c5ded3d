_base_ = [
    '../_base_/models/probe_vit.py', '../_base_/datasets/shapes_seg.py',
    '../_base_/schedules/short_400.py'
]

checkpoint = 'work_dirs/quickstart/locatvit_shapes/epoch_2.pth'
model = dict(
    data_preprocessor=dict(size=(128, 128)),
    backbone=dict(
        arch=dict(embed_dims=96, num_layers=4, num_heads=3, mlp_ratio=2),
        img_size=128,
        patch_size=8,
        frozen_stages=4,
        init_cfg=dict(checkpoint=checkpoint)),
    decode_head=dict(in_channels=96, num_classes=10))
