_base_ = [
    '../_base_/models/dino_vit-s.py', '../_base_/datasets/in1k_multicrop.py',
    '../_base_/schedules/dino_100e.py'
]
