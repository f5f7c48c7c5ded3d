_base_ = './upernet_vit.py'

model = dict(
    backbone=dict(arch='small'),
    neck=dict(in_channels=[384] * 4, out_channels=384),
    decode_head=dict(in_channels=[384] * 4),
    auxiliary_head=dict(in_channels=384))
