"""The neck of a LocAt classifier: patch representation refinement, then pooling."""
from mmengine.model import BaseModule
from mmengine.registry import MODELS
from timm.layers import LayerNorm
from torch import Tensor, nn

from ..layers import refine

POOLS = ('cls', 'avg')


@MODELS.register_module()
class PRRPool(BaseModule):
    """PRR (arXiv 2603.04892, section 3) and pooling, between a backbone and a classifier's head.

    Args:
        embed_dims: channels C of the tokens.
        num_heads: heads of the refinement, as many as the backbone's last attention layer has.
        pool: 'cls' takes the class token (only its row of the refinement is computed), 'avg' the
            mean of the patch tokens.
        num_prefix_tokens: P, class and register tokens; 0 for Swin.
        refine: False is the plain twin, pooling alone.
        norm: a LayerNorm after the pooling (timm's ``fc_norm``), for 'avg' on un-normed tokens.
        num_class_tokens: J, how many tokens 'cls' takes and joins to one vector; 6 for Jumbo.

    Raises:
        ValueError: for arguments that do not fit each other.
    """

    def __init__(self, embed_dims: int, num_heads: int, pool: str = 'cls',
                 num_prefix_tokens: int = 1, refine: bool = True, norm: bool = False,
                 num_class_tokens: int = 1, init_cfg: dict | list | None = None) -> None:
        super().__init__(init_cfg)
        if pool not in POOLS:
            raise ValueError(f'pool={pool!r}: expected one of {POOLS}')
        if pool == 'cls' and num_prefix_tokens < 1:
            raise ValueError("pool='cls' takes the class token, but num_prefix_tokens=0 says there "
                             "is none; use pool='avg'")
        if pool == 'cls' and not 1 <= num_class_tokens <= num_prefix_tokens:
            raise ValueError(f'num_class_tokens={num_class_tokens}: expected 1 to '
                             f'num_prefix_tokens={num_prefix_tokens}, which counts them, too')
        if embed_dims % num_heads:
            raise ValueError(f'embed_dims={embed_dims} cannot be split into num_heads={num_heads} '
                             'equal heads; take the num_heads of the backbone')
        self.embed_dims = embed_dims
        self.num_heads = num_heads
        self.pool = pool
        self.num_prefix_tokens = num_prefix_tokens
        self.num_class_tokens = num_class_tokens
        self.refine = refine
        self.fc_norm = LayerNorm(embed_dims) if norm else nn.Identity()

    def forward(self, features: tuple[Tensor, ...]) -> tuple[Tensor]:
        """Pool the last of the backbone's outputs.

        Args:
            features: of which the last is tokens (B, P + n, C) or a map (B, C, h, w).

        Returns:
            One tensor (B, C), of J class tokens (B, J * C), in a tuple as mmpretrain's heads
            expect it.
        """
        tokens = features[-1]
        if tokens.ndim == 4:
            if self.num_prefix_tokens:
                raise ValueError(f'a map of shape {tuple(tokens.shape)} has no prefix tokens, but '
                                 f'num_prefix_tokens={self.num_prefix_tokens}; set it to 0 with '
                                 "pool='avg', or the backbone's out_type to 'tokens'")
            tokens = tokens.flatten(2).transpose(1, 2)
        if tokens.shape[-1] != self.embed_dims:
            raise ValueError(f'tokens of {tokens.shape[-1]} channels, but embed_dims='
                             f'{self.embed_dims}; set it to the width of the backbone')
        if self.refine:
            queries = self.num_class_tokens if self.pool == 'cls' else None
            tokens = refine(tokens, self.num_heads, queries)
        if self.pool == 'cls':
            pooled = tokens[:, :self.num_class_tokens].flatten(1)
        else:
            pooled = tokens[:, self.num_prefix_tokens:].mean(dim=1)
        return (self.fc_norm(pooled), )
