# Four register tokens.
_base_ = './cls_vit.py'

model = dict(
    backbone=dict(arch='base', num_registers=4, drop_path_rate=0.4),
    neck=dict(embed_dims=768, num_heads=12, num_prefix_tokens=5),
    head=dict(in_channels=768))
