_base_ = './probe_vit.py'

model = dict(
    backbone=dict(arch='small'),
    decode_head=dict(in_channels=384))
