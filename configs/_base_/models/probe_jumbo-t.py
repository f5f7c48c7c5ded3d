# Six class tokens that share a wide MLP (arXiv 2502.15021).
_base_ = './probe_vit.py'

model = dict(
    backbone=dict(arch='jumbo-tiny'),
    decode_head=dict(in_channels=192))
