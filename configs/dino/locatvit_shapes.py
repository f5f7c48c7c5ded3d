_base_ = [
    '../_base_/models/dino_vit-compact.py', '../_base_/datasets/shapes_multicrop.py',
    '../_base_/schedules/dino_10e.py'
]

# The blocks of the quickstart, on patches of 4 pixels.
model = dict(
    backbone=dict(
        arch=dict(_delete_=True, embed_dims=96, num_layers=4, num_heads=3, mlp_ratio=2)),
    neck=dict(embed_dims=96, num_heads=3),
    head=dict(in_channels=96))
