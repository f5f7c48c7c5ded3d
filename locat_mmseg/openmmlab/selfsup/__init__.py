"""Self-supervised pre-training: the parts of DINO that mmengine and mmpretrain lack."""
from . import dino, dino_head, dino_loss, freeze_hook  # noqa: F401
