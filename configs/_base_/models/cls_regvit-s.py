# Four register tokens.
_base_ = './cls_vit.py'

model = dict(
    backbone=dict(arch='small', num_registers=4, drop_path_rate=0.2),
    neck=dict(embed_dims=384, num_heads=6, num_prefix_tokens=5),
    head=dict(in_channels=384))
