# 100 epochs of DINO. The learning rate is for 256 images and is scaled to the total batch size.
_base_ = '../runtime/classification.py'

train_cfg = dict(by_epoch=True, max_epochs=100)

# No decay on biases and norms. Clipped is the norm of all gradients together.
optim_wrapper = dict(
    type='OptimWrapper',
    optimizer=dict(type='AdamW', lr=5e-4, betas=(0.9, 0.999), weight_decay=0.04),
    paramwise_cfg=dict(flat_decay_mult=0.),
    clip_grad=dict(max_norm=3.0))

# Stepped every iteration. The weight decay grows to 0.4; a ratio keeps that of biases at 0.
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-6, begin=0, end=10, convert_to_iter_based=True),
    dict(type='CosineAnnealingLR', eta_min=1e-6, begin=10, end=100, convert_to_iter_based=True),
    dict(
        type='CosineAnnealingParamScheduler',
        param_name='weight_decay',
        eta_min_ratio=10.,
        begin=0,
        end=100,
        convert_to_iter_based=True),
]

auto_scale_lr = dict(enable=True, base_batch_size=256)
default_hooks = dict(checkpoint=dict(type='CheckpointHook', interval=10, max_keep_ckpts=3))
custom_hooks = [
    *_base_.custom_hooks,
    dict(type='FreezeLayerHook', layer='head.last_layer', epochs=1),
]
