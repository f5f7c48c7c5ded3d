# Six class tokens that share a wide MLP (arXiv 2502.15021).
_base_ = './upernet_vit.py'

model = dict(
    backbone=dict(arch='jumbo-base'),
    neck=dict(in_channels=[768] * 4, out_channels=768),
    decode_head=dict(in_channels=[768] * 4),
    auxiliary_head=dict(in_channels=768))
