# DINOv2 with GAug as a classifier of CIFAR-100, on the mean of the last block's patches: the same
# feature before and after a segmentor was trained, for tools/knn.py. Plain:
# --cfg-options model.backbone.gaug=False.
_base_ = [
    '../_base_/models/cls_vit-s.py', '../_base_/datasets/cifar100_imagenet-norm.py',
    '../_base_/schedules/pretrain_300e.py'
]

checkpoint = 'timm:vit_small_patch14_dinov2.lvd142m'
model = dict(
    backbone=dict(
        _delete_=True,
        type='LocAtTIMM',
        model_name='vit_small_patch14_dinov2',
        init_cfg=dict(type='Pretrained', checkpoint=checkpoint)),
    neck=dict(pool='avg', num_prefix_tokens=0, refine=False),
    head=dict(num_classes=100))

resize = dict(type='Resize', scale=(112, 112), interpolation='bicubic', backend='pillow')
train_dataloader = dict(dataset=dict(
    pipeline=[*_base_.train_pipeline[:2], resize, *_base_.train_pipeline[2:]]))
val_dataloader = dict(dataset=dict(pipeline=[resize, *_base_.test_pipeline]))
test_dataloader = val_dataloader
optim_wrapper = dict(optimizer=dict(lr=1e-4))
