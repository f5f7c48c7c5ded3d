_base_ = [
    '../_base_/models/cls_jumbo-t.py', '../_base_/datasets/in1k.py',
    '../_base_/schedules/pretrain_300e.py'
]

model = dict(head=dict(num_classes=1000, init_cfg=dict(bias=-6.9078)))
