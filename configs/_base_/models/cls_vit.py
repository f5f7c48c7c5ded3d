# Classification with a ViT: patch refinement, then the class token. Sizes are in cls_vit-t.py and
# its like. ``backbone.gaug=False`` and ``neck.refine=False`` make it plain.
model = dict(
    type='ImageClassifier',
    backbone=dict(type='LocAtViT', img_size=224, patch_size=16, out_type='tokens'),
    neck=dict(type='PRRPool', pool='cls'),
    head=dict(
        type='LinearClsHead',
        topk=(1, 5),
        loss=dict(type='LabelSmoothLoss', label_smooth_val=0.1, mode='original'),
        init_cfg=dict(type='TruncNormal', layer='Linear', std=0.02)),
    # Each batch is mixed by one of the two, half and half; the loss smooths the mixed target.
    train_cfg=dict(augments=[dict(type='Mixup', alpha=0.8), dict(type='CutMix', alpha=1.0)]))
