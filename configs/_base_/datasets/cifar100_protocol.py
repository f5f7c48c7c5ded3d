# CIFAR-100 at 32 px, in data/cifar100 (downloaded there when it is missing), with two training
# pipelines: Baseline's, train_pipeline, and the one with AutoAugment, augmented_pipeline.
# Images are RGB in this data set, as AutoAugment expects. They stay bytes until the data
# preprocessor normalises the batch, and are stacked where they are loaded: less to send and to do
# for the training process.
data_preprocessor = dict(num_classes=100, mean=[127.5] * 3, std=[127.5] * 3, to_rgb=False)

crop_and_flip = [
    dict(type='RandomCrop', crop_size=32, padding=4),
    dict(type='RandomFlip', prob=0.5),
]
train_pipeline = [*crop_and_flip, dict(type='PackInputs')]
augmented_pipeline = [*crop_and_flip, dict(type='CIFARAutoAugment'), dict(type='PackInputs')]
test_pipeline = [dict(type='PackInputs')]
tta_pipeline = [
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
        type='CIFAR100', data_root='data/cifar100', split='train', pipeline=train_pipeline))
val_dataloader = dict(
    batch_size=256,
    num_workers=4,
    persistent_workers=True,
    pin_memory=True,
    sampler=dict(type='DefaultSampler', shuffle=False),
    collate_fn=dict(type='default_collate'),
    dataset=dict(
        type='CIFAR100', data_root='data/cifar100', split='test', pipeline=test_pipeline))
test_dataloader = val_dataloader

val_evaluator = dict(type='Accuracy', topk=(1, 5))
test_evaluator = val_evaluator
