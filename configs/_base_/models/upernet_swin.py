# UPerNet on a Swin; widths and depths are in upernet_swin-t.py and upernet_swin-b.py.
# ``gaug=False`` makes it plain. ImageNet's mean and std as in pre-training.
# Weights: a classification checkpoint of tools/train.py, named in the leaf config. Another file:
# --cfg-options model.backbone.init_cfg.checkpoint=FILE; from scratch: model.backbone.init_cfg=None.
norm_cfg = dict(type='SyncBN', requires_grad=True)
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
        out_indices=(0, 1, 2, 3),
        out_norm=True,
        drop_path_rate=0.3,
        init_cfg=dict(type='Pretrained', prefix='backbone.')),
    decode_head=dict(
        type='UPerHead',
        in_index=[0, 1, 2, 3],
        pool_scales=(1, 2, 3, 6),
        channels=512,
        dropout_ratio=0.1,
        norm_cfg=norm_cfg,
        align_corners=False,
        loss_decode=dict(type='CrossEntropyLoss', use_sigmoid=False, loss_weight=1.0)),
    auxiliary_head=dict(
        type='FCNHead',
        in_index=2,
        channels=256,
        num_convs=1,
        concat_input=False,
        dropout_ratio=0.1,
        norm_cfg=norm_cfg,
        align_corners=False,
        loss_decode=dict(type='CrossEntropyLoss', use_sigmoid=False, loss_weight=0.4)),
    train_cfg=dict(),
    test_cfg=dict(mode='whole'))
