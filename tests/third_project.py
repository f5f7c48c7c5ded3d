"""A project with a registry of its own, for a process that imports nothing of this package.

``python third_project.py CONFIG FOLDER`` trains each backbone of the config and prints whether
the loss fell, and the classes of the config's plugins.
"""
import sys

import torch
from mmengine.config import Config
from mmengine.model import BaseModel
from mmengine.optim import OptimWrapper
from mmengine.registry import MODELS as ROOT
from mmengine.registry import Registry
from mmengine.runner import Runner
from torch import Tensor
from torch.utils.data import Dataset

MODELS = Registry('model', parent=ROOT, scope='third')


@MODELS.register_module()
class Third(BaseModel):
    """A classifier of this project, with a backbone and a neck from the registry."""

    def __init__(self, backbone: dict, neck: dict) -> None:
        super().__init__()
        self.backbone, self.neck = MODELS.build(backbone), MODELS.build(neck)
        self.head = torch.nn.Linear(24, 2)
        self.losses = []

    def forward(self, inputs: Tensor, labels: Tensor, mode: str) -> dict[str, Tensor]:
        pooled = self.neck(self.backbone(inputs))[-1]
        return dict(loss=torch.nn.functional.cross_entropy(self.head(pooled), labels))

    def train_step(self, data: dict, optim_wrapper: OptimWrapper) -> dict[str, Tensor]:
        outputs = super().train_step(data, optim_wrapper)
        self.losses.append(outputs['loss'].item())
        return outputs


class Dots(Dataset):
    """Dark and bright images."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> dict:
        return dict(inputs=torch.full((3, 40, 24), index % 2 - 0.5), labels=index % 2)


def main(config: str, folder: str) -> None:
    cfg = Config.fromfile(config)
    for backbone in cfg.backbones:
        runner = Runner(
            model=dict(type='Third', backbone=backbone, neck=cfg.neck), work_dir=folder,
            default_scope='third', experiment_name=backbone.type,
            train_dataloader=dict(batch_size=4, dataset=Dots(), num_workers=0,
                                  sampler=dict(type='DefaultSampler'),
                                  collate_fn=dict(type='default_collate')),
            train_cfg=dict(by_epoch=True, max_epochs=8),
            optim_wrapper=dict(optimizer=dict(type='AdamW', lr=1e-2)))
        runner.train()
        losses = runner.model.losses
        print('TRAINED', backbone.type, len(losses), losses[-1] < losses[0])
    for plugin in cfg.plugins:
        print('BUILT', type(MODELS.build(plugin)).__name__)


if __name__ == '__main__':
    main(*sys.argv[1:])
