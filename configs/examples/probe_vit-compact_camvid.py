# The plain twin of probe_locatvit-compact_camvid.py.
_base_ = [
    '../_base_/models/probe_compact.py', '../_base_/datasets/camvid_patch4.py',
    '../_base_/schedules/short_400.py'
]

checkpoint = 'work_dirs/cutmix_locality/vit-compact_baseline_cifar100/epoch_200.pth'
model = dict(
    data_preprocessor=dict(size=_base_.crop_size, seg_pad_val=_base_.void),
    backbone=dict(gaug=False, init_cfg=dict(checkpoint=checkpoint)),
    decode_head=dict(num_classes=len(_base_.metainfo.classes), ignore_index=_base_.void))
