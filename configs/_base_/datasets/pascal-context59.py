# PASCAL Context, 59 classes without background. Layout, as MMSegmentation prepares it:
# JPEGImages, SegmentationClassContext, ImageSets/SegmentationContext/{train,val}.txt.
dataset_type = 'PascalContextDataset59'
data_root = 'data/VOCdevkit/VOC2010'
crop_size = (480, 480)
# Label 0 is no class: the data set class sets reduce_zero_label, which makes it void.
train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadAnnotations'),
    dict(type='RandomResize', scale=(520, 520), ratio_range=(0.5, 2.0), keep_ratio=True),
    dict(type='RandomCrop', crop_size=crop_size, cat_max_ratio=0.75),
    dict(type='RandomFlip', prob=0.5),
    dict(type='PhotoMetricDistortion'),
    dict(type='PackSegInputs'),
]
# The label stays at its own size: predictions are enlarged to it.
test_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='Resize', scale=(520, 520), keep_ratio=True),
    dict(type='LoadAnnotations'),
    dict(type='PackSegInputs'),
]
# Six scales of the test size, each with and without a flip.
tta_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(
        type='TestTimeAug',
        transforms=[
            [
                dict(type='Resize', scale=(int(520 * ratio), int(520 * ratio)), keep_ratio=True)
                for ratio in (0.5, 0.75, 1.0, 1.25, 1.5, 1.75)
            ],
            [
                dict(type='RandomFlip', prob=0., direction='horizontal'),
                dict(type='RandomFlip', prob=1., direction='horizontal'),
            ],
            [dict(type='LoadAnnotations')],
            [dict(type='PackSegInputs')],
        ]),
]

train_dataloader = dict(
    batch_size=2,
    num_workers=4,
    persistent_workers=True,
    sampler=dict(type='InfiniteSampler', shuffle=True),
    dataset=dict(
        type=dataset_type,
        data_root=data_root,
        ann_file='ImageSets/SegmentationContext/train.txt',
        data_prefix=dict(img_path='JPEGImages', seg_map_path='SegmentationClassContext'),
        pipeline=train_pipeline))
val_dataloader = dict(
    batch_size=1,
    num_workers=4,
    persistent_workers=True,
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(
        type=dataset_type,
        data_root=data_root,
        ann_file='ImageSets/SegmentationContext/val.txt',
        data_prefix=dict(img_path='JPEGImages', seg_map_path='SegmentationClassContext'),
        pipeline=test_pipeline))
test_dataloader = val_dataloader

val_evaluator = dict(type='IoUMetric', iou_metrics=['mIoU'])
test_evaluator = val_evaluator
