# Mixed rotary embedding instead of a learned one, layer scale; the head starts 1000 times smaller.
_base_ = './cls_vit.py'

model = dict(
    backbone=dict(arch='small', rope=True, drop_path_rate=0.2),
    neck=dict(embed_dims=384, num_heads=6, num_prefix_tokens=1),
    head=dict(in_channels=384, init_cfg=dict(std=0.02 * 0.001)))
