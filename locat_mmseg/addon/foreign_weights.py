"""Names of other projects' state dicts, translated into timm's.

Known are the ViT, DeiT and Swin of mmpretrain and mmseg, Swin as its authors publish it (arXiv
2103.14030) and DINOv2 (arXiv 2304.07193). DeiT, DINO and the LocAtViT reference have timm's names.
Only what has to be rearranged is touched; a name that no rule knows stays, and fails when loaded.
"""
import re

import torch
from torch import Tensor

StateDict = dict[str, Tensor]

OPENMMLAB_NAMES = [(re.compile(pattern), new) for pattern, new in (
    (r'^patch_embed\.projection\.', 'patch_embed.proj.'),
    (r'^(pre_norm|ln_pre)\.', 'norm_pre.'),
    (r'^ln1\.', 'norm.'),
    (r'^ln2\.', 'fc_norm.'),
    (r'^layers\.(\d+)\.', r'blocks.\1.'),
    (r'^stages\.(\d+)\.', r'layers.\1.'),
    (r'\.ln([12])\.', r'.norm\1.'),
    (r'\.attn\.attn\.in_proj_', '.attn.qkv.'),  # torch's MultiheadAttention: q, k, v rows as in qkv
    (r'\.attn\.attn\.out_proj\.', '.attn.proj.'),
    (r'\.attn\.w_msa\.', '.attn.'),
    (r'\.attn\.gamma1\.weight$', '.ls1.gamma'),
    (r'\.ffn\.gamma2\.weight$', '.ls2.gamma'),
    (r'\.ffn\.(layers\.0\.0|w12)\.', '.mlp.fc1.'),
    (r'\.ffn\.(layers\.1|w3)\.', '.mlp.fc2.'),
)]
# Weights over the channels of four merged pixels.
MERGED = re.compile(r'^stages\.\d+\.downsample\.(norm\.weight|norm\.bias|reduction\.weight)$')
DINOV2_NAMES = [(re.compile(pattern), new) for pattern, new in (
    (r'^blocks\.\d+\.(\d+)\.', r'blocks.\1.'),  # sharded training nests the blocks in chunks
    (r'\.mlp\.w12\.', '.mlp.fc1.'),
    (r'\.mlp\.w3\.', '.mlp.fc2.'),
)]


def to_timm(state_dict: StateDict) -> StateDict:
    """Translate the state dict of a backbone into timm's names and order of channels.

    Args:
        state_dict: a bare backbone's, in timm's names, in those of a registered backbone of this
            package (``model.`` before timm's), or in those of a project above; not modified.

    Returns:
        The same weights in timm's names. The norms after the stages of mmseg's Swin are called
        ``out_norms.I``, as in `LocAtSwin`.
    """
    weights = {name.removeprefix('model.'): weight for name, weight in state_dict.items()}
    if 'patch_embed.projection.weight' in weights:
        weights = from_openmmlab(weights)
    if 'layers.0.downsample.reduction.weight' in weights:
        weights = move_downsampling(weights)
    if {'register_tokens', 'cls_token', 'pos_embed'} <= weights.keys():
        weights = place_registers(weights)
    # Families without a class token may nest their own blocks.
    return renamed(weights, DINOV2_NAMES) if 'cls_token' in weights else weights


def from_openmmlab(weights: StateDict) -> StateDict:
    """ViT, DeiT or Swin of mmpretrain or mmseg; their Swin still downsamples at a stage's end."""
    is_swin = any(name.startswith('stages.') for name in weights)
    if is_swin:
        weights = {name: merge_order(weight) if MERGED.match(name) else weight
                   for name, weight in name_output_norms(weights).items()}
    weights = renamed(weights, OPENMMLAB_NAMES)
    if 'patch_embed.proj.bias' not in weights and 'norm_pre.weight' not in weights:
        # mmseg builds its patch embedding without a bias by default: the same as a bias of zero.
        kernel = weights['patch_embed.proj.weight']
        weights['patch_embed.proj.bias'] = torch.zeros_like(kernel[:, 0, 0, 0])
    return weights


def name_output_norms(weights: StateDict) -> StateDict:
    """mmseg's Swin norms several stages' outputs; a lone norm is a classifier's final one."""
    stages = sorted({int(name[4:].partition('.')[0]) for name in weights
                     if re.match(r'norm\d+\.', name)})
    new = {f'norm{stage}': f'out_norms.{i}' if len(stages) > 1 else 'norm'
           for i, stage in enumerate(stages)}
    return {re.sub(r'^norm\d+(?=\.)', lambda match: new[match[0]], name): weight
            for name, weight in weights.items()}


def merge_order(weight: Tensor) -> Tensor:
    """Channels of a merged 2 x 2 patch (..., 4C): mmpretrain and mmseg order them by channel, row,
    column, timm by column, row, channel."""
    if weight.shape[-1] % 4:
        raise ValueError('a patch of 2 x 2 pixels has a multiple of 4 channels, these weights have '
                         f'{weight.shape[-1]}: they are of no Swin that is known here')
    return weight.unflatten(-1, (-1, 2, 2)).transpose(-3, -1).flatten(-3)


def move_downsampling(weights: StateDict) -> StateDict:
    """From the end of a stage (Swin's authors, OpenMMLab) to the beginning of the next (timm)."""
    moved = {re.sub(r'^layers\.(\d+)\.downsample\.',
                    lambda match: f'layers.{int(match[1]) + 1}.downsample.', name): weight
             for name, weight in weights.items()}
    return {re.sub(r'^head\.(?=weight|bias)', 'head.fc.', name): weight
            for name, weight in moved.items()}


def place_registers(weights: StateDict) -> StateDict:
    """DINOv2's registers have no position; timm adds the class token's to the token itself."""
    weights = dict(weights)
    weights['reg_token'] = weights.pop('register_tokens')
    weights['cls_token'] = weights['cls_token'] + weights['pos_embed'][:, :1]
    weights['pos_embed'] = weights['pos_embed'][:, 1:]
    return weights


def renamed(weights: StateDict, rules: list[tuple[re.Pattern, str]]) -> StateDict:
    """Every rule applied to every name, in order."""
    def new(name: str) -> str:
        for pattern, replacement in rules:
            name = pattern.sub(replacement, name)
        return name
    return {new(name): weight for name, weight in weights.items()}
