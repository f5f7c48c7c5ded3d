# Mixed rotary embedding instead of a learned one, layer scale; the head starts 1000 times smaller.
_base_ = './cls_vit.py'

model = dict(
    backbone=dict(arch='tiny', rope=True, drop_path_rate=0.1),
    neck=dict(embed_dims=192, num_heads=3, num_prefix_tokens=1),
    head=dict(in_channels=192, init_cfg=dict(std=0.02 * 0.001)))
