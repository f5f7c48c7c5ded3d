# CIFAR-100 for DINO: of each image two global crops at 32 px and four local ones at 16 px. Ours:
# the augmentation of in1k_multicrop.py without blur, which would leave nothing at this size.
# In data/cifar100 (downloaded there when it is missing); the labels are not used.
data_preprocessor = dict(
    type='SelfSupDataPreprocessor', mean=[127.5] * 3, std=[127.5] * 3)  # its images are RGB

global_crop = dict(
    type='RandomResizedCrop',
    scale=32,
    crop_ratio_range=(0.4, 1.0),
    backend='pillow',
    interpolation='bicubic')
local_crop = dict(global_crop, scale=16, crop_ratio_range=(0.05, 0.4))
recolour = [
    dict(type='RandomFlip', prob=0.5),
    dict(
        type='RandomApply',
        prob=0.8,
        transforms=[
            dict(type='ColorJitter', brightness=0.4, contrast=0.4, saturation=0.2, hue=0.1)
        ]),
    dict(
        type='RandomGrayscale',
        prob=0.2,
        keep_channels=True,
        channel_weights=(0.299, 0.587, 0.114),
        color_format='rgb'),
]
train_pipeline = [
    dict(
        type='MultiView',
        num_views=[1, 1, 4],
        transforms=[
            [global_crop, *recolour],
            [global_crop, *recolour, dict(type='Solarize', thr=128, prob=0.2)],
            [local_crop, *recolour],
        ]),
    dict(type='PackInputs'),
]

train_dataloader = dict(
    batch_size=256,
    num_workers=2,
    persistent_workers=True,
    pin_memory=True,
    drop_last=True,
    sampler=dict(type='DefaultSampler', shuffle=True),
    collate_fn=dict(type='default_collate'),
    dataset=dict(
        type='CIFAR100', data_root='data/cifar100', split='train',
        pipeline=train_pipeline))
