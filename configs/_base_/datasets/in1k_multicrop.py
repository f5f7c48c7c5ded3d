# ImageNet-1K for DINO: of each image two global crops at 224 px and eight local ones at 96 px.
# data/imagenet/train/WNID/*.JPEG; the labels are not used. Normalised to 0.5 like the other ViTs
# here, so that the weights fit the segmentation configs as they are.
data_preprocessor = dict(
    type='SelfSupDataPreprocessor', mean=[127.5] * 3, std=[127.5] * 3, to_rgb=True)

global_crop = dict(
    type='RandomResizedCrop',
    scale=224,
    crop_ratio_range=(0.4, 1.0),
    backend='pillow',
    interpolation='bicubic')
local_crop = dict(global_crop, scale=96, crop_ratio_range=(0.05, 0.4))
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
        channel_weights=(0.114, 0.587, 0.299)),
]
blur = dict(type='GaussianBlur', magnitude_range=(0.1, 2.0), magnitude_std='inf')
train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(
        type='MultiView',
        num_views=[1, 1, 8],
        transforms=[
            [global_crop, *recolour, dict(blur, prob=1.0)],
            [
                global_crop, *recolour, dict(blur, prob=0.1),
                dict(type='Solarize', thr=128, prob=0.2)
            ],
            [local_crop, *recolour, dict(blur, prob=0.5)],
        ]),
    dict(type='PackInputs'),
]

train_dataloader = dict(
    batch_size=64,
    num_workers=8,
    persistent_workers=True,
    pin_memory=True,
    drop_last=True,
    sampler=dict(type='DefaultSampler', shuffle=True),
    collate_fn=dict(type='default_collate'),
    dataset=dict(
        type='ImageNet', data_root='data/imagenet', split='train',
        pipeline=train_pipeline))
