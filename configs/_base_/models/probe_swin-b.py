_base_ = './probe_swin.py'

model = dict(
    backbone=dict(arch='base'),
    decode_head=dict(in_channels=1024))
