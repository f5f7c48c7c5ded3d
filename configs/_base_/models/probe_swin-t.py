_base_ = './probe_swin.py'

model = dict(
    backbone=dict(arch='tiny'),
    decode_head=dict(in_channels=768))
