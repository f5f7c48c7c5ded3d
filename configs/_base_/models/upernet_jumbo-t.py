# Six class tokens that share a wide MLP (arXiv 2502.15021).
_base_ = './upernet_vit.py'

model = dict(
    backbone=dict(arch='jumbo-tiny'),
    neck=dict(in_channels=[192] * 4, out_channels=192),
    decode_head=dict(in_channels=[192] * 4),
    auxiliary_head=dict(in_channels=192))
