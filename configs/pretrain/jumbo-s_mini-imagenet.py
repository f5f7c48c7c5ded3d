_base_ = [
    '../_base_/models/cls_jumbo-s.py', '../_base_/datasets/mini-imagenet.py',
    '../_base_/schedules/pretrain_600e.py'
]

model = dict(
    backbone=dict(gaug=False, refine=False),
    neck=dict(refine=False),
    head=dict(num_classes=100, init_cfg=dict(bias=-4.6052)))
