_base_ = './cls_vit.py'

model = dict(
    backbone=dict(arch='tiny', drop_path_rate=0.1),
    neck=dict(embed_dims=192, num_heads=3, num_prefix_tokens=1),
    head=dict(in_channels=192))
