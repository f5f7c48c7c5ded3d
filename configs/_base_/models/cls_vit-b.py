_base_ = './cls_vit.py'

model = dict(
    backbone=dict(arch='base', drop_path_rate=0.4),
    neck=dict(embed_dims=768, num_heads=12, num_prefix_tokens=1),
    head=dict(in_channels=768))
