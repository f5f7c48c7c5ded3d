_base_ = [
    '../../_base_/models/cls_vit-b.py', '../../_base_/datasets/in1k.py',
    '../../_base_/schedules/pretrain_300e.py'
]

model = dict(
    backbone=dict(gaug=False, pos_embed=False),
    neck=dict(refine=False),
    head=dict(num_classes=1000))
