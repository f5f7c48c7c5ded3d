_base_ = [
    '../_base_/models/cls_protocol_vit-t.py', '../_base_/datasets/in1k_protocol.py',
    '../_base_/schedules/protocol_200e.py'
]

model = dict(head=dict(num_classes=1000))
