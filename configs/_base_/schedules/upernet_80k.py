# 80k iterations at a total batch of 16: 8 processes x 2 images; else as upernet_160k.py.
_base_ = '../runtime/segmentation.py'

train_cfg = dict(type='IterBasedTrainLoop', max_iters=80000, val_interval=8000)
val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')

# No decay on norm layers (backbone and heads), embeddings, tokens, tables and rotary frequencies.
optim_wrapper = dict(
    type='OptimWrapper',
    optimizer=dict(type='AdamW', lr=6e-5, betas=(0.9, 0.999), weight_decay=0.01),
    paramwise_cfg=dict(
        norm_decay_mult=0.,
        custom_keys={
            'pos_embed': dict(decay_mult=0.),
            'cls_token': dict(decay_mult=0.),
            'reg_token': dict(decay_mult=0.),
            'relative_position_bias_table': dict(decay_mult=0.),
            'rope.freqs': dict(decay_mult=0.),
        }))

param_scheduler = [
    dict(type='LinearLR', start_factor=1e-6, by_epoch=False, begin=0, end=1500),
    dict(type='PolyLR', eta_min=0., power=1., by_epoch=False, begin=1500, end=80000),
]

# The total batch that the learning rate belongs to: auto_scale_lr.enable=True scales it.
auto_scale_lr = dict(base_batch_size=16)
default_hooks = dict(checkpoint=dict(type='CheckpointHook', by_epoch=False, interval=8000))
