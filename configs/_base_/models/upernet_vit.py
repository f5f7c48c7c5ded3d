# UPerNet on a ViT; widths and depths are in upernet_vit-t.py and its like. ``gaug=False`` makes it
# plain. img_size is the size of pre-training, whatever the crop. Mean and std 0.5 as there.
# Weights: a classification checkpoint of tools/train.py, named in the leaf config. Another file:
# --cfg-options model.backbone.init_cfg.checkpoint=FILE; from scratch: model.backbone.init_cfg=None.
norm_cfg = dict(type='SyncBN', requires_grad=True)
model = dict(
    type='EncoderDecoder',
    data_preprocessor=dict(
        type='SegDataPreProcessor',
        mean=[127.5, 127.5, 127.5],
        std=[127.5, 127.5, 127.5],
        bgr_to_rgb=True,
        pad_val=0,
        seg_pad_val=255),
    backbone=dict(
        type='LocAtViT',
        img_size=224,
        patch_size=16,
        out_indices=(2, 5, 8, 11),
        drop_path_rate=0.,
        init_cfg=dict(type='Pretrained', prefix='backbone.')),
    neck=dict(type='MultiLevelNeck', scales=[4, 2, 1, 0.5]),
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
        in_index=3,
        channels=256,
        num_convs=1,
        concat_input=False,
        dropout_ratio=0.1,
        norm_cfg=norm_cfg,
        align_corners=False,
        loss_decode=dict(type='CrossEntropyLoss', use_sigmoid=False, loss_weight=0.4)),
    train_cfg=dict(),
    test_cfg=dict(mode='whole'))
