# What the training protocols have in common: 200 epochs at a total batch of 256, one seed, so that
# the same model starts from the same weights, and the last epoch's weights.
_base_ = '../runtime/classification.py'

train_cfg = dict(by_epoch=True, max_epochs=200, val_interval=5)
val_cfg = dict()
test_cfg = dict()

# bfloat16 autocast, on a CPU too.
# No decay on one-dimensional parameters (biases, norms), position embedding and class token.
optim_wrapper = dict(
    type='BFloat16OptimWrapper',
    optimizer=dict(type='AdamW', lr=1e-3, betas=(0.9, 0.999), weight_decay=0.05),
    paramwise_cfg=dict(
        flat_decay_mult=0.,
        custom_keys={
            'pos_embed': dict(decay_mult=0.),
            'cls_token': dict(decay_mult=0.),
        }),
    clip_grad=dict(max_norm=1.0))

# Stepped every iteration: 10 epochs of linear warm-up, then a cosine to 0.
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, begin=0, end=10, convert_to_iter_based=True),
    dict(type='CosineAnnealingLR', eta_min=0., begin=10, end=200, convert_to_iter_based=True),
]

# Attention distance and entropy, at the start and every 10 epochs.
custom_hooks = [*_base_.custom_hooks, dict(type='LocalityHook', interval=10)]
auto_scale_lr = dict(base_batch_size=256)
randomness = dict(seed=0)
default_hooks = dict(checkpoint=dict(type='CheckpointHook', interval=10, max_keep_ckpts=3))
