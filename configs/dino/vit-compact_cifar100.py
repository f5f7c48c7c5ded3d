_base_ = [
    '../_base_/models/dino_vit-compact.py', '../_base_/datasets/cifar100_multicrop.py',
    '../_base_/schedules/dino_100e.py'
]

model = dict(
    backbone=dict(gaug=False),
    neck=dict(refine=False),
    loss=dict(initial_teacher_temp=0.04, teacher_temp=0.07, warmup_epochs=30))
