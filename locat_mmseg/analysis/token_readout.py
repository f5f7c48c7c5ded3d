"""What a classifier makes of single tokens: its own head, read at other places than it was trained.

Shape legend: B batch, J class tokens, P class and register tokens, n patches, N = P + n tokens,
C channels, K classes.
"""
from collections.abc import Callable
from functools import partial

from torch import Tensor, nn

from ..layers import refine
from .class_token import count_class_tokens
from .picture_model import PictureModel

TokenFunction = Callable[[Tensor], Tensor]


class TokenReadout:
    """The last tokens of a classifier, and its head for them.

    Args:
        model: a timm classifier, or one of a backbone, a neck that pools, and a head.

    Attributes:
        num_class_tokens: J.
        num_prefix_tokens: P.
        refine: (B, N, C) to (B, N, C), where patch refinement (PRR) comes before the pooling, else
            None.
        reads_class_token: whether the head takes the class token, not a mean of patches.

    Raises:
        ValueError: if the model has no such tokens, or no classifier.
    """

    def __init__(self, model: PictureModel) -> None:
        self.model, core = model, model.core
        if not hasattr(core, 'num_prefix_tokens') or not hasattr(core, 'blocks'):
            raise ValueError(f'{type(core).__name__} has no sequence of tokens: take a ViT')
        self.is_timm = model.is_timm
        self.neck = None if self.is_timm else getattr(model.network, 'neck', None)
        if not self._has_classifier():
            raise ValueError('the model has no classifier: take a checkpoint or weights of a '
                             'classifier, or train a linear head and put it into the model')
        self.num_class_tokens = count_class_tokens(core)
        self.num_prefix_tokens = core.num_prefix_tokens
        pool = core if self.is_timm else self.neck
        self.refine = partial(refine, num_heads=pool.num_heads) \
            if getattr(pool, 'refine', None) is True else None
        self.reads_class_token = self.num_class_tokens > 0 and (
            core.global_pool == 'token' if self.is_timm else getattr(pool, 'pool', 'cls') == 'cls')

    def _has_classifier(self) -> bool:
        if self.is_timm:
            return self.model.core.num_classes > 0
        return getattr(self.model.network, 'head', None) is not None

    def __call__(self, pictures: Tensor) -> tuple[Tensor, Tensor]:
        """Logits (B, K) of pictures (B, 3, H, W) in [0, 1], and the normed tokens (B, N, C)."""
        found: list[Tensor] = []

        def keep(norm: nn.Module, args: tuple, output: Tensor) -> None:
            found[:] = [output]

        handle = self.model.core.norm.register_forward_hook(keep)
        try:
            logits = self.model(pictures)
        finally:
            handle.remove()
        return logits, found[0]

    def head(self, tokens: Tensor) -> Tensor:
        """Logits (B, K) of normed tokens (B, N, C), through refinement, pooling and classifier."""
        if self.is_timm:
            return self.model.core.forward_head(tokens)
        features = (tokens, )
        return self.model.network.head(features if self.neck is None else self.neck(features))

    def class_head(self, tokens: Tensor) -> Tensor:
        """Logits (B, K) of the class token of tokens (B, N, C), which reads nothing else."""
        return self.head(tokens[:, :self.num_class_tokens])

    def vector_head(self, vectors: Tensor) -> Tensor:
        """Logits (..., K) of single vectors (..., C), each in place of what is pooled.

        The head gets a sequence in which every token is this vector: whichever it pools, and
        however it refines, the vector is what it reads.
        """
        flat = vectors.reshape(-1, 1, vectors.shape[-1])
        logits = self.head(flat.expand(-1, self.num_prefix_tokens + 1, -1))
        return logits.view(*vectors.shape[:-1], -1)

    def refined(self, tokens: Tensor) -> Tensor:
        """Tokens (B, N, C) as they are before the pooling."""
        return tokens if self.refine is None else self.refine(tokens)

    @property
    def depth(self) -> int:
        """Layers in which tokens meet: the blocks, and the refinement."""
        return len(self.model.core.blocks) + (self.refine is not None)

    @property
    def reads_vectors(self) -> bool:
        """Whether the head takes a vector of one token's width; that of Jumbo takes J joined."""
        if not self.is_timm:
            return getattr(self.neck, 'num_class_tokens', 1) == 1
        return self.num_class_tokens < 2 or hasattr(self.model.core, 'head_dist')


def grid_of(model: PictureModel, pictures: Tensor) -> tuple[int, int]:
    """The grid (h, w) of patches of pictures."""
    height, width = model.core.patch_embed.dynamic_feat_size(tuple(pictures.shape[-2:]))
    return int(height), int(width)
