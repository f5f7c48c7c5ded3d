# 2.4 million parameters and 8 x 8 patches, at 32 px unless a config says otherwise.
_base_ = './cls_protocol_vit.py'

model = dict(
    # 65 tokens, heads of 24 channels: on a CPU bfloat16 trains twice as fast unfused.
    backbone=dict(arch='compact', img_size=32, patch_size=4, fused_attn=False),
    neck=dict(embed_dims=192, num_heads=8, num_prefix_tokens=1),
    head=dict(in_channels=192))
