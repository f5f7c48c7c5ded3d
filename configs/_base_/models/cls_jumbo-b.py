# Six class tokens share a wide MLP (arXiv 2502.15021) and go to the head together. It starts from
# weight 0 and bias -ln(classes), which the leaf configs set. Plain takes ``backbone.refine=False``,
# too. Nothing reads the last block's patches then, hence the last line.
_base_ = './cls_vit.py'

model = dict(
    backbone=dict(arch='jumbo-base', drop_path_rate=0.4),
    neck=dict(embed_dims=768, num_heads=12, num_prefix_tokens=6, num_class_tokens=6),
    head=dict(
        in_channels=4608,
        init_cfg=dict(_delete_=True, type='Constant', layer='Linear', val=0.)))

find_unused_parameters = True
