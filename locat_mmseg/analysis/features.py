"""Features of a timm model: one vector an image, or a map of its patches.

Shape legend: B batch, C channels, h*w patches.
"""
from torch import Tensor, nn


def pooled_features(model: nn.Module, images: Tensor) -> Tensor:
    """What the model's classifier sees, (B, C), for images (B, 3, H, W)."""
    return model.forward_head(model.forward_features(images), pre_logits=True)


def patch_features(model: nn.Module, images: Tensor, stage: int | None = None) -> Tensor:
    """Output of a block or stage before any final norm and without prefix tokens, (B, C, h, w).

    Args:
        model: a timm model that has `forward_intermediates`.
        images: (B, 3, H, W).
        stage: index of the block (ViT) or stage; by default that of `default_stage`.
    """
    return stage_features(model, images, [default_stage(model) if stage is None else stage])[0]


def stage_features(model: nn.Module, images: Tensor, stages: list[int] | None = None
                   ) -> list[Tensor]:
    """As `patch_features`, of several blocks or stages, by default all of them.

    Raises:
        ValueError: if the model gives no such features.
    """
    if not hasattr(model, 'forward_intermediates'):
        raise ValueError(f'{type(model).__name__} has no forward_intermediates, by which timm '
                         'models give features of patches; choose a model that has it, such as a '
                         'ViT or Swin')
    for stage in stages or ():
        check_stage(model, stage)
    return model.forward_intermediates(images, indices=stages, norm=False, output_fmt='NCHW',
                                       intermediates_only=True)


def default_stage(model: nn.Module) -> int:
    """The last block of a ViT; of a pyramid, such as Swin, the last stage but one.

    It is the one that LocAtViT's dense retrieval reads (arXiv 2603.04892): 14 x 14 cells at 224.
    """
    return len(model.feature_info) - 2 if is_pyramid(model) else num_stages(model) - 1


def stride_of(model: nn.Module, stage: int | None = None) -> int:
    """Side in pixels of what one cell of `patch_features` stands for.

    Raises:
        ValueError: if there is no such stage.
    """
    stage = default_stage(model) if stage is None else stage
    check_stage(model, stage)
    return model.feature_info[stage]['reduction']


def check_stage(model: nn.Module, stage: int) -> None:
    """Refuse an index that no block or stage has.

    Raises:
        ValueError: saying which there are.
    """
    depth = num_stages(model)
    if not -depth <= stage < depth:
        raise ValueError(f'stage {stage} of a {type(model).__name__} of {depth} blocks or stages: '
                         f'expected {-depth} to {depth - 1}')


def num_stages(model: nn.Module) -> int:
    """Blocks (ViT) or stages (pyramid) that the model has; pruned ones do not count."""
    parts = getattr(model, 'layers' if is_pyramid(model) else 'blocks', model.feature_info)
    return len(parts)


def is_pyramid(model: nn.Module) -> bool:
    """Whether later stages have coarser maps."""
    return model.feature_info[0]['reduction'] != model.feature_info[-1]['reduction']
