_base_ = [
    '../_base_/models/probe_jumbo-b.py', '../_base_/datasets/ade20k.py',
    '../_base_/schedules/probe_20k.py'
]

checkpoint = 'work_dirs/pretrain/jumbo-b_in1k/epoch_300.pth'
model = dict(
    data_preprocessor=dict(size=(512, 512)),
    backbone=dict(gaug=False, init_cfg=dict(checkpoint=checkpoint)),
    decode_head=dict(num_classes=150))

train_dataloader = dict(batch_size=32)
