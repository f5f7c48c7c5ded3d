# The frozen-backbone protocol of LocAtViT (arXiv 2603.04892): a one-layer 1x1 head on the last
# stage, before the final norm. Sizes are in probe_swin-t.py and probe_swin-b.py.
# ImageNet's mean and std, as in pre-training.
# Weights: a classification checkpoint of tools/train.py, named in the leaf config. Another file:
# --cfg-options model.backbone.init_cfg.checkpoint=FILE. A frozen backbone has to have some.
model = dict(
    type='EncoderDecoder',
    data_preprocessor=dict(
        type='SegDataPreProcessor',
        mean=[123.675, 116.28, 103.53],
        std=[58.395, 57.12, 57.375],
        bgr_to_rgb=True,
        pad_val=0,
        seg_pad_val=255),
    backbone=dict(
        type='LocAtSwin',
        img_size=224,
        patch_size=4,
        window_size=7,
        out_indices=(3, ),
        out_norm=False,
        frozen_stages=4,
        init_cfg=dict(type='Pretrained', prefix='backbone.')),
    decode_head=dict(
        type='FCNHead',
        num_convs=1,
        kernel_size=1,
        channels=512,
        concat_input=False,
        dropout_ratio=0.,
        norm_cfg=dict(type='GN', num_groups=1),
        act_cfg=dict(type='GELU'),
        align_corners=False,
        loss_decode=dict(type='CrossEntropyLoss', use_sigmoid=False, loss_weight=1.0)),
    train_cfg=dict(),
    test_cfg=dict(mode='whole'))
