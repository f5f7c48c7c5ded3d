# For crops of 32 and 16 px on a CPU.
_base_ = './dino_vit.py'

model = dict(
    backbone=dict(arch='compact', img_size=32, patch_size=4),
    neck=dict(embed_dims=192, num_heads=8),
    head=dict(in_channels=192, hidden_channels=512, bottleneck_channels=128, out_channels=1024))
