_base_ = [
    '../_base_/models/upernet_vit.py', '../_base_/datasets/shapes_seg.py',
    '../_base_/schedules/short_400.py'
]

checkpoint = 'work_dirs/quickstart/locatvit_shapes/epoch_2.pth'
# Patches of 8 pixels: the neck makes maps of 1/4, 1/8, 1/16 and 1/32 from four blocks.
model = dict(
    data_preprocessor=dict(size=(128, 128)),
    backbone=dict(
        arch=dict(embed_dims=96, num_layers=4, num_heads=3, mlp_ratio=2),
        img_size=128,
        patch_size=8,
        out_indices=(0, 1, 2, 3),
        init_cfg=dict(checkpoint=checkpoint)),
    neck=dict(in_channels=[96] * 4, out_channels=64, scales=[2, 1, 0.5, 0.25]),
    decode_head=dict(in_channels=[64] * 4, channels=64, num_classes=10),
    auxiliary_head=dict(in_channels=64, channels=32, num_classes=10))

optim_wrapper = dict(optimizer=dict(lr=2e-3), clip_grad=dict(max_norm=1.0))
