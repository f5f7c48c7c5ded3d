# 300 epochs at a total batch of 1024: 8 processes x 128 images. The recipe uses mixed precision:
# give --amp to the training tool.
_base_ = '../runtime/classification.py'

train_cfg = dict(by_epoch=True, max_epochs=300, val_interval=1)
val_cfg = dict()
test_cfg = dict()

# No decay on one-dimensional parameters (biases, norms, layer scale), embeddings, tokens, tables
# and rotary frequencies.
optim_wrapper = dict(
    type='OptimWrapper',
    optimizer=dict(type='AdamW', lr=1e-3, betas=(0.9, 0.999), weight_decay=0.05),
    paramwise_cfg=dict(
        flat_decay_mult=0.,
        custom_keys={
            'pos_embed': dict(decay_mult=0.),
            'cls_token': dict(decay_mult=0.),
            'reg_token': dict(decay_mult=0.),
            'relative_position_bias_table': dict(decay_mult=0.),
            'rope.freqs': dict(decay_mult=0.),
        }),
    clip_grad=dict(max_norm=5.0))

# One cycle, both halves linear, stepped every iteration: 1e-7 to lr in 20 epochs, back to 1e-7.
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-4, begin=0, end=20, convert_to_iter_based=True),
    dict(
        type='LinearLR',
        start_factor=1.,
        end_factor=1e-4,
        begin=20,
        end=300,
        convert_to_iter_based=True),
]

auto_scale_lr = dict(base_batch_size=1024)
default_hooks = dict(checkpoint=dict(type='CheckpointHook', interval=10, max_keep_ckpts=3))
