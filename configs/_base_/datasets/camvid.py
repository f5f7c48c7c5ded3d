# Images and label PNGs in folders: the pattern for your own data. Lines to change are marked (1-7).
data_root = 'data/camvid'  # (1) images/{train,val} and annotations/{train,val} of equal stems
# (2) The name of label 0, 1, ... and its colour in pictures; no entry for void.
metainfo = dict(
    classes=('sky', 'building', 'pole', 'road', 'pavement', 'tree', 'sign', 'fence', 'car',
             'pedestrian', 'bicyclist'),
    palette=[[128, 128, 128], [128, 0, 0], [192, 192, 128], [128, 64, 128], [60, 40, 222],
             [128, 128, 0], [192, 128, 128], [64, 64, 128], [64, 0, 128], [64, 64, 0],
             [0, 128, 192]])
# (3) The label that means "no class", 255 in most data. Labels that count from 1, with 0 as void:
# add reduce_zero_label=True to the three data sets and set this to 255.
void = 11
suffixes = dict(img_suffix='.jpg', seg_map_suffix='.png')  # (4)
scale = (480, 360)  # (5) (width, height) that images are brought to; their ratio is kept
crop_size = (256, 256)  # (6) (height, width) of the training crops

train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadAnnotations'),
    dict(type='RandomResize', scale=scale, ratio_range=(0.5, 2.0), keep_ratio=True),
    dict(type='RandomCrop', crop_size=crop_size, cat_max_ratio=0.75, ignore_index=void),
    dict(type='RandomFlip', prob=0.5),
    dict(type='PhotoMetricDistortion'),
    dict(type='PackSegInputs'),
]
test_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='Resize', scale=scale, keep_ratio=True),
    dict(type='LoadAnnotations'),
    dict(type='PackSegInputs'),
]
tta_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(
        type='TestTimeAug',
        transforms=[
            [
                dict(
                    type='Resize',
                    scale=(int(scale[0] * ratio), int(scale[1] * ratio)),
                    keep_ratio=True) for ratio in (0.75, 1.0, 1.25)
            ],
            [
                dict(type='RandomFlip', prob=0., direction='horizontal'),
                dict(type='RandomFlip', prob=1., direction='horizontal'),
            ],
            [dict(type='LoadAnnotations')],
            [dict(type='PackSegInputs')],
        ]),
]

dataset = dict(
    type='BaseSegDataset',
    data_root=data_root,
    metainfo=metainfo,
    ignore_index=void,
    **suffixes)
train_dataloader = dict(
    batch_size=4,
    num_workers=2,
    persistent_workers=True,
    sampler=dict(type='InfiniteSampler', shuffle=True),
    dataset=dict(
        data_prefix=dict(img_path='images/train', seg_map_path='annotations/train'),  # (7)
        pipeline=train_pipeline,
        **dataset))
val_dataloader = dict(
    batch_size=1,
    num_workers=2,
    persistent_workers=True,
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(
        data_prefix=dict(img_path='images/val', seg_map_path='annotations/val'),  # (7)
        pipeline=test_pipeline,
        **dataset))
test_dataloader = val_dataloader

# Beside the model's mIoU, that of predicting the commonest class everywhere.
val_evaluator = [
    dict(type='IoUMetric', iou_metrics=['mIoU'], ignore_index=void),
    dict(type='CommonestClassMetric', ignore_index=void)
]
test_evaluator = val_evaluator
