_base_ = [
    '../_base_/models/probe_jumbo-t.py', '../_base_/datasets/coco-stuff164k.py',
    '../_base_/schedules/probe_20k.py'
]

checkpoint = 'work_dirs/pretrain/locatjumbo-t_in1k/epoch_300.pth'
model = dict(
    data_preprocessor=dict(size=(512, 512)),
    backbone=dict(init_cfg=dict(checkpoint=checkpoint)),
    decode_head=dict(num_classes=171))

train_dataloader = dict(batch_size=32)
