_base_ = [
    '../_base_/models/cls_ropevit-s.py', '../_base_/datasets/cifar100_imagenet-norm.py',
    '../_base_/schedules/pretrain_300e.py'
]

model = dict(
    backbone=dict(gaug=False, img_size=32, patch_size=4),
    neck=dict(refine=False),
    head=dict(num_classes=100))
