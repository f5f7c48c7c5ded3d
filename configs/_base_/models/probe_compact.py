# A frozen compact ViT of 32 px images under the one-layer head of probe_vit.py.
_base_ = './probe_vit.py'

model = dict(
    backbone=dict(arch='compact', img_size=32, patch_size=4, frozen_stages=8),
    decode_head=dict(in_channels=192))
