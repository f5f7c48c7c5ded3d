"""Jumbo: a ViT with several class tokens that share one wide MLP (arXiv 2502.15021).

Made of timm's parts; `add_gaug` and patch refinement make it the Jumbo of LocAtViT
(arXiv 2603.04892). Parameter names are those of its reference.

Shape legend: B batch, J class tokens, n = h*w patches, N = J + n tokens, C channels.
"""
import math
import re
from functools import partial

import torch
from timm.layers import DropPath, LayerNorm, LayerScale, Mlp
from timm.models.vision_transformer import Block, VisionTransformer
from torch import Tensor, nn

from ..layers import Grid, refine

WIDE_EPS = 1e-5  # of the norms that a plain ViT lacks; timm's own have 1e-6


class JumboBlock(Block):
    """timm's block, whose MLP serves the patches; the class tokens go through the wide MLP.

    Args:
        dim: channels C.
        num_heads: of the attention.
        num_class_tokens: J, first in the sequence.
        jumbo_mlp: from J * C to J * C channels, the same module for all blocks.
        init_values: of the layer scales.
        drop_path: stochastic depth of the three branches.
        **kwargs: of timm's Block.
    """

    def __init__(self, dim: int, num_heads: int, num_class_tokens: int, jumbo_mlp: nn.Module,
                 init_values: float, drop_path: float = 0., **kwargs) -> None:
        super().__init__(dim, num_heads, init_values=init_values, drop_path=drop_path, **kwargs)
        self.num_class_tokens = num_class_tokens
        self.norm3 = LayerNorm(num_class_tokens * dim, eps=WIDE_EPS)
        self.ls3 = LayerScale(num_class_tokens * dim, init_values)
        self.drop_path3 = DropPath(drop_path) if drop_path > 0. else nn.Identity()
        # The model owns it. Registered here too, its parameters would have a name in every block.
        object.__setattr__(self, 'jumbo_mlp', jumbo_mlp)

    def forward(self, x: Tensor, attn_mask: Tensor | None = None,
                is_causal: bool = False) -> Tensor:
        """Tokens (B, J + n, C) to tokens of the same shape; masks as in timm's Block."""
        attended = self.attn(self.norm1(x), attn_mask=attn_mask, is_causal=is_causal)
        x = x + self.drop_path1(self.ls1(attended))
        class_tokens, patches = x.tensor_split([self.num_class_tokens], dim=1)
        patches = patches + self.drop_path2(self.ls2(self.mlp(self.norm2(patches))))
        if self.norm3 is not None:
            wide = class_tokens.flatten(1)
            wide = wide + self.drop_path3(self.ls3(self.jumbo_mlp(self.norm3(wide))))
            class_tokens = wide.view_as(class_tokens)
        return torch.cat([class_tokens, patches], dim=1)

    def prune_wide_branch(self) -> None:
        """Leave the class tokens as attention made them, where only the patches are read."""
        self.norm3 = self.ls3 = None


class JumboNorm(LayerNorm):
    """Final norm: the class tokens as one vector of J * C channels, patches by their own norm.

    Args:
        dim: channels C.
        num_class_tokens: J.
        norm_patches: of the patches; the model owns it.
    """

    def __init__(self, dim: int, num_class_tokens: int, norm_patches: nn.Module) -> None:
        super().__init__(num_class_tokens * dim, eps=WIDE_EPS)
        self.num_class_tokens = num_class_tokens
        object.__setattr__(self, 'norm_patches', norm_patches)

    def forward(self, x: Tensor) -> Tensor:
        """Tokens (B, J + n, C) to tokens of the same shape."""
        class_tokens, patches = x.tensor_split([self.num_class_tokens], dim=1)
        wide = super().forward(class_tokens.flatten(1)).view_as(class_tokens)
        return torch.cat([wide, self.norm_patches(patches)], dim=1)


class JumboViT(VisionTransformer):
    """Jumbo (arXiv 2502.15021), with the patch refinement of LocAtViT; `add_gaug` adds the rest.

    Args:
        img_size: of the (pre-)training images in pixels.
        patch_size: side of a patch in pixels.
        in_chans: channels of the images.
        num_classes: 0 for no classifier, which starts from weight 0 and bias -ln(num_classes).
        embed_dim: channels C.
        depth: number of blocks.
        num_heads: of attention and refinement.
        mlp_ratio: hidden width of the patches' MLPs over C.
        num_class_tokens: J. They have no position embedding, and pool as one vector (B, J * C).
        jumbo_mlp_ratio: hidden width of the class tokens' MLP over J * C.
        refine: patch refinement before the pooling, with a norm of the patches, which it reads;
            False is plain Jumbo.
        init_values: of the layer scales.
        pos_embed: 'learn' or 'none'.
        drop_path_rate: stochastic depth, growing linearly with depth.
        dynamic_img_size: take images of any size.

    Raises:
        ValueError: if there is no class token.
    """

    def __init__(self, img_size: int | Grid = 224, patch_size: int = 16, in_chans: int = 3,
                 num_classes: int = 1000, embed_dim: int = 768, depth: int = 12,
                 num_heads: int = 12, mlp_ratio: float = 4., num_class_tokens: int = 6,
                 jumbo_mlp_ratio: float = 4., refine: bool = True, init_values: float = 1e-4,
                 pos_embed: str = 'learn', drop_path_rate: float = 0.,
                 dynamic_img_size: bool = False) -> None:
        if num_class_tokens < 1:
            raise ValueError(f'num_class_tokens={num_class_tokens}: expected at least one, which '
                             'Jumbo pools')
        width = num_class_tokens * embed_dim
        jumbo_mlp = Mlp(width, int(width * jumbo_mlp_ratio))
        super().__init__(
            img_size=img_size, patch_size=patch_size, in_chans=in_chans, num_classes=0,
            embed_dim=embed_dim, depth=depth, num_heads=num_heads, mlp_ratio=mlp_ratio,
            init_values=init_values, pos_embed=pos_embed, no_embed_class=True,
            drop_path_rate=drop_path_rate, dynamic_img_size=dynamic_img_size, weight_init='skip',
            block_fn=partial(JumboBlock, num_class_tokens=num_class_tokens, jumbo_mlp=jumbo_mlp))
        self.num_heads = num_heads
        self.refine = refine
        self.num_prefix_tokens = num_class_tokens
        self.num_features = self.head_hidden_size = width
        self.cls_token = nn.Parameter(torch.empty(1, num_class_tokens, embed_dim))
        self.jumbo_mlp = jumbo_mlp
        self.norm_patches = LayerNorm(embed_dim, eps=WIDE_EPS) if refine else nn.Identity()
        self.norm = JumboNorm(embed_dim, num_class_tokens, self.norm_patches)
        self.weight_init_mode = ''
        self.reset_classifier(num_classes)
        self.init_weights(needs_reset=False)
        self.register_load_state_dict_pre_hook(merge_on_load)

    def init_weights(self, mode: str = '', needs_reset: bool = True) -> None:
        """timm's initialisation, then the classifier's: weight 0, bias -ln(num_classes)."""
        super().init_weights(mode, needs_reset)
        self._init_head()

    def _init_head(self) -> None:
        if self.num_classes:
            nn.init.zeros_(self.head.weight)
            nn.init.constant_(self.head.bias, -math.log(self.num_classes))

    def reset_classifier(self, num_classes: int, global_pool: str | None = None) -> None:
        """A new classifier on the J class tokens; 0 classes for none.

        Raises:
            ValueError: for another pooling than that of the class tokens.
        """
        if global_pool not in (None, '', 'token'):
            raise ValueError(f'global_pool={global_pool!r}: Jumbo pools its class tokens; leave '
                             "it None, '' or 'token'")
        self.num_classes = num_classes
        self.head = nn.Identity()
        if num_classes:
            self.head = nn.Linear(self.head_hidden_size, num_classes,
                                  device=self.cls_token.device, dtype=self.cls_token.dtype)
            self._init_head()

    def pool(self, x: Tensor, pool_type: str | None = None) -> Tensor:
        """Refine the class tokens if this model does, and join them: (B, N, C) to (B, J * C)."""
        if self.refine:
            return refine(x, self.num_heads, num_queries=self.num_prefix_tokens).flatten(1)
        return x[:, :self.num_prefix_tokens].flatten(1)

    def prune_intermediate_layers(self, indices: int | list[int] = 1, prune_norm: bool = False,
                                  prune_head: bool = True) -> list[int]:
        """As in timm; without the norm, only patches are read: what serves the class tokens of the
        last block goes, too."""
        taken = super().prune_intermediate_layers(indices, prune_norm, prune_head)
        if prune_norm:
            self.norm_patches = nn.Identity()
            self.blocks[-1].prune_wide_branch()
            if len(self.blocks) == 1:
                self.jumbo_mlp = nn.Identity()
        return taken

    def group_matcher(self, coarse: bool = False) -> dict[str, str | list]:
        """timm's layer groups; the wide MLP, which all blocks share, is with the last of them."""
        groups = super().group_matcher(coarse)
        groups['blocks'].append((r'^jumbo_mlp', (99999, )))  # timm's mark, as for the final norm
        return groups


def merge_wide_mlp(state_dict: dict[str, Tensor], prefix: str = '') -> dict[str, Tensor]:
    """The wide MLP under one name: the reference's files repeat it in every block.

    Args:
        state_dict: of any model; not modified. Those without a wide MLP come back equal.
        prefix: of the model's names.

    Returns:
        A copy with ``jumbo_mlp.*`` in place of all ``blocks.I.jumbo_mlp.*``.

    Raises:
        ValueError: if the copies differ, naming the first that does.
    """
    merged = dict(state_dict)
    for name in state_dict:
        copy = re.fullmatch(re.escape(prefix) + r'blocks\.\d+\.(jumbo_mlp\..+)', name)
        if copy is None:
            continue
        weight = merged.pop(name)
        shared = merged.setdefault(prefix + copy[1], weight)
        if shared.shape != weight.shape or not torch.equal(shared, weight):
            raise ValueError(f'{name} differs from {prefix}{copy[1]}: all blocks of a Jumbo share '
                             'one wide MLP, so the file is damaged or of another model')
    return merged


def merge_on_load(model: JumboViT, state_dict: dict[str, Tensor], prefix: str, *args) -> None:
    """Hook of `load_state_dict`: accept the reference's names."""
    merged = merge_wide_mlp(state_dict, prefix)
    for name in state_dict.keys() - merged.keys():
        del state_dict[name]
    state_dict.update(merged)
