_base_ = [
    '../../_base_/models/cls_vit-t.py', '../../_base_/datasets/in1k.py',
    '../../_base_/schedules/pretrain_300e.py'
]

model = dict(
    backbone=dict(gaug=False, class_token=False, final_norm=False),
    neck=dict(pool='avg', num_prefix_tokens=0, refine=False, norm=True),
    head=dict(num_classes=1000))
