"""The attention plugins, built by name, against softmax(q k^T / sqrt(d) + S) v written densely."""
import math

import pytest
import torch
from mmengine.registry import MODELS
from tiny_timm import randomize
from torch import Tensor, nn
from torch.nn import functional as F

import locat_mmseg  # noqa: F401  registers the plugins

GRID = (3, 5)
PRETRAINED_GRID = (4, 4)
DIM, HEADS = 24, 3


def dense_gaussian(q: Tensor, gaug: nn.Module, grid: tuple[int, int], num_prefix_tokens: int,
                   pretrained: tuple[int, int]) -> Tensor:
    """S of arXiv 2603.04892, section 3, with explicit offsets; q is (B, H, N, d), eps is 0.1."""
    q = q[:, :, num_prefix_tokens:]
    largest = max(pretrained) ** 2
    variance = largest * torch.sigmoid(gaug.log_var(q) - math.log(largest - 1))
    if grid != pretrained:
        variance = variance * min(grid) / min(pretrained)
    alpha = F.softplus(gaug.log_alpha(q))
    place = torch.cartesian_prod(torch.arange(grid[0]), torch.arange(grid[1])).float()
    squares = (0.5 * (place[:, None] - place) ** 2).clamp(max=0.5 * (max(pretrained) - 1) ** 2)
    exponent = -(squares / (variance[:, :, :, None] + 0.1)).sum(dim=-1)
    pad = (num_prefix_tokens, 0, num_prefix_tokens, 0)
    return F.pad(alpha * exponent.exp(), pad)


def heads_of(x: Tensor) -> Tensor:
    return x.unflatten(-1, (HEADS, -1)).transpose(1, 2)


def attention_by_hand(layer: nn.Module, q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
    weights = (q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1]) + bias).softmax(dim=-1)
    return layer.proj((weights @ v).transpose(1, 2).flatten(2))


def rotate_pairs(x: Tensor, sin: Tensor, cos: Tensor) -> Tensor:
    """Rotate each pair of neighbouring channels by its angle."""
    even, odd = x[..., 0::2], x[..., 1::2]
    rotated = torch.stack([even * cos[..., 0::2] - odd * sin[..., 0::2],
                           odd * cos[..., 1::2] + even * sin[..., 1::2]], dim=-1)
    return rotated.flatten(-2)


@pytest.mark.parametrize('name, rope', [
    ('GAugAttention', False), ('GAugAttentionRope', False), ('GAugAttentionRope', True),
    ('GAugEvaAttention', False), ('GAugEvaAttention', True)])
def test_sequence_attention(name: str, rope: bool):
    layer = randomize(MODELS.build(dict(
        type=name, dim=DIM, num_heads=HEADS, gaug_grid=PRETRAINED_GRID, num_prefix_tokens=2,
        qkv_bias=True, scale_norm=False)))
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(2, 2 + 15, DIM, generator=generator)
    if name == 'GAugEvaAttention':
        bias = torch.cat([layer.q_bias, torch.zeros(DIM), layer.v_bias])
    else:
        bias = layer.qkv.bias
    q, k, v = map(heads_of, F.linear(x, layer.qkv.weight, bias).chunk(3, dim=-1))
    gaussian = dense_gaussian(q, layer.gaug, GRID, 2, PRETRAINED_GRID)
    kwargs = {}
    if rope:  # GAug reads the queries before the rotation, prefix tokens are not rotated
        angles = torch.randn(15, DIM // HEADS // 2, generator=generator).repeat_interleave(2, -1)
        kwargs['rope'] = torch.cat([angles.sin(), angles.cos()], dim=-1)
        q, k = (torch.cat([t[:, :, :2], rotate_pairs(t[:, :, 2:], angles.sin(), angles.cos())],
                          dim=2) for t in (q, k))
    torch.testing.assert_close(layer(x, grid=GRID, **kwargs),
                               attention_by_hand(layer, q, k, v, gaussian), rtol=1e-4, atol=1e-5)


def test_window_attention():
    layer = randomize(MODELS.build(dict(type='GAugWindowAttention', dim=DIM, num_heads=HEADS,
                                        window_size=GRID)))
    x = torch.randn(4, 15, DIM, generator=torch.Generator().manual_seed(1))
    mask = torch.zeros(2, 15, 15)
    mask[1, :6, 6:] = mask[1, 6:, :6] = -100.  # two windows, the second of two parts
    q, k, v = map(heads_of, layer.qkv(x).chunk(3, dim=-1))
    table = layer.relative_position_bias_table.view(5, 9, HEADS)
    place = torch.cartesian_prod(torch.arange(3), torch.arange(5))
    offset = place[:, None] - place + torch.tensor([2, 4])
    bias = table[offset[..., 0], offset[..., 1]].permute(2, 0, 1) + mask.repeat(2, 1, 1)[:, None]
    bias = bias + dense_gaussian(q, layer.gaug, GRID, 0, GRID)
    torch.testing.assert_close(layer(x, mask), attention_by_hand(layer, q, k, v, bias),
                               rtol=1e-4, atol=1e-5)


def test_gaussian_augment():
    layer = randomize(MODELS.build(dict(type='GaussianAugment', head_dim=8, grid=4)))
    q = torch.randn(2, HEADS, 15, 8, generator=torch.Generator().manual_seed(1))
    factors = layer(q, GRID).factors()
    product = (factors.rows[..., :, None] * factors.cols[..., None, :]).flatten(-2)
    torch.testing.assert_close(product, dense_gaussian(q, layer, GRID, 0, PRETRAINED_GRID))


def test_patch_refinement():
    x = torch.randn(2, DIM, 3, 5, generator=torch.Generator().manual_seed(1))
    layer = MODELS.build(dict(type='PatchRefinement', num_heads=HEADS))
    heads = heads_of(x.flatten(2).transpose(1, 2))
    weights = (heads @ heads.transpose(-2, -1) / math.sqrt(8)).softmax(dim=-1)
    expected = (weights @ heads).transpose(1, 2).flatten(2).transpose(1, 2).view_as(x)
    torch.testing.assert_close(layer(x), expected)


@pytest.mark.parametrize('norm_layer', ['layernorm', 'rmsnorm', 'LayerNorm2d'])
def test_norms_by_name(norm_layer: str):
    """A config has no classes, so the norm of queries and keys is named."""
    layer = MODELS.build(dict(type='GAugAttention', dim=DIM, num_heads=HEADS, gaug_grid=4,
                              qk_norm=True, norm_layer=norm_layer))
    assert norm_layer.lower() == type(layer.q_norm).__name__.lower()
