"""The attention layers of LocAt as plugins: a config of any OpenMMLab project can build them."""
from mmengine.registry import MODELS

from ..addon import GAugAttention, GAugAttentionRope, GAugEvaAttention, GAugWindowAttention
from ..layers import GaussianAugment, PatchRefinement

for plugin in (GaussianAugment, PatchRefinement, GAugAttention, GAugAttentionRope,
               GAugEvaAttention, GAugWindowAttention):
    MODELS.register_module(module=plugin)
