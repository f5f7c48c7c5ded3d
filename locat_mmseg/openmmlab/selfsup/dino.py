"""DINO: self-distillation without labels (arXiv 2104.14294).

A student learns to predict, from any crop of an image, what its teacher makes of a large crop of
the same image; the teacher is the moving average of the student.

Shape legend: G global (large) crops, V crops in all, B images, K outputs of the head.
"""
from collections import OrderedDict
from collections.abc import Sequence
from itertools import groupby

import torch
from mmengine.logging import MessageHub
from mmpretrain.models.selfsup import BaseSelfSupervisor
from mmpretrain.models.utils import CosineEMA
from mmpretrain.registry import MODELS
from torch import Tensor, nn


@MODELS.register_module()
class DINOPretraining(BaseSelfSupervisor):
    """DINO (arXiv 2104.14294) for a backbone with a pooling neck.

    The student is ``backbone``, ``neck`` and ``head``; the teacher's weights are below
    ``teacher.module.`` in a checkpoint, so ``prefix='teacher.module.backbone.'`` loads the
    teacher's backbone, which is the one to use, into a segmentor.

    Args:
        backbone: such as `LocAtViT` with ``out_type='tokens'``. Its stochastic depth acts in the
            student only.
        neck: such as `PRRPool`.
        head: such as `DINOProjection`.
        loss: such as `DINOLoss`; its number of outputs is the head's.
        num_global_crops: G; the pipeline's MultiView must give these first.
        base_momentum: share of the student in the first update of the teacher; it falls to 0 along
            a cosine. DINO's momentum is 1 minus this.
        data_preprocessor: as in mmpretrain's BaseSelfSupervisor.
        init_cfg: as in mmengine's BaseModule.
    """

    def __init__(self, backbone: dict, neck: dict, head: dict, loss: dict,
                 num_global_crops: int = 2, base_momentum: float = 0.004,
                 data_preprocessor: dict | nn.Module | None = None,
                 init_cfg: dict | list | None = None) -> None:
        super().__init__(backbone, neck, head, data_preprocessor=data_preprocessor,
                         init_cfg=init_cfg)
        self.num_global_crops = num_global_crops
        self.loss_module = MODELS.build(dict(loss, out_channels=self.head.out_channels))
        self.teacher = CosineEMA(self.student, momentum=base_momentum)

    @property
    def student(self) -> nn.Sequential:
        """The network that is trained, without copies."""
        return nn.Sequential(OrderedDict(backbone=self.backbone, neck=self.neck, head=self.head))

    def train(self, mode: bool = True) -> 'DINOPretraining':
        """Switch the student to training mode; the teacher has no stochastic depth."""
        super().train(mode)
        self.teacher.eval()
        return self

    def extract_feat(self, inputs: Tensor) -> tuple[Tensor]:
        """The teacher's pooled features of images (B, 3, H, W): (B, C) in a tuple."""
        return self.teacher.module.neck(self.teacher.module.backbone(inputs))

    def loss(self, inputs: list[Tensor], data_samples: list | None = None) -> dict[str, Tensor]:
        """The loss of one step, after the teacher followed the student's last one.

        Args:
            inputs: V crops of the same B images, (B, 3, h, w) each, the G global ones first.
            data_samples: unused; there are no labels.

        Returns:
            What the loss module returns.

        Raises:
            ValueError: if the crops are not V >= 2 of which the first G are the largest.
        """
        check_crops(inputs, self.num_global_crops)
        with torch.no_grad():
            self.teacher.update_parameters(self.student)
            targets = project(self.teacher, inputs[:self.num_global_crops])
        epoch = MessageHub.get_current_instance().get_info('epoch', 0)
        return self.loss_module(project(self.student, inputs), targets, epoch)


def project(network: nn.Module, crops: Sequence[Tensor]) -> Tensor:
    """The outputs (V, B, K) for V crops (B, 3, h, w); neighbours of one size go through the
    network as one batch."""
    outputs = [network(torch.cat(list(group)))
               for _, group in groupby(crops, key=lambda crop: crop.shape)]
    return torch.cat(outputs).unflatten(0, (len(crops), -1))


def check_crops(crops: list[Tensor], num_global_crops: int) -> None:
    """Whether a batch is a list of crops with the global ones first.

    Raises:
        ValueError: saying what came.
    """
    if not isinstance(crops, (list, tuple)):
        raise ValueError(f'DINO got one batch of shape {tuple(crops.shape)}, but it compares crops '
                         "of an image: use the transform MultiView, and collate_fn=dict(type="
                         "'default_collate') in train_dataloader")
    sizes = [tuple(crop.shape[-2:]) for crop in crops]
    if len(sizes) < max(2, num_global_crops):
        raise ValueError(f'DINO got {len(sizes)} crops of each image, but num_global_crops='
                         f'{num_global_crops}: raise num_views of the transform MultiView to '
                         f'{max(2, num_global_crops)} or more in all')
    areas = [height * width for height, width in sizes]
    if len(set(sizes[:num_global_crops])) > 1 or max(areas) > areas[0]:
        raise ValueError(f'DINO got crops of {sizes} pixels, but the first num_global_crops='
                         f'{num_global_crops} must be of one size and no other larger: list the '
                         'global views first in the transform MultiView')
