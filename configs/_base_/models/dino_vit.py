# DINO with a ViT: patch refinement, then the class token, in student and teacher. Sizes are in
# dino_vit-s.py and its like. ``backbone.gaug=False`` and ``neck.refine=False`` make it plain.
model = dict(
    type='DINOPretraining',
    backbone=dict(
        type='LocAtViT', img_size=224, patch_size=16, out_type='tokens', drop_path_rate=0.1),
    neck=dict(type='PRRPool', pool='cls', num_prefix_tokens=1),
    head=dict(type='DINOProjection'),
    loss=dict(type='DINOLoss', student_temp=0.1, teacher_temp=0.04, center_momentum=0.9),
    base_momentum=0.004)  # the teacher keeps 0.996 of itself in the first step, all in the last
