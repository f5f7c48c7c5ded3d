# Four register tokens.
_base_ = './probe_vit.py'

model = dict(
    backbone=dict(arch='base', num_registers=4),
    decode_head=dict(in_channels=768))
