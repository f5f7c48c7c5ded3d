# As camvid.py, with crops of 16 x 16 whole patches of 14 pixels.
_base_ = './camvid.py'

crop_size = (224, 224)
train_pipeline = [
    dict(step, crop_size=crop_size) if step['type'] == 'RandomCrop' else step
    for step in _base_.train_pipeline
]
train_dataloader = dict(dataset=dict(pipeline=train_pipeline))
