_base_ = [
    '../_base_/models/cls_swin-t.py', '../_base_/datasets/in1k_imagenet-norm.py',
    '../_base_/schedules/pretrain_300e.py'
]

model = dict(
    backbone=dict(gaug=False),
    neck=dict(refine=False),
    head=dict(num_classes=1000))
