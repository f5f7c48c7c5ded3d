_base_ = './cls_swin.py'

model = dict(
    backbone=dict(arch='base', drop_path_rate=0.4),
    neck=dict(embed_dims=1024, num_heads=32),
    head=dict(in_channels=1024))
