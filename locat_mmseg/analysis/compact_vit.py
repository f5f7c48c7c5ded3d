"""The compact ViT classifier of arXiv 2605.16390, plain or with parts of LocAt, on timm alone.

It is the model of ``configs/_base_/models/cls_protocol_vit-compact.py``: same weights, same logits.
"""
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from ..addon import add_gaug
from ..addon.convert import attention_named
from ..layers import refine

COMPACT = dict(img_size=32, patch_size=4, embed_dim=192, depth=8, num_heads=8, mlp_ratio=2)
ARCHITECTURES = {
    'vit': {},
    'locatvit': dict(gaug=True, prr=True),
    'vit-gaug': dict(gaug=True),
    'vit-prr': dict(prr=True),
    'regvit': dict(num_registers=4),
}


class RefinedViT(VisionTransformer):
    """A ViT that refines its tokens before it pools the class token (arXiv 2603.04892, section 3).

    The twin of the neck `PRRPool` with ``pool='cls'``.
    """

    def pool(self, x: Tensor, pool_type: str | None = None) -> Tensor:
        """The class token's row of the refinement of tokens (B, N, C), as (B, C)."""
        return super().pool(refine(x, self.blocks[-1].attn.num_heads, num_queries=1), pool_type)


def build_compact_vit(num_classes: int, gaug: bool = False, prr: bool = False,
                      num_registers: int = 0, fused_attn: bool | None = None, **changes: int
                      ) -> nn.Module:
    """Build the classifier, with timm's random weights.

    The plain weights depend on torch's seed and the number of registers, not on LocAt's parts.

    Args:
        num_classes: of the head.
        gaug: Gaussian-augmented attention.
        prr: patch representation refinement before the class token is taken.
        num_registers: register tokens (arXiv 2309.16588).
        fused_attn: whether attention is one fused kernel; None leaves it to timm. On a CPU False
            trains faster.
        **changes: to the sizes in `COMPACT`.
    """
    model = (RefinedViT if prr else VisionTransformer)(
        **{**COMPACT, **changes}, num_classes=num_classes, reg_tokens=num_registers)
    if gaug:
        add_gaug(model)
    if fused_attn is not None:
        for layer in attention_named(model).values():
            layer.fused_attn = fused_attn
    return model
