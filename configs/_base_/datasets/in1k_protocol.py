# ImageNet-1K at 224 px, data/imagenet/{train,val}/WNID/*.JPEG, with two training pipelines:
# Baseline's, train_pipeline, and the one with AutoAugment's ImageNet policy, augmented_pipeline.
# The crop is random-resized, as is usual at this size.
data_preprocessor = dict(num_classes=1000, mean=[127.5] * 3, std=[127.5] * 3, to_rgb=True)

load_crop_and_flip = [
    dict(type='LoadImageFromFile'),
    dict(type='RandomResizedCrop', scale=224, backend='pillow', interpolation='bicubic'),
    dict(type='RandomFlip', prob=0.5),
]
train_pipeline = [*load_crop_and_flip, dict(type='PackInputs')]
augmented_pipeline = [
    *load_crop_and_flip,
    dict(type='AutoAugment', policies='imagenet'),
    dict(type='PackInputs'),
]
test_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(
        type='ResizeEdge', scale=248, edge='short', backend='pillow', interpolation='bicubic'),
    dict(type='CenterCrop', crop_size=224),
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

# 8 processes x 32 images. Each batch has the same size, so that a compiled model is compiled once.
train_dataloader = dict(
    batch_size=32,
    num_workers=5,
    persistent_workers=True,
    pin_memory=True,
    drop_last=True,
    sampler=dict(type='DefaultSampler', shuffle=True),
    collate_fn=dict(type='default_collate'),
    dataset=dict(
        type='ImageNet', data_root='data/imagenet', split='train', pipeline=train_pipeline))
val_dataloader = dict(
    batch_size=128,
    num_workers=5,
    persistent_workers=True,
    pin_memory=True,
    sampler=dict(type='DefaultSampler', shuffle=False),
    collate_fn=dict(type='default_collate'),
    dataset=dict(
        type='ImageNet', data_root='data/imagenet', split='val', pipeline=test_pipeline))
test_dataloader = val_dataloader

val_evaluator = dict(type='Accuracy', topk=(1, 5))
test_evaluator = val_evaluator
