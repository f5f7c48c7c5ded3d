# Four register tokens.
_base_ = './cls_vit.py'

model = dict(
    backbone=dict(arch='tiny', num_registers=4, drop_path_rate=0.1),
    neck=dict(embed_dims=192, num_heads=3, num_prefix_tokens=5),
    head=dict(in_channels=192))
