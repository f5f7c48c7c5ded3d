_base_ = [
    '../_base_/models/cls_protocol_vit-compact.py', '../_base_/datasets/cifar100_protocol.py',
    '../_base_/schedules/protocol_200e.py'
]

model = dict(
    backbone=dict(gaug=True),
    neck=dict(refine=True),
    head=dict(num_classes=100),
    train_cfg=dict(probs=1.))
