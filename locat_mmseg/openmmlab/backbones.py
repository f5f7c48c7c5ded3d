"""Registered backbones: a timm model, with or without GAug, behind OpenMMLab's backbone interface.

They only translate arguments. With ``gaug=False`` a backbone computes what plain timm computes, to
the bit: that is the baseline.
"""
from collections.abc import Sequence

import timm
from mmengine.registry import MODELS
from timm.models.eva import Eva
from timm.models.swin_transformer import SwinTransformer
from timm.models.vision_transformer import VisionTransformer

from ..addon import JumboViT
from ..addon.timm_names import check_timm_name
from ..layers import Grid
from .timm_backbone import TimmBackbone


def choose_arch(arch: str | dict, archs: dict[str, dict], required: Sequence[str],
                optional: Sequence[str] = ()) -> dict:
    """The settings of a named or custom architecture."""
    if isinstance(arch, str):
        if arch not in archs:
            raise ValueError(f'arch={arch!r}: expected one of {sorted(archs)} or a dict with '
                             f'{list(required)}')
        return archs[arch]
    missing = [key for key in required if key not in arch]
    if missing:
        raise ValueError(f'arch={arch}: a custom architecture also needs {missing}')
    unknown = sorted(arch.keys() - {*required, *optional})
    if unknown:
        raise ValueError(f'arch={arch}: unknown {unknown}; a custom architecture has '
                         f'{[*required, *optional]}')
    return arch


def check_heads(embed_dims: Sequence[int], num_heads: Sequence[int]) -> None:
    """Each stage's channels must split into its heads."""
    for channels, heads in zip(embed_dims, num_heads, strict=True):
        if channels % heads:
            raise ValueError(f'{channels} channels cannot be split into {heads} equal heads; '
                             'change embed_dims or num_heads of arch')


def check_jumbo(arch: str | dict, **changed: bool) -> None:
    """Refuse arguments that a Jumbo cannot have, if they were changed."""
    if any(changed.values()):
        raise ValueError(f'arch={arch!r} is a Jumbo: its only prefix tokens are num_class_tokens '
                         'class tokens, pooled after the final norm, and it has no rotary '
                         f'embedding; leave out {", ".join(k for k in changed if changed[k])}')


@MODELS.register_module()
class LocAtViT(TimmBackbone):
    """Vision transformer with LocAt: ViT, register ViT, RoPE-ViT or Jumbo (arXiv 2603.04892).

    Args:
        arch: 'tiny', 'small', 'base', 'compact' (arXiv 2605.16390), 'jumbo-tiny', 'jumbo-small',
            'jumbo-base' (arXiv 2502.15021), or a dict with embed_dims, num_layers, num_heads and
            perhaps mlp_ratio (default 4). With num_class_tokens it is a Jumbo, with perhaps
            jumbo_mlp_ratio (default 4).
        img_size: size of the **pre-training** images in pixels, also in a segmentation config: it
            sets the grid that GAug's parameters and the position embedding belong to. The input
            may have any size; the position embedding is resampled on the fly.
        patch_size: side of a patch in pixels.
        in_channels: of the images.
        num_registers: register tokens (arXiv 2309.16588); they share the position embedding.
        class_token: False only for average pooling.
        pos_embed: learned absolute position embedding.
        rope: mixed rotary embedding (arXiv 2403.13298) instead of the absolute one.
        final_norm: False leaves the tokens un-normed, for average pooling, whose neck owns the
            norm after the pooling.
        refine: of a Jumbo only: False leaves out the norm of its patch tokens, which only patch
            refinement reads. False in a plain twin, whose neck has refine=False, too.
        drop_path_rate: stochastic depth, growing linearly with depth.
        **kwargs: of `TimmBackbone`.

    Raises:
        ValueError: for an unknown architecture, or an argument that it does not have.
    """
    ARCHS = {
        'tiny': dict(embed_dims=192, num_layers=12, num_heads=3),
        'small': dict(embed_dims=384, num_layers=12, num_heads=6),
        'base': dict(embed_dims=768, num_layers=12, num_heads=12),
        'compact': dict(embed_dims=192, num_layers=8, num_heads=8, mlp_ratio=2),
        'jumbo-tiny': dict(embed_dims=192, num_layers=12, num_heads=3, num_class_tokens=6),
        'jumbo-small': dict(embed_dims=384, num_layers=12, num_heads=6, num_class_tokens=6),
        'jumbo-base': dict(embed_dims=768, num_layers=12, num_heads=12, num_class_tokens=6),
    }

    def __init__(self, arch: str | dict = 'tiny', img_size: int | Grid = 224,
                 patch_size: int = 16, in_channels: int = 3, num_registers: int = 0,
                 class_token: bool = True, pos_embed: bool = True, rope: bool = False,
                 final_norm: bool = True, refine: bool = True, drop_path_rate: float = 0.,
                 **kwargs) -> None:
        sizes = choose_arch(arch, self.ARCHS, ('embed_dims', 'num_layers', 'num_heads'),
                            optional=('mlp_ratio', 'num_class_tokens', 'jumbo_mlp_ratio'))
        check_heads([sizes['embed_dims']], [sizes['num_heads']])
        common = dict(
            img_size=img_size, patch_size=patch_size, in_chans=in_channels,
            embed_dim=sizes['embed_dims'], depth=sizes['num_layers'],
            num_heads=sizes['num_heads'], mlp_ratio=sizes.get('mlp_ratio', 4),
            drop_path_rate=drop_path_rate, dynamic_img_size=True)
        # timm puts the norm after the pooling with 'avg', before it without pooling.
        pooling = dict(class_token=class_token, global_pool='' if final_norm else 'avg')
        if 'num_class_tokens' in sizes:
            check_jumbo(arch, num_registers=num_registers > 0, class_token=not class_token,
                        rope=rope, final_norm=not final_norm)
            model = JumboViT(**common, num_class_tokens=sizes['num_class_tokens'],
                             jumbo_mlp_ratio=sizes.get('jumbo_mlp_ratio', 4), refine=refine,
                             pos_embed='learn' if pos_embed else 'none')
        elif not refine or 'jumbo_mlp_ratio' in sizes:
            raise ValueError(f'arch={arch!r} is no Jumbo, since it has no num_class_tokens: leave '
                             "out refine (PRR of other models is the neck's) and jumbo_mlp_ratio")
        elif rope:
            model = Eva(**common, **pooling, num_reg_tokens=num_registers, use_abs_pos_emb=False,
                        attn_type='rope', use_rot_pos_emb=True, rope_type='mixed',
                        rope_temperature=10., rope_grid_indexing='xy', init_values=1e-5)
        else:
            model = VisionTransformer(**common, **pooling, reg_tokens=num_registers,
                                      pos_embed='learn' if pos_embed else 'none')
        super().__init__(model, **kwargs)


@MODELS.register_module()
class LocAtSwin(TimmBackbone):
    """Swin transformer with LocAt: the window is the Gaussian's grid (arXiv 2603.04892).

    Args:
        arch: 'tiny', 'base', or a dict with embed_dims, depths and num_heads.
        img_size: size of the **pre-training** images in pixels: windows are no larger than its
            maps, and a stage whose map is one window does not shift it, for any input (mmseg's own
            Swin shifts there). The input may have any size.
        patch_size: side of a patch in pixels.
        window_size: side of a window in patches.
        in_channels: of the images.
        out_indices: stages whose maps are returned.
        out_norm: a LayerNorm after each map (mmseg's UPerNet recipe); False for a frozen probe.
            Without effect on tokens.
        drop_path_rate: stochastic depth, growing linearly with depth.
        **kwargs: of `TimmBackbone`.
    """
    ARCHS = {
        'tiny': dict(embed_dims=96, depths=(2, 2, 6, 2), num_heads=(3, 6, 12, 24)),
        'base': dict(embed_dims=128, depths=(2, 2, 18, 2), num_heads=(4, 8, 16, 32)),
    }

    def __init__(self, arch: str | dict = 'tiny', img_size: int | Grid = 224, patch_size: int = 4,
                 window_size: int = 7, in_channels: int = 3,
                 out_indices: int | Sequence[int] = (0, 1, 2, 3), out_type: str = 'featmap',
                 out_norm: bool = True, drop_path_rate: float = 0., **kwargs) -> None:
        sizes = choose_arch(arch, self.ARCHS, ('embed_dims', 'depths', 'num_heads'))
        check_heads([sizes['embed_dims'] * 2 ** i for i in range(len(sizes['depths']))],
                    sizes['num_heads'])
        model = SwinTransformer(
            img_size=img_size, patch_size=patch_size, window_size=window_size,
            in_chans=in_channels, embed_dim=sizes['embed_dims'], depths=sizes['depths'],
            num_heads=sizes['num_heads'], drop_path_rate=drop_path_rate, strict_img_size=False)
        super().__init__(model, out_indices=out_indices, out_type=out_type,
                         out_norm=out_norm and out_type == 'featmap', **kwargs)


@MODELS.register_module()
class LocAtTIMM(TimmBackbone):
    """Any timm ViT, DeiT, register ViT, DINOv2/v3, EVA, RoPE-ViT or Swin by name, with LocAt.

    Args:
        model_name: of `timm.create_model`, e.g. 'vit_small_patch14_dinov2'.
        timm_args: further arguments of `timm.create_model` (img_size, drop_path_rate ...).
        **kwargs: of `TimmBackbone`.

    Raises:
        ValueError: if timm has no such model, or it is of another family, or ``timm_args`` asks
            for pre-trained weights, which come through ``init_cfg``.
    """

    def __init__(self, model_name: str, timm_args: dict | None = None,
                 **kwargs) -> None:
        timm_args = dict(timm_args or {})
        if timm_args.get('pretrained'):
            raise ValueError('timm_args=dict(pretrained=True): weights come through init_cfg='
                             f"dict(type='Pretrained', checkpoint='timm:{model_name}'), where they "
                             'are checked')
        check_timm_name(model_name)
        try:
            model = timm.create_model(model_name, dynamic_img_size=True, **timm_args)
        except TypeError as error:
            raise ValueError(f'{model_name} cannot be a LocAtTIMM backbone: {error}. Expected a '
                             'ViT, EVA or Swin of timm, which take dynamic_img_size') from error
        if not isinstance(model, (VisionTransformer, Eva, SwinTransformer)):
            raise ValueError(f'{model_name} cannot be a LocAtTIMM backbone: it is a '
                             f'{type(model).__name__}, expected a ViT, EVA or Swin of timm')
        super().__init__(model, **kwargs)
