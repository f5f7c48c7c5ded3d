"""What the registered backbones share: a timm model behind OpenMMLab's backbone interface.

Outputs, freezing, weights and layer depth; the mathematics is in `locat_mmseg.layers`, the
conversion in `locat_mmseg.addon`.

Shape legend: B batch, P prefix tokens, n = h*w patches, C channels.
"""
import logging
from collections.abc import Sequence
from functools import cached_property

from mmengine.logging import print_log
from mmengine.model import BaseModule, PretrainedInit, initialize
from mmengine.registry import MODELS
from timm.layers import LayerNorm2d
from timm.models import group_parameters
from timm.models.swin_transformer import SwinTransformer
from torch import Tensor, nn, no_grad

from ..addon import add_gaug
from ..addon.convert import attention_named
from ..layers import Grid
from .checkpoint import load_backbone

OUT_TYPES = ('featmap', 'tokens')
PRETRAINED_ARGUMENTS = {'checkpoint', 'prefix', 'map_location', 'strict', 'trust_checkpoint'}


class TimmBackbone(BaseModule):
    """What the registered backbones share: outputs, freezing, weights and layer depth.

    Args:
        model: a timm model whose input size is dynamic, classifier included: the keys that pruning
            drops are the only ones that a checkpoint may hold without use.
        gaug: whether to add GAug (arXiv 2603.04892, section 3).
        gaug_grid: (h, w) of pre-training; None takes the grid that the model was built for.
        attn: registered name of the attention twins' class, for experiments with a subclass; None
            takes the one that belongs to timm's class.
        out_indices: blocks (Swin: stages) whose outputs are returned, ascending; negative numbers
            count from the last.
        out_type: 'featmap' returns NCHW maps, block outputs before the final norm and without
            prefix tokens; 'tokens' returns the normed tokens (B, P + n, C) of the whole model.
        out_norm: a LayerNorm after each map.
        frozen_stages: -1 nothing; 0 stem, tokens and position embedding; k also the first k blocks
            (Swin: stages; Jumbo: and the MLP that they share with the rest); all of them: the whole
            timm model, which then runs without gradients.
        with_cp: gradient checkpointing of the blocks.
        fused_attn: True and False make attention one fused kernel or several operations; None
            leaves what timm chose (False in Swin), and to GAug the fastest (`layers.attend`). On a
            CPU in bfloat16 False is faster for short sequences.
        init_cfg: ``dict(type='Pretrained', checkpoint=..., prefix=...)`` loads weights strictly;
            see `load_backbone` for what else it takes.

    Raises:
        ValueError: for an argument out of range.
    """

    def __init__(self, model: nn.Module, gaug: bool = True, gaug_grid: int | Grid | None = None,
                 attn: str | None = None, out_indices: int | Sequence[int] = -1,
                 out_type: str = 'featmap', out_norm: bool = False, frozen_stages: int = -1,
                 with_cp: bool = False, fused_attn: bool | None = None,
                 init_cfg: dict | list | None = None) -> None:
        super().__init__(init_cfg)
        if out_type not in OUT_TYPES:
            raise ValueError(f'out_type={out_type!r}: expected one of {OUT_TYPES}')
        if out_norm and out_type == 'tokens':
            raise ValueError("out_norm=True norms maps; with out_type='tokens' the final norm of "
                             'the model is there already')
        model.patch_embed.dynamic_img_pad = True
        self.model = add_gaug(model, gaug_grid, find_attn(attn)) if gaug else model
        if fused_attn is not None:
            for layer in attention_named(model).values():
                layer.fused_attn = fused_attn
        depth = len(self.stages)
        self.out_type = out_type
        # Tokens are those of the whole model.
        self.out_indices = check_indices(out_indices, depth) if out_type == 'featmap' \
            else (depth - 1, )
        self.frozen_stages = check_frozen_stages(frozen_stages, depth)
        all_keys = set(model.state_dict())
        model.prune_intermediate_layers(list(self.out_indices),
                                        prune_norm=out_type == 'featmap')
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
        """Whether the whole timm model is frozen."""
        return self.frozen_stages >= len(self.stages)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """Compute features of images (B, 3, H, W) of any size; whole patches are padded with zeros.

        Returns:
            'featmap': one map (B, C, h, w) per out index. 'tokens': one tensor (B, P + n, C).

        Raises:
            ValueError: for images of another number of channels.
        """
        channels = self.model.patch_embed.proj.in_channels
        if x.shape[1] != channels:
            raise ValueError(f'the images have {x.shape[1]} channels, {type(self).__name__} takes '
                             f'{channels}: set in_channels of the backbone, or load other images')
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
        kept = {'blocks', 'layers', 'norm', 'norm_patches'}
        if self.frozen_stages == 0:
            kept.add('jumbo_mlp')  # shared by all blocks: frozen together with the first of them
        stem = [m for name, m in self.model.named_children() if name not in kept]
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
        if self.frozen_stages >= 0 and not self.init_cfg:
            print_log(f'frozen_stages={self.frozen_stages} without init_cfg: the frozen part stays '
                      'as drawn at random, unless load_from brings weights', 'current',
                      logging.WARNING)
        cfgs = self.init_cfg if isinstance(self.init_cfg, list) else [self.init_cfg or {}]
        # Loaded weights win over drawn ones, as in mmengine.
        for cfg in sorted(filter(None, cfgs), key=is_pretrained):
            if is_pretrained(cfg):
                load_backbone(self, **check_pretrained(cfg))
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
        num_layers = max(self._depths.values()) + 2
        inside = param_name.startswith(f'{prefix}model.')
        name = param_name.removeprefix(f'{prefix}model.')
        return (self._depths[name] if inside else num_layers - 1), num_layers

    @cached_property
    def _depths(self) -> dict[str, int]:
        groups = self.model.group_matcher()
        groups['stem'] += '|rope'  # in no group of timm's: it would come after the last block
        return group_parameters(self.model, groups, reverse=True)


def is_pretrained(cfg: dict) -> bool:
    """Whether an `init_cfg` loads a file; its type is a name, with or without a scope, or, in
    pure-Python configs, a class."""
    kind = cfg.get('type')
    return kind is PretrainedInit or str(kind).rpartition('.')[2] == 'Pretrained'


def check_pretrained(cfg: dict) -> dict:
    """The arguments of an `init_cfg` that loads a file."""
    arguments = {key: value for key, value in cfg.items() if key != 'type'}
    if 'checkpoint' not in arguments or arguments.keys() - PRETRAINED_ARGUMENTS:
        optional = ', '.join(sorted(PRETRAINED_ARGUMENTS - {'checkpoint'}))
        raise ValueError(f'init_cfg={dict(cfg)}: expected type and checkpoint, and perhaps '
                         f'{optional}')
    return arguments


def find_attn(name: str | None) -> type | None:
    """The attention class registered under ``name``."""
    if name is None:
        return None
    attn = MODELS.get(name)
    if attn is None:
        raise ValueError(f'attn={name!r} is in no registry: register the class in '
                         "mmengine's MODELS and name its module in custom_imports")
    return attn


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
    """A number of stages that a model of ``depth`` blocks or stages can freeze."""
    if not -1 <= frozen_stages <= depth:
        raise ValueError(f'frozen_stages={frozen_stages}: expected -1 (nothing), 0 (stem), or up '
                         f'to {depth} (the whole backbone)')
    return frozen_stages
