# Self-drawn shapes, segmentation: 2000 training and 200 test pictures, no files needed.
dataset_type = 'ShapesSegDataset'
img_size = (128, 128)  # (height, width), of the pictures and of the training crops
train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadAnnotations'),
    dict(type='RandomResize', scale=img_size[::-1], ratio_range=(1.0, 1.5), keep_ratio=True),
    dict(type='RandomCrop', crop_size=img_size),
    dict(type='RandomFlip', prob=0.5),
    dict(type='PackSegInputs')
]
test_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadAnnotations'),
    dict(type='PackSegInputs')
]
tta_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(
        type='TestTimeAug',
        transforms=[
            [dict(type='Resize', scale_factor=r, keep_ratio=True) for r in (0.75, 1.0, 1.25)],
            [dict(type='RandomFlip', prob=0., direction='horizontal'),
             dict(type='RandomFlip', prob=1., direction='horizontal')],
            [dict(type='LoadAnnotations')],
            [dict(type='PackSegInputs')]
        ])
]
train_dataloader = dict(
    batch_size=8,
    num_workers=2,
    persistent_workers=True,
    sampler=dict(type='InfiniteSampler', shuffle=True),
    dataset=dict(
        type=dataset_type, split='train', num_images=2000, img_size=img_size,
        pipeline=train_pipeline))
val_dataloader = dict(
    batch_size=1,
    num_workers=2,
    persistent_workers=True,
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(
        type=dataset_type, split='test', num_images=200, img_size=img_size,
        pipeline=test_pipeline))
test_dataloader = val_dataloader

# Beside the model's mIoU, that of predicting the commonest class everywhere.
val_evaluator = [
    dict(type='IoUMetric', iou_metrics=['mIoU']),
    dict(type='CommonestClassMetric')
]
test_evaluator = val_evaluator
