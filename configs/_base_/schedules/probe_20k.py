# The frozen-backbone protocol of LocAtViT (arXiv 2603.04892): 20k iterations, one process of 32
# images, AdamW with decay on everything that is trained, no clipping.
_base_ = '../runtime/segmentation.py'

train_cfg = dict(type='IterBasedTrainLoop', max_iters=20000, val_interval=2000)
val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')

optim_wrapper = dict(
    type='OptimWrapper',
    optimizer=dict(type='AdamW', lr=1e-3, betas=(0.9, 0.999), weight_decay=0.01))

# One cycle, both halves linear: from lr / 1e4 up to lr within the first quarter, then down to
# 1e-11. The peak is iteration 4999; the second half starts from it.
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-4, by_epoch=False, begin=0, end=5000),
    dict(
        type='LinearLR', start_factor=1., end_factor=1e-8, by_epoch=False, begin=4999, end=20000),
]

auto_scale_lr = dict(base_batch_size=32)
default_hooks = dict(checkpoint=dict(type='CheckpointHook', by_epoch=False, interval=2000))
