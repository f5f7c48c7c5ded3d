# 400 iterations that teach a small model something, with or without weights to start from.
_base_ = '../runtime/segmentation.py'

train_cfg = dict(type='IterBasedTrainLoop', max_iters=400, val_interval=400)
val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')

optim_wrapper = dict(type='OptimWrapper', optimizer=dict(type='AdamW', lr=1e-3, weight_decay=0.01))
param_scheduler = [
    dict(type='LinearLR', start_factor=0.01, by_epoch=False, begin=0, end=40),
    dict(type='PolyLR', eta_min=0., power=1., by_epoch=False, begin=40, end=400),
]

default_hooks = dict(
    checkpoint=dict(type='CheckpointHook', by_epoch=False, interval=400),
    logger=dict(interval=20))
