_base_ = [
    '../_base_/models/cls_protocol_vit-compact.py', '../_base_/datasets/tiny-imagenet_protocol.py',
    '../_base_/schedules/protocol_200e.py'
]

model = dict(backbone=dict(img_size=64, patch_size=8), head=dict(num_classes=200))
