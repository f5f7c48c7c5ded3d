_base_ = [
    '../_base_/models/cls_vit.py', '../_base_/datasets/shapes_cls.py',
    '../_base_/runtime/classification.py'
]

# A small ViT of 16 x 16 patches; no mixing of images, which is for long training.
model = dict(
    backbone=dict(
        arch=dict(embed_dims=96, num_layers=4, num_heads=3, mlp_ratio=2),
        img_size=128,
        patch_size=8),
    neck=dict(embed_dims=96, num_heads=3, num_prefix_tokens=1),
    head=dict(num_classes=9, in_channels=96),
    train_cfg=dict(_delete_=True))
data_preprocessor = dict(num_classes=9, mean=[127.5] * 3, std=[127.5] * 3, to_rgb=True)

train_cfg = dict(by_epoch=True, max_epochs=2, val_interval=1)
val_cfg = dict()
test_cfg = dict()
optim_wrapper = dict(type='OptimWrapper', optimizer=dict(type='AdamW', lr=1e-3, weight_decay=0.05))
param_scheduler = [dict(type='PolyLR', power=1., eta_min=0., end=2, convert_to_iter_based=True)]
default_hooks = dict(checkpoint=dict(type='CheckpointHook', interval=1), logger=dict(interval=10))
