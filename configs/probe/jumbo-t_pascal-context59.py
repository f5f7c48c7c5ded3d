_base_ = [
    '../_base_/models/probe_jumbo-t.py', '../_base_/datasets/pascal-context59.py',
    '../_base_/schedules/probe_20k.py'
]

checkpoint = 'work_dirs/pretrain/jumbo-t_in1k/epoch_300.pth'
model = dict(
    data_preprocessor=dict(size=(480, 480)),
    backbone=dict(gaug=False, init_cfg=dict(checkpoint=checkpoint)),
    decode_head=dict(num_classes=59))

train_dataloader = dict(batch_size=32)
