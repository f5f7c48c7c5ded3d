"""Attention with an additive Gaussian against its definition, and its gradients by differences."""
import math

import pytest
import torch
from golden import relative_error
from torch import Tensor
from torch.func import functional_call

from locat_mmseg.layers import (GaussianAugment, GaussianFactors, attend, attention_weights,
                                gaussian_bias)

PREFIX, GRID = 2, (2, 3)
SIZE = PREFIX + GRID[0] * GRID[1]
# Broadcastable to (B, H, N, N) in several ways; no row is masked whole.
MASKS = {
    'none': None,
    'bool (N, N)': torch.ones(SIZE, SIZE).tril().bool(),
    'bool (B, 1, 1, N)': (torch.arange(SIZE) != 4).view(1, 1, 1, SIZE).repeat(2, 1, 1, 1),
    'float (H, N, N)': torch.linspace(-3, 3, 3 * SIZE * SIZE).view(3, SIZE, SIZE).double(),
    'float (B, 1, N, N)': torch.linspace(2, -2, 2 * SIZE * SIZE).view(2, 1, SIZE, SIZE).double(),
}


def make_inputs(dtype=torch.float64, batch=2, heads=3,
                width=4) -> tuple[Tensor, Tensor, Tensor, GaussianAugment]:
    """q, k, v of (batch, heads, N, width) and a GAug module of which every parameter matters."""
    torch.manual_seed(0)
    module = GaussianAugment(width, (3, 4)).to(dtype)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter)
    q, k, v = (torch.randn(batch, heads, SIZE, width, dtype=dtype, requires_grad=True)
               for _ in range(3))
    return q, k, v, module


def defined_attention(q: Tensor, k: Tensor, v: Tensor, bias: Tensor, mask: Tensor | None) -> Tensor:
    """softmax(q k^T / sqrt(d) + S + mask) v, written out with exponentials and a quotient."""
    logits = torch.einsum('bhid,bhjd->bhij', q, k) / math.sqrt(q.shape[-1]) + bias
    if mask is None:
        weights = logits.exp()
    elif mask.dtype == torch.bool:
        weights = logits.exp() * mask
    else:
        weights = (logits + mask).exp()
    return torch.einsum('bhij,bhjd->bhid', weights, v) / weights.sum(-1, keepdim=True)


@pytest.mark.parametrize('fused', [True, False])
@pytest.mark.parametrize('mask', MASKS.values(), ids=MASKS)
def test_equals_the_definition(mask, fused):
    q, k, v, module = make_inputs()
    factors = module(q[:, :, PREFIX:], GRID)
    expected = defined_attention(q, k, v, gaussian_bias(factors, PREFIX), mask)
    torch.testing.assert_close(attend(q, k, v, factors, mask, fused=fused), expected)
    expected = defined_attention(q, k, v, torch.zeros(()), mask)
    torch.testing.assert_close(attend(q, k, v, None, mask, fused=fused), expected)


@pytest.mark.parametrize('fused', [True, False])
@pytest.mark.parametrize('num_prefix_tokens', [0, 1, 5])
def test_prefix_tokens_neither_give_nor_receive(num_prefix_tokens, fused):
    q, k, v, module = make_inputs()
    patches = SIZE - num_prefix_tokens
    factors = module(q[:, :, num_prefix_tokens:], (1, patches))
    bias = torch.zeros(2, 3, SIZE, SIZE, dtype=torch.float64)
    bias[:, :, num_prefix_tokens:, num_prefix_tokens:] = \
        (factors.rows[..., :, None] * factors.cols[..., None, :]).reshape(2, 3, patches, patches)
    actual = attend(q, k, v, factors, fused=fused)
    torch.testing.assert_close(actual, defined_attention(q, k, v, bias, None))
    plain = attend(q, k, v, fused=fused)
    torch.testing.assert_close(actual[:, :, :num_prefix_tokens], plain[:, :, :num_prefix_tokens])
    assert relative_error(actual[:, :, num_prefix_tokens:], plain[:, :, num_prefix_tokens:]) > 1e-2


@pytest.mark.parametrize('fused', [True, False])
@pytest.mark.parametrize('mask', MASKS.values(), ids=MASKS)
def test_gradients(mask, fused):
    q, k, v, module = make_inputs(batch=1, heads=2, width=2)
    if mask is not None and mask.ndim > 2:
        mask = mask[:2] if mask.ndim == 3 else mask[:1]
    names, parameters = zip(*module.named_parameters(), strict=True)

    def function(q: Tensor, k: Tensor, v: Tensor, *parameters: Tensor) -> Tensor:
        weights = dict(zip(names, parameters, strict=True))
        factors = functional_call(module, weights, (q[:, :, PREFIX:], GRID))
        return attend(q, k, v, factors, mask, fused=fused)

    assert torch.autograd.gradcheck(function, (q, k, v, *parameters))


@pytest.mark.parametrize('num_prefix_tokens, grid', [(0, (16, 17)), (1, (24, 26)), (5, (33, 19))])
def test_fused_equals_explicit_on_large_grids(num_prefix_tokens, grid):
    torch.manual_seed(0)
    size = num_prefix_tokens + grid[0] * grid[1]
    module = GaussianAugment(8, (14, 14))
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter)
    leaves = [*torch.randn(3, 2, 3, size, 8).requires_grad_(True).unbind(), *module.parameters()]
    weight = torch.randn(2, 3, size, 8)
    results = []
    for fused in (True, False):
        out = attend(*leaves[:3], module(leaves[0][:, :, num_prefix_tokens:], grid), fused=fused)
        results.append([out, *torch.autograd.grad((out * weight).sum(), leaves)])
    for actual, expected in zip(*results, strict=True):
        assert relative_error(actual, expected) < 1e-5


def test_gradient_of_a_float_mask():
    q, k, v, module = make_inputs(batch=1, heads=2, width=2)
    q, k, v = (t.detach() for t in (q, k, v))
    factors = GaussianFactors(*(t.detach() for t in module(q[:, :, PREFIX:], GRID)))
    mask = torch.randn(SIZE, SIZE, dtype=torch.float64, requires_grad=True)
    for fused in (True, False):
        assert torch.autograd.gradcheck(
            lambda mask, fused=fused: attend(q, k, v, factors, mask, fused=fused), (mask,))


@pytest.mark.parametrize('fused', [True, False])
def test_hand_typed_attention(fused):
    """Two patches, equal keys: the Gaussian alone decides, weights e^S / sum e^S."""
    factors = GaussianFactors(rows=torch.tensor([math.log(3), 0.]).view(1, 1, 2, 1),
                              cols=torch.tensor([[1., 0.], [0., 1.]]).view(1, 1, 2, 2))
    q, k = torch.randn(1, 1, 2, 5), torch.ones(1, 1, 2, 5)
    v = torch.tensor([[1., 0.], [0., 1.]]).view(1, 1, 2, 2)
    expected = torch.tensor([[0.75, 0.25], [0.5, 0.5]])
    torch.testing.assert_close(attend(q, k, v, factors, fused=fused)[0, 0], expected)


def test_attention_weights_are_a_distribution():
    q, k, v, module = make_inputs()
    bias = gaussian_bias(module(q[:, :, PREFIX:], GRID), PREFIX)
    weights = attention_weights(q, k, bias)
    torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))
    torch.testing.assert_close(weights @ v, attend(q, k, v, module(q[:, :, PREFIX:], GRID)))
    kept = MASKS['bool (N, N)']
    assert (attention_weights(q, k, kept)[..., ~kept] == 0).all()


@pytest.mark.parametrize('fused', [True, False])
def test_dropout(fused):
    torch.manual_seed(0)
    q, k = torch.zeros(1, 1, 64, 8), torch.zeros(1, 1, 64, 8)
    v = torch.ones(1, 1, 64, 8)
    dropped = attend(q, k, v, dropout_p=0.5, fused=fused)
    assert dropped.std() > 0.05  # rows that keep more or fewer keys
    assert dropped.mean().item() == pytest.approx(1, abs=0.1)  # the kept ones are scaled up
    torch.testing.assert_close(attend(q, k, v, fused=fused), v)


@pytest.mark.parametrize('fused', [True, False])
@pytest.mark.parametrize('mask', [MASKS['none'], MASKS['bool (N, N)'],
                                  MASKS['float (H, N, N)'].float()], ids=['none', 'bool', 'float'])
def test_bfloat16(mask, fused):
    q, k, v, module = make_inputs(torch.float32)
    expected = attend(q, k, v, module(q[:, :, PREFIX:], GRID), mask, fused=fused)
    with torch.autocast('cpu', torch.bfloat16):
        half = [t.bfloat16() for t in (q, k, v)]
        actual = attend(*half, module(half[0][:, :, PREFIX:], GRID), mask, fused=fused)
    assert actual.dtype == torch.bfloat16
    assert relative_error(actual.float(), expected) < 2e-2
    actual = attend(*half, module.bfloat16()(half[0][:, :, PREFIX:], GRID),
                    mask if mask is None or mask.dtype == torch.bool else mask.bfloat16(),
                    fused=fused)
    assert actual.dtype == torch.bfloat16
    assert relative_error(actual.float(), expected) < 2e-2


@pytest.mark.parametrize('fused', [True, False])
def test_compiles_in_one_graph(fused):
    torch.compiler.reset()
    q, k, v, module = make_inputs(torch.float32)

    def function(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return attend(q, k, v, module(q[:, :, PREFIX:], GRID), fused=fused)

    compiled = torch.compile(function, backend='eager', fullgraph=True)
    expected = function(q, k, v)
    actual = compiled(q, k, v)
    torch.testing.assert_close(actual, expected)
    wanted = torch.autograd.grad(expected.square().sum(), (q, k, v))
    for gradient, want in zip(torch.autograd.grad(actual.square().sum(), (q, k, v)), wanted,
                              strict=True):
        torch.testing.assert_close(gradient, want)


def test_more_gaussians_than_tokens():
    q, k, v, module = make_inputs()
    factors = module(q[:, :, PREFIX:], GRID)
    few = [t[:, :, :5] for t in (q, k, v)]
    with pytest.raises(ValueError, match='Gaussian factors of 6 patches for 5 tokens'):
        attend(*few, factors)
