_base_ = './upernet_swin.py'

model = dict(
    backbone=dict(arch='tiny'),
    decode_head=dict(in_channels=[96, 192, 384, 768]),
    auxiliary_head=dict(in_channels=384))
