_base_ = './cls_protocol_vit.py'

model = dict(
    backbone=dict(arch='tiny'),
    neck=dict(embed_dims=192, num_heads=3, num_prefix_tokens=1),
    head=dict(in_channels=192))
