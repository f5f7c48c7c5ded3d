_base_ = [
    '../_base_/models/cls_swin-t.py', '../_base_/datasets/mini-imagenet_imagenet-norm.py',
    '../_base_/schedules/pretrain_600e.py'
]

model = dict(head=dict(num_classes=100))
