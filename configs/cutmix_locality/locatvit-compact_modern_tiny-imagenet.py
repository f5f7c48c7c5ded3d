_base_ = [
    '../_base_/models/cls_protocol_vit-compact.py', '../_base_/datasets/tiny-imagenet_protocol.py',
    '../_base_/schedules/protocol_200e.py'
]

model = dict(
    backbone=dict(gaug=True, img_size=64, patch_size=8),
    neck=dict(refine=True),
    head=dict(num_classes=200, loss=dict(label_smooth_val=0.1)),
    train_cfg=dict(probs=1.))
train_dataloader = dict(dataset=dict(pipeline=_base_.augmented_pipeline))
