# Classification with a Swin: patch refinement, then the mean of all patches. Sizes are in
# cls_swin-t.py and cls_swin-b.py. ``backbone.gaug=False`` and ``neck.refine=False`` make it plain.
model = dict(
    type='ImageClassifier',
    backbone=dict(
        type='LocAtSwin', img_size=224, patch_size=4, window_size=7, out_type='tokens'),
    neck=dict(type='PRRPool', pool='avg', num_prefix_tokens=0),
    head=dict(
        type='LinearClsHead',
        topk=(1, 5),
        loss=dict(type='LabelSmoothLoss', label_smooth_val=0.1, mode='original'),
        init_cfg=dict(type='TruncNormal', layer='Linear', std=0.02)),
    # Each batch is mixed by one of the two, half and half; the loss smooths the mixed target.
    train_cfg=dict(augments=[dict(type='Mixup', alpha=0.8), dict(type='CutMix', alpha=1.0)]))
