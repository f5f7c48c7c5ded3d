_base_ = [
    '../_base_/models/cls_protocol_vit-compact.py', '../_base_/datasets/cifar100_protocol.py',
    '../_base_/schedules/protocol_200e.py'
]

model = dict(head=dict(num_classes=100, loss=dict(label_smooth_val=0.1)), train_cfg=dict(probs=1.))
train_dataloader = dict(dataset=dict(pipeline=_base_.augmented_pipeline))
