# Four register tokens.
_base_ = './upernet_vit.py'

model = dict(
    backbone=dict(arch='tiny', num_registers=4),
    neck=dict(in_channels=[192] * 4, out_channels=192),
    decode_head=dict(in_channels=[192] * 4),
    auxiliary_head=dict(in_channels=192))
