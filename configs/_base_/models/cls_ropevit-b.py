# Mixed rotary embedding instead of a learned one, layer scale; the head starts 1000 times smaller.
_base_ = './cls_vit.py'

model = dict(
    backbone=dict(arch='base', rope=True, drop_path_rate=0.4),
    neck=dict(embed_dims=768, num_heads=12, num_prefix_tokens=1),
    head=dict(in_channels=768, init_cfg=dict(std=0.02 * 0.001)))
