_base_ = './probe_vit.py'

model = dict(
    backbone=dict(arch='tiny'),
    decode_head=dict(in_channels=192))
