_base_ = './dino_vit.py'

model = dict(
    backbone=dict(arch='small'),
    neck=dict(embed_dims=384, num_heads=6),
    head=dict(in_channels=384, hidden_channels=2048, bottleneck_channels=256, out_channels=65536))
