# ImageNet-1K at 224 px: data/imagenet/{train,val}/WNID/*.JPEG.
# Normalised in the pipeline, not in the data preprocessor, because random erasing comes after it
# and fills its box with per-pixel normal noise. 0.5 is what ViT and RegViT are trained with.
mean, std = [127.5, 127.5, 127.5], [127.5, 127.5, 127.5]
data_preprocessor = dict(num_classes=1000)

crop = dict(
    type='RandomChoice',
    transforms=[[
        dict(
            type='RandomResizedCrop',
            scale=224,
            crop_ratio_range=(0.08, 1.0),
            backend='pillow',
            interpolation=method)
    ] for method in ('bilinear', 'bicubic')])
rand_augment = dict(
    type='RandomChoice',
    transforms=[[
        dict(
            type='RandAugment',
            policies='timm_increasing',
            num_policies=2,
            magnitude_level=9,
            magnitude_std=0.5,
            hparams=dict(pad_val=[round(value) for value in mean[::-1]], interpolation=method))
    ] for method in ('bilinear', 'bicubic')])
normalize = dict(type='Normalize', mean=mean, std=std, to_rgb=True)
train_pipeline = [
    dict(type='LoadImageFromFile'),
    crop,
    dict(type='RandomFlip', prob=0.5),
    rand_augment,
    normalize,
    dict(type='torchvision/ToTensor'),
    dict(
        type='torchvision/RandomErasing',
        p=0.25,
        scale=(0.02, 1 / 3),
        ratio=(0.3, 1 / 0.3),
        value='random'),
    dict(type='PackInputs'),
]
test_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(
        type='ResizeEdge', scale=248, edge='short', backend='pillow', interpolation='bicubic'),
    dict(type='CenterCrop', crop_size=224),
    normalize,
    dict(type='PackInputs'),
]
tta_pipeline = [
    *test_pipeline[:-1],
    dict(
        type='TestTimeAug',
        transforms=[
            [dict(type='RandomFlip', prob=0.), dict(type='RandomFlip', prob=1.)],
            [dict(type='PackInputs')],
        ]),
]

train_dataloader = dict(
    batch_size=128,
    num_workers=5,
    persistent_workers=True,
    pin_memory=True,
    sampler=dict(type='DefaultSampler', shuffle=True),
    dataset=dict(
        type='ImageNet', data_root='data/imagenet', split='train',
        pipeline=train_pipeline))
val_dataloader = dict(
    batch_size=128,
    num_workers=5,
    persistent_workers=True,
    pin_memory=True,
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(
        type='ImageNet', data_root='data/imagenet', split='val',
        pipeline=test_pipeline))
test_dataloader = val_dataloader

val_evaluator = dict(type='Accuracy', topk=(1, 5))
test_evaluator = val_evaluator
