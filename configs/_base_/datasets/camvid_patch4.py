# As camvid.py at a third of the size, for models of 32 px images in patches of 4.
_base_ = './camvid.py'

scale = (160, 120)
crop_size = (96, 96)
resize = dict(scale=scale)
changes = dict(RandomResize=resize, Resize=resize, RandomCrop=dict(crop_size=crop_size))
train_dataloader = dict(dataset=dict(pipeline=[
    dict(step, **changes.get(step['type'], {})) for step in _base_.train_pipeline]))
val_dataloader = dict(dataset=dict(pipeline=[
    dict(step, **changes.get(step['type'], {})) for step in _base_.test_pipeline]))
test_dataloader = val_dataloader

load, augment = _base_.tta_pipeline
resizes, *others = augment['transforms']
tta_pipeline = [
    load,
    dict(augment, transforms=[
        [dict(step, scale=tuple(side // 3 for side in step['scale'])) for step in resizes],
        *others]),
]
