# The plain twin of upernet_locatdinov2-s_camvid.py.
_base_ = [
    '../_base_/models/upernet_dinov2-s.py', '../_base_/datasets/camvid_patch14.py',
    '../_base_/schedules/short_400.py'
]

labels = dict(num_classes=len(_base_.metainfo.classes), ignore_index=_base_.void)
model = dict(
    data_preprocessor=dict(size=_base_.crop_size, seg_pad_val=_base_.void),
    backbone=dict(gaug=False),
    decode_head=labels,
    auxiliary_head=labels)
optim_wrapper = dict(paramwise_cfg=dict(custom_keys={
    'backbone': dict(lr_mult=0.05),
    '.attn.gaug.': dict(lr_mult=1.),
}))
