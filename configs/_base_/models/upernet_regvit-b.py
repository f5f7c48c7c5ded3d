# Four register tokens.
_base_ = './upernet_vit.py'

model = dict(
    backbone=dict(arch='base', num_registers=4),
    neck=dict(in_channels=[768] * 4, out_channels=768),
    decode_head=dict(in_channels=[768] * 4),
    auxiliary_head=dict(in_channels=768))
