"""Registered backbones: a timm model, with or without GAug, behind OpenMMLab's backbone interface.

They translate arguments and names; the mathematics is in `locat_mmseg.layers`, the conversion in
`locat_mmseg.addon`. With ``gaug=False`` a backbone computes what plain timm computes, to the bit:
that is the baseline.

Shape legend: B batch, P prefix tokens, n = h*w patches, C channels.
"""
from collections.abc import Sequence
from difflib import get_close_matches

import timm
from mmengine.model import BaseModule, PretrainedInit, initialize
from mmengine.registry import MODELS
from timm.layers import LayerNorm2d
from timm.models import group_parameters
from timm.models.eva import Eva
from timm.models.swin_transformer import SwinTransformer
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn, no_grad

from ..addon import add_gaug
from ..layers import Grid
from .checkpoint import load_backbone

OUT_TYPES = ('featmap', 'tokens')
PRETRAINED = ('Pretrained', PretrainedInit)  # name or, in pure-Python configs, class


class TimmBackbone(BaseModule):
    """What the registered backbones share: outputs, freezing, weights and layer depth.

    Args:
        model: a timm model whose input size is dynamic, classifier included: the keys that pruning
            drops are the only ones that a checkpoint may hold without use.
        gaug: whether to add GAug (arXiv 2603.04892, section 3).
        gaug_grid: (h, w) of pre-training; None takes the grid that the model was built for.
        attn: class of the attention twins; None takes the one that belongs to timm's class.
        out_indices: blocks (Swin: stages) whose outputs are returned, ascending; negative numbers
            count from the last.
        out_type: 'featmap' returns NCHW maps, block outputs before the final norm and without
            prefix tokens; 'tokens' returns the normed tokens (B, P + n, C) of the whole model.
        out_norm: a LayerNorm after each map.
        frozen_stages: -1 nothing; 0 stem, tokens and position embedding; k also the first k blocks
            (Swin: stages); all of them: the whole timm model, which then runs without gradients.
        with_cp: gradient checkpointing of the blocks.
        init_cfg: ``dict(type='Pretrained', checkpoint=..., prefix=...)`` loads weights strictly.

    Raises:
        ValueError: for an argument out of range.
    """

    def __init__(self, model: nn.Module, gaug: bool = True, gaug_grid: int | Grid | None = None,
                 attn: type | None = None, out_indices: int | Sequence[int] = -1,
                 out_type: str = 'featmap', out_norm: bool = False, frozen_stages: int = -1,
                 with_cp: bool = False, init_cfg: dict | list | None = None) -> None:
        super().__init__(init_cfg)
        if out_type not in OUT_TYPES:
            raise ValueError(f'out_type={out_type!r}: expected one of {OUT_TYPES}')
        model.patch_embed.dynamic_img_pad = True
        self.model = add_gaug(model, gaug_grid, attn) if gaug else model
        depth = len(self.stages)
        self.out_type = out_type
        self.out_indices = check_indices(out_indices, depth)
        self.frozen_stages = check_frozen_stages(frozen_stages, depth)
        all_keys = set(model.state_dict())
        last = self.out_indices if out_type == 'featmap' else (depth - 1, )
        model.prune_intermediate_layers(list(last), prune_norm=out_type == 'featmap')
        self.pruned_keys = all_keys - set(model.state_dict())
        channels = [model.feature_info[i]['num_chs'] for i in self.out_indices]
        self.out_norms = nn.ModuleList(map(LayerNorm2d, channels)) if out_norm else None
        model.set_grad_checkpointing(with_cp)
        self._register_load_state_dict_pre_hook(self._map_names)
        self._freeze()

    @property
    def stages(self) -> nn.Module:
        """The blocks of a ViT, the stages of a Swin."""
        return self.model.layers if isinstance(self.model, SwinTransformer) else self.model.blocks

    @property
    def all_frozen(self) -> bool:
        return self.frozen_stages >= len(self.stages)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """Compute features of images (B, 3, H, W) of any size; whole patches are padded with zeros.

        Returns:
            'featmap': one map (B, C, h, w) per out index. 'tokens': one tensor (B, P + n, C).
        """
        if self.all_frozen:
            with no_grad():
                features = self._features(x)
        else:
            features = self._features(x)
        if self.out_norms is not None:
            features = [norm(feature) for norm, feature in zip(self.out_norms, features)]
        return tuple(features)

    def _features(self, x: Tensor) -> list[Tensor]:
        if self.out_type == 'featmap':
            return self.model.forward_intermediates(x, indices=list(self.out_indices),
                                                    intermediates_only=True)
        tokens = self.model.forward_features(x)
        return [tokens.flatten(1, 2) if tokens.ndim == 4 else tokens]  # Swin: (B, h, w, C)

    def _frozen_modules(self) -> list[nn.Module]:
        if self.all_frozen:
            return [self.model]
        if self.frozen_stages < 0:
            return []
        blocks = {id(m) for m in self.stages.modules()} | {id(self.model.norm)}
        stem = [m for m in self.model.children() if id(m) not in blocks]
        return stem + list(self.stages[:self.frozen_stages])

    def _freeze(self) -> None:
        frozen = [p for module in self._frozen_modules() for p in module.parameters()]
        if self.frozen_stages >= 0:  # class and register tokens, position embedding
            frozen += self.model.parameters(recurse=False)
        for parameter in frozen:
            parameter.requires_grad_(False)

    def train(self, mode: bool = True) -> 'TimmBackbone':
        """Switch to training mode; frozen parts stay in evaluation mode."""
        super().train(mode)
        for module in self._frozen_modules():
            module.eval()
        return self

    def init_weights(self) -> None:
        """Load or draw weights as `init_cfg` says. timm's own initialisation was at construction;
        it is not repeated here, where it would overwrite what was loaded."""
        cfgs = self.init_cfg if isinstance(self.init_cfg, list) else [self.init_cfg or {}]
        # Loaded weights win over drawn ones, as in mmengine.
        for cfg in sorted(filter(None, cfgs), key=lambda cfg: cfg['type'] in PRETRAINED):
            if cfg['type'] in PRETRAINED:
                load_backbone(self, **{k: v for k, v in cfg.items() if k != 'type'})
            else:
                initialize(self, cfg)
        self._is_init = True

    def _map_names(self, state_dict: dict[str, Tensor], prefix: str, *args) -> None:
        """Accept the names of timm and of the LocAtViT reference, which lack the child's name."""
        for name in [name for name in state_dict if name.startswith(prefix)]:
            if not name.startswith((f'{prefix}model.', f'{prefix}out_norms.')):
                state_dict[f'{prefix}model.{name[len(prefix):]}'] = state_dict.pop(name)

    def get_layer_depth(self, param_name: str, prefix: str = '') -> tuple[int, int]:
        """Depth of a parameter for layer-wise learning-rate decay, after timm's layer groups.

        Args:
            param_name: full name of the parameter.
            prefix: of this backbone's parameters in the whole model, e.g. 'backbone.'.

        Returns:
            The depth (0 for the stem) and the number of depths; what comes after the backbone has
            the largest depth.
        """
        groups = self.model.group_matcher()
        groups['stem'] += '|rope'  # in no group of timm's: it would come after the last block
        depths = group_parameters(self.model, groups, reverse=True)
        num_layers = max(depths.values()) + 2
        name = param_name.removeprefix(f'{prefix}model.')
        inside = param_name.startswith(f'{prefix}model.')
        return (depths[name] if inside else num_layers - 1), num_layers


def check_indices(out_indices: int | Sequence[int], depth: int) -> tuple[int, ...]:
    """Non-negative ascending indices of blocks or stages."""
    indices = [out_indices] if isinstance(out_indices, int) else list(out_indices)
    positive = [i + depth if i < 0 else i for i in indices]
    if not positive or not all(0 <= i < depth for i in positive) \
            or positive != sorted(set(positive)):
        raise ValueError(f'out_indices={out_indices}: expected ascending indices from 0 to '
                         f'{depth - 1} (or negative, from the last), for {depth} blocks or stages')
    return tuple(positive)


def check_frozen_stages(frozen_stages: int, depth: int) -> int:
    if not -1 <= frozen_stages <= depth:
        raise ValueError(f'frozen_stages={frozen_stages}: expected -1 (nothing), 0 (stem), or up '
                         f'to {depth} (the whole backbone)')
    return frozen_stages


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


@MODELS.register_module()
class LocAtViT(TimmBackbone):
    """Vision transformer with LocAt: ViT, register ViT or RoPE-ViT (arXiv 2603.04892).

    Args:
        arch: 'tiny', 'small', 'base', 'compact' (arXiv 2605.16390), or a dict with embed_dims,
            num_layers, num_heads and perhaps mlp_ratio (default 4).
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
        drop_path_rate: stochastic depth, growing linearly with depth.
        **kwargs: of `TimmBackbone`.
    """
    ARCHS = {
        'tiny': dict(embed_dims=192, num_layers=12, num_heads=3),
        'small': dict(embed_dims=384, num_layers=12, num_heads=6),
        'base': dict(embed_dims=768, num_layers=12, num_heads=12),
        'compact': dict(embed_dims=192, num_layers=8, num_heads=8, mlp_ratio=2),
    }

    def __init__(self, arch: str | dict = 'tiny', img_size: int | Grid = 224,
                 patch_size: int = 16, in_channels: int = 3, num_registers: int = 0,
                 class_token: bool = True, pos_embed: bool = True, rope: bool = False,
                 final_norm: bool = True, drop_path_rate: float = 0., **kwargs) -> None:
        sizes = choose_arch(arch, self.ARCHS, ('embed_dims', 'num_layers', 'num_heads'),
                            optional=('mlp_ratio', ))
        common = dict(
            img_size=img_size, patch_size=patch_size, in_chans=in_channels,
            embed_dim=sizes['embed_dims'], depth=sizes['num_layers'],
            num_heads=sizes['num_heads'], mlp_ratio=sizes.get('mlp_ratio', 4),
            class_token=class_token, drop_path_rate=drop_path_rate, dynamic_img_size=True,
            # timm puts the norm after the pooling with 'avg', before it without pooling.
            global_pool='' if final_norm else 'avg')
        if rope:
            model = Eva(**common, num_reg_tokens=num_registers, use_abs_pos_emb=False,
                        attn_type='rope', use_rot_pos_emb=True, rope_type='mixed',
                        rope_temperature=10., rope_grid_indexing='xy', init_values=1e-5)
        else:
            model = VisionTransformer(**common, reg_tokens=num_registers,
                                      pos_embed='learn' if pos_embed else 'none')
        super().__init__(model, **kwargs)


@MODELS.register_module()
class LocAtSwin(TimmBackbone):
    """Swin transformer with LocAt: the window is the Gaussian's grid (arXiv 2603.04892).

    Args:
        arch: 'tiny', 'base', or a dict with embed_dims, depths and num_heads.
        img_size: size of the **pre-training** images in pixels: windows are no larger than its
            maps. The input may have any size.
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
        attn: registered name of the attention twins' class; by default the one that belongs to
            timm's class.
        **kwargs: of `TimmBackbone`.

    Raises:
        ValueError: if timm has no such model, or it is of another family, or ``timm_args`` asks
            for pre-trained weights, which come through ``init_cfg``.
    """

    def __init__(self, model_name: str, timm_args: dict | None = None, attn: str | None = None,
                 **kwargs) -> None:
        timm_args = dict(timm_args or {})
        if timm_args.get('pretrained'):
            raise ValueError("timm_args=dict(pretrained=True): weights come through init_cfg="
                             "dict(type='Pretrained', checkpoint=FILE), where they are checked")
        if not timm.is_model(model_name):
            similar = get_close_matches(model_name, timm.list_models(), n=5, cutoff=0.3)
            raise ValueError(f'model_name={model_name!r} is no model of timm {timm.__version__}; '
                             f'similar names: {", ".join(similar)}')
        try:
            model = timm.create_model(model_name, dynamic_img_size=True, **timm_args)
        except TypeError as error:
            raise ValueError(f'{model_name} cannot be a LocAtTIMM backbone: {error}. Expected a '
                             'ViT, EVA or Swin of timm, which take dynamic_img_size') from error
        if not isinstance(model, (VisionTransformer, Eva, SwinTransformer)):
            raise ValueError(f'{model_name} cannot be a LocAtTIMM backbone: it is a '
                             f'{type(model).__name__}, expected a ViT, EVA or Swin of timm')
        attn_class = MODELS.get(attn) if attn else None
        if attn and attn_class is None:
            raise ValueError(f'attn={attn!r} is in no registry: register the class in '
                             "mmengine's MODELS and name its module in custom_imports")
        super().__init__(model, attn=attn_class, **kwargs)
