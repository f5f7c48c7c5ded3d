"""One of several gloo processes; a module of its own, so that spawned processes can import it."""
from pathlib import Path

import torch
import torch.distributed as dist
from mmengine.dataset import pseudo_collate
from tiny_models import (JUMBO, SWIN, VIT, RandomClassification, RandomSegmentation, build,
                         classifier, segmentor)
from torch import Tensor, nn

from locat_mmseg.openmmlab.distributed import CPUDistributedDataParallel

WORLD_SIZE = 2
MODELS = {  # middle blocks only, whole Swin, tokens and PRR; Jumbo both ways
    'vit': ('mmseg', segmentor(dict(VIT, with_cp=True)), RandomSegmentation),
    'swin': ('mmseg', segmentor(SWIN), RandomSegmentation),
    'classifier': ('mmpretrain', classifier(dict(VIT, num_registers=2), num_prefix_tokens=3),
                   RandomClassification),
    'jumbo': ('mmseg', segmentor(JUMBO), RandomSegmentation),
    'jumbo classifier': ('mmpretrain', classifier(JUMBO, num_prefix_tokens=2, num_class_tokens=2),
                         RandomClassification),
}


def backward(model: nn.Module, dataset: type, indices: range) -> None:
    """Accumulate the gradient of the loss on these images."""
    plain = getattr(model, 'module', model)
    batch = pseudo_collate([dataset()[i] for i in indices])
    loss, _ = plain.parse_losses(model(**plain.data_preprocessor(batch, True), mode='loss'))
    loss.backward()


def gradients(model: nn.Module) -> dict[str, Tensor]:
    return {name: p.grad.clone() for name, p in model.named_parameters()}


def work(rank: int, folder: Path) -> None:
    """Two backward passes of every model on this rank's images; the gradients go to a file."""
    torch.set_num_threads(1)
    dist.init_process_group('gloo', f'file://{folder}/init', rank=rank, world_size=WORLD_SIZE)
    found = {}
    for name, (scope, cfg, dataset) in MODELS.items():
        model = build(scope, cfg).train()
        ddp = CPUDistributedDataParallel(model, device_ids=[0])
        for _ in range(2):  # DDP notices an unused parameter in the second pass
            model.zero_grad()
            backward(ddp, dataset, range(2 * rank, 2 * rank + 2))
        found[name] = gradients(model)
    torch.save(found, folder / f'{rank}.pth')
    dist.destroy_process_group()
