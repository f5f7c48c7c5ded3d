_base_ = [
    '../_base_/models/cls_jumbo-t.py', '../_base_/datasets/cifar100.py',
    '../_base_/schedules/pretrain_300e.py'
]

model = dict(
    backbone=dict(gaug=False, refine=False, img_size=32, patch_size=4),
    neck=dict(refine=False),
    head=dict(num_classes=100, init_cfg=dict(bias=-4.6052)))
