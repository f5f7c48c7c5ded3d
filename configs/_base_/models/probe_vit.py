# The frozen-backbone protocol of LocAtViT (arXiv 2603.04892): a one-layer 1x1 head on the last
# block's patch tokens, before the final norm. Sizes are in probe_vit-t.py and its like.
# Mean and std are those of pre-training. The authors normalised by ImageNet's here, even for the
# weights they published, which were trained with 0.5: set them so to repeat their numbers with
# those weights (probe_ropevit-t.py shows the lines).
# Weights: a classification checkpoint of tools/train.py, named in the leaf config. Another file:
# --cfg-options model.backbone.init_cfg.checkpoint=FILE. A frozen backbone has to have some.
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
        out_indices=-1,
        frozen_stages=12,
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
