# The frozen backbone of a segmentor that upernet_locatdinov2-s_camvid.py trained: DINOv2's own weights
# have no GAug, and a frozen one has to come with weights.
_base_ = [
    '../_base_/models/probe_dinov2-s.py', '../_base_/datasets/camvid_patch14.py',
    '../_base_/schedules/short_400.py'
]

checkpoint = 'work_dirs/examples/upernet_locatdinov2-s_camvid/iter_400.pth'
model = dict(
    data_preprocessor=dict(size=_base_.crop_size, seg_pad_val=_base_.void),
    backbone=dict(init_cfg=dict(checkpoint=checkpoint, prefix='backbone.')),
    decode_head=dict(num_classes=len(_base_.metainfo.classes), ignore_index=_base_.void))
