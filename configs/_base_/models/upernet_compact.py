# A compact ViT and narrow heads: for small data and training from scratch.
_base_ = './upernet_vit.py'

model = dict(
    backbone=dict(arch='compact', out_indices=(1, 3, 5, 7), init_cfg=None),
    neck=dict(in_channels=[192] * 4, out_channels=64),
    decode_head=dict(in_channels=[64] * 4, channels=64),
    auxiliary_head=dict(in_channels=64, channels=32))
