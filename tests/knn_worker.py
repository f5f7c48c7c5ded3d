"""One of two gloo processes; a module of its own, so that spawned processes can import it."""
from pathlib import Path

import torch
import torch.distributed as dist
from mmengine.runner import Runner
from tiny_models import VIT, RandomClassification, build, classifier

from locat_mmseg.openmmlab.frozen_classification import Labelled
from locat_mmseg.openmmlab.knn_hook import collect_features

WORLD_SIZE = 2


def features() -> Labelled | None:
    """Of five images: one process reads one more than the other."""
    loader = Runner.build_dataloader(dict(
        dataset=RandomClassification(5), batch_size=2, num_workers=0,
        sampler=dict(type='DefaultSampler', shuffle=False)))
    return collect_features(build('mmpretrain', classifier(VIT)).eval(), loader)


def work(rank: int, folder: Path) -> None:
    """What this rank gets goes to a file."""
    torch.set_num_threads(1)
    dist.init_process_group('gloo', f'file://{folder}/init', rank=rank, world_size=WORLD_SIZE)
    torch.save(features(), folder / f'{rank}.pth')
    dist.destroy_process_group()
