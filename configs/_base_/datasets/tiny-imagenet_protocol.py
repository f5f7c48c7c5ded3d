# Tiny-ImageNet at 64 px, in data/tiny-imagenet-200, with two training pipelines: Baseline's,
# train_pipeline, and the one with colour jitter, augmented_pipeline.
data_preprocessor = dict(num_classes=200, mean=[127.5] * 3, std=[127.5] * 3, to_rgb=True)

load_crop_and_flip = [
    dict(type='LoadImageFromFile'),
    dict(type='RandomCrop', crop_size=64, padding=8),
    dict(type='RandomFlip', prob=0.5),
]
train_pipeline = [*load_crop_and_flip, dict(type='PackInputs')]
augmented_pipeline = [
    *load_crop_and_flip,
    dict(type='ColorJitter', brightness=0.4, contrast=0.4, saturation=0.4, hue=0.1),
    dict(type='PackInputs'),
]
test_pipeline = [dict(type='LoadImageFromFile'), dict(type='PackInputs')]
tta_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(
        type='TestTimeAug',
        transforms=[
            [dict(type='RandomFlip', prob=0.), dict(type='RandomFlip', prob=1.)],
            [dict(type='PackInputs')],
        ]),
]

# One process. Each batch has the same size, so that a compiled model is compiled once.
train_dataloader = dict(
    batch_size=256,
    num_workers=4,
    persistent_workers=True,
    pin_memory=True,
    drop_last=True,
    sampler=dict(type='DefaultSampler', shuffle=True),
    collate_fn=dict(type='default_collate'),
    dataset=dict(
        type='TinyImageNet', data_root='data/tiny-imagenet-200', split='train',
        pipeline=train_pipeline))
val_dataloader = dict(
    batch_size=256,
    num_workers=4,
    persistent_workers=True,
    pin_memory=True,
    sampler=dict(type='DefaultSampler', shuffle=False),
    collate_fn=dict(type='default_collate'),
    dataset=dict(
        type='TinyImageNet', data_root='data/tiny-imagenet-200', split='val',
        pipeline=test_pipeline))
test_dataloader = val_dataloader

val_evaluator = dict(type='Accuracy', topk=(1, 5))
test_evaluator = val_evaluator
