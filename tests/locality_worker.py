"""One of two gloo processes that measure locality; a module of its own, so that spawned processes
can import it."""
from pathlib import Path

import torch
import torch.distributed as dist
from mmengine.dataset import pseudo_collate
from tiny_models import SWIN, RandomSegmentation, build, segmentor
from torch.utils.data import DataLoader

from locat_mmseg.openmmlab.locality_hook import measure_shared, part_of_loader

SEGMENTOR = segmentor(SWIN)


def share_in_process(rank: int, folder: Path) -> None:
    """Measure with the other process; what this one finds goes to a file."""
    torch.set_num_threads(1)
    dist.init_process_group('gloo', f'file://{folder}/init', rank=rank, world_size=2)
    torch.save(share(rank, 2), folder / f'{rank}.pth')
    dist.destroy_process_group()


def share(rank: int, world_size: int) -> dict:
    """Measure a segmentor on five images, of which this process sees its part."""
    loader = DataLoader(RandomSegmentation(5), batch_size=2, collate_fn=pseudo_collate)
    model = build('mmseg', SEGMENTOR)
    return measure_shared(model, part_of_loader(loader, None, rank, world_size)).to_dict()
