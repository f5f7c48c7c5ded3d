_base_ = [
    '../_base_/models/upernet_jumbo-b.py', '../_base_/datasets/coco-stuff164k.py',
    '../_base_/schedules/upernet_160k.py'
]

checkpoint = 'work_dirs/pretrain/jumbo-b_in1k/epoch_300.pth'
model = dict(
    data_preprocessor=dict(size=(512, 512)),
    backbone=dict(gaug=False, init_cfg=dict(checkpoint=checkpoint)),
    decode_head=dict(num_classes=171),
    auxiliary_head=dict(num_classes=171))
