# The plain twin of upernet_locatvit_camvid.py.
_base_ = [
    '../_base_/models/upernet_compact.py', '../_base_/datasets/camvid.py',
    '../_base_/schedules/short_400.py'
]

labels = dict(num_classes=len(_base_.metainfo.classes), ignore_index=_base_.void)
model = dict(
    data_preprocessor=dict(size=_base_.crop_size, seg_pad_val=_base_.void),
    backbone=dict(gaug=False, img_size=_base_.crop_size),
    decode_head=labels,
    auxiliary_head=labels)
