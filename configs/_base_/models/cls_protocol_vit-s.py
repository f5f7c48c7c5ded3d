_base_ = './cls_protocol_vit.py'

model = dict(
    backbone=dict(arch='small'),
    neck=dict(embed_dims=384, num_heads=6, num_prefix_tokens=1),
    head=dict(in_channels=384))
