# A plain ViT for the comparison of training protocols (arXiv 2605.16390), as in its Baseline: every
# dropout is 0, the loss is plain cross-entropy, and no images are mixed. Sizes are in
# cls_protocol_vit-compact.py and its like. The switches:
#   CutMix, of every batch   model.train_cfg.probs = 1. (a float)
#   label smoothing          model.head.loss.label_smooth_val = 0.1
#   LocAt                    model.backbone.gaug = True and model.neck.refine = True
#   AutoAugment and the like train_dataloader.dataset.pipeline = _base_.augmented_pipeline
model = dict(
    type='ImageClassifier',
    backbone=dict(
        type='LocAtViT', img_size=224, patch_size=16, out_type='tokens', gaug=False),
    neck=dict(type='PRRPool', pool='cls', refine=False),
    head=dict(
        type='LinearClsHead',
        topk=(1, 5),
        loss=dict(type='LabelSmoothLoss', label_smooth_val=0., mode='original'),
        init_cfg=dict(type='TruncNormal', layer='Linear', std=0.02)),
    train_cfg=dict(augments=[dict(type='CutMix', alpha=1.0)], probs=0.))
