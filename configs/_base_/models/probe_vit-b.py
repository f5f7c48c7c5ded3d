_base_ = './probe_vit.py'

model = dict(
    backbone=dict(arch='base'),
    decode_head=dict(in_channels=768))
