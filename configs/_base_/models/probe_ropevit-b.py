# Mixed rotary embedding instead of a learned one, layer scale, ImageNet's mean and std.
_base_ = './probe_vit.py'

model = dict(
    data_preprocessor=dict(mean=[123.675, 116.28, 103.53], std=[58.395, 57.12, 57.375]),
    backbone=dict(arch='base', rope=True),
    decode_head=dict(in_channels=768))
