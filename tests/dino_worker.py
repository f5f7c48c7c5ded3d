"""One of two gloo processes that train DINO; a module of its own, so that they can import it."""
from pathlib import Path

import torch
import torch.distributed as dist
from tiny_dino import crops, dino, tell, train

from locat_mmseg.openmmlab.distributed import CPUDistributedDataParallel

WORLD_SIZE, IMAGES, STEPS = 2, 2, 3


def work(rank: int, folder: Path) -> None:
    """Train on this process's images; all weights and buffers go to a file."""
    torch.set_num_threads(1)
    dist.init_process_group('gloo', f'file://{folder}/init', rank=rank, world_size=WORLD_SIZE)
    tell(max_iters=STEPS)
    model = dino(with_cp=True, base_momentum=0.4)
    train(CPUDistributedDataParallel(model), crops(range(IMAGES * rank, IMAGES * (rank + 1))),
          STEPS)
    torch.save(model.state_dict(), folder / f'{rank}.pth')
    dist.destroy_process_group()
