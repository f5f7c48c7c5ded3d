# The plain twin of probe_locatdinov2-s_camvid.py.
_base_ = [
    '../_base_/models/probe_dinov2-s.py', '../_base_/datasets/camvid_patch14.py',
    '../_base_/schedules/short_400.py'
]

model = dict(
    data_preprocessor=dict(size=_base_.crop_size, seg_pad_val=_base_.void),
    backbone=dict(gaug=False),
    decode_head=dict(num_classes=len(_base_.metainfo.classes), ignore_index=_base_.void))
