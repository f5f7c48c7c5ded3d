_base_ = './cls_swin.py'

model = dict(
    backbone=dict(arch='tiny', drop_path_rate=0.1),
    neck=dict(embed_dims=768, num_heads=24),
    head=dict(in_channels=768))
