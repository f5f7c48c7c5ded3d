# As mini-imagenet.py, with ImageNet's mean and standard deviation: Swin and RoPE.
_base_ = './mini-imagenet.py'

mean, std = [123.675, 116.28, 103.53], [58.395, 57.12, 57.375]

rand_augment = dict(
    type='RandomChoice',
    transforms=[[dict(augment, hparams=dict(augment.hparams, pad_val=[104, 116, 124]))]
                for augment, in _base_.rand_augment.transforms])
normalize = dict(type='Normalize', mean=mean, std=std, to_rgb=True)
train_pipeline = [
    *_base_.train_pipeline[:3], rand_augment, normalize, *_base_.train_pipeline[5:]
]
test_pipeline = [*_base_.test_pipeline[:-2], normalize, _base_.test_pipeline[-1]]
tta_pipeline = [*test_pipeline[:-1], _base_.tta_pipeline[-1]]

train_dataloader = dict(dataset=dict(pipeline=train_pipeline))
val_dataloader = dict(dataset=dict(pipeline=test_pipeline))
test_dataloader = val_dataloader
