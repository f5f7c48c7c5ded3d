_base_ = './upernet_swin.py'

model = dict(
    backbone=dict(arch='base'),
    decode_head=dict(in_channels=[128, 256, 512, 1024]),
    auxiliary_head=dict(in_channels=512))
