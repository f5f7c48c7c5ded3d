"""PRR against reference tensors, timm's pooling layer and a loop over heads."""
import pytest
import torch
from attention_rows import AttentionRows
from golden import load_golden, relative_error
from timm.layers import AttentionPoolPrr
from torch import Tensor

from locat_mmseg.layers import PatchRefinement, refine


def refine_in_loops(x: Tensor, num_heads: int) -> Tensor:
    """softmax(x x^T / sqrt(d)) x, one image and one head at a time."""
    width = x.shape[-1] // num_heads
    images = []
    for tokens in x:
        heads = tokens.split(width, dim=-1)
        weights = [torch.exp(head @ head.T / width ** 0.5) for head in heads]
        images.append(torch.cat([weight @ head / weight.sum(-1, keepdim=True)
                                 for weight, head in zip(weights, heads, strict=True)], dim=-1))
    return torch.stack(images)


@pytest.mark.parametrize('index', range(2))
def test_equals_the_reference(index):
    meta, state, inputs, outputs = load_golden(f'prr_{index}')
    assert not state
    assert meta['nchw'] == (inputs['x'].ndim == 4)
    refined = PatchRefinement(meta['num_heads'])(inputs['x'])
    assert relative_error(refined, outputs['y']) < 1e-5


@pytest.mark.parametrize('num_heads', [1, 2, 6])
def test_equals_loops_with_gradients(num_heads):
    torch.manual_seed(0)
    x = torch.randn(2, 7, 12, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(2, 7, 12, dtype=torch.float64)
    actual, expected = refine(x, num_heads), refine_in_loops(x, num_heads)
    torch.testing.assert_close(actual, expected)
    gradient, = torch.autograd.grad((actual * weight).sum(), x)
    expected_gradient, = torch.autograd.grad((expected * weight).sum(), x)
    torch.testing.assert_close(gradient, expected_gradient)


def test_gradcheck():
    x = torch.randn(2, 5, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: refine(x, 2), (x,))
    assert torch.autograd.gradcheck(lambda x: refine(x, 2, num_queries=1), (x,))


@pytest.mark.parametrize('num_queries', [1, 3, 9])
def test_few_queries_equal_rows_of_all(num_queries):
    torch.manual_seed(0)
    x = torch.randn(2, 9, 12, dtype=torch.float64, requires_grad=True)
    actual, expected = refine(x, 3, num_queries), refine(x, 3)[:, :num_queries]
    assert actual.shape == (2, num_queries, 12)
    torch.testing.assert_close(actual, expected)
    weight = torch.randn_like(expected)
    gradient, = torch.autograd.grad((actual * weight).sum(), x)
    expected_gradient, = torch.autograd.grad((expected * weight).sum(), x)
    torch.testing.assert_close(gradient, expected_gradient)
    assert (gradient != 0).all()  # every token gets a gradient, also where one row is computed


@pytest.mark.parametrize('num_queries, rows', [(1, 1), (None, 40)])
def test_one_query_costs_one_row(num_queries, rows):
    """With class-token pooling the work is O(N), not O(N^2), in both directions."""
    x = torch.randn(1, 40, 8, requires_grad=True)
    with AttentionRows() as attention:
        refine(x, 2, num_queries).sum().backward()
    assert attention.rows == [rows, rows]


@pytest.mark.parametrize('pool', ['token', 'avg'])
def test_equals_timm(pool):
    torch.manual_seed(0)
    x = torch.randn(2, 10, 12, requires_grad=True)
    expected = AttentionPoolPrr(12, num_heads=3, pool_type=pool)(x)
    pooled = refine(x, 3, num_queries=1)[:, 0] if pool == 'token' else refine(x, 3).mean(1)
    torch.testing.assert_close(pooled, expected)
    weight = torch.randn_like(expected)
    gradient, = torch.autograd.grad((pooled * weight).sum(), x)
    expected_gradient, = torch.autograd.grad((expected * weight).sum(), x)
    torch.testing.assert_close(gradient, expected_gradient)


def test_maps_equal_tokens():
    x = torch.randn(2, 12, 3, 5)
    refined = PatchRefinement(4)(x)
    assert refined.shape == x.shape
    tokens = PatchRefinement(4)(x.flatten(2).transpose(1, 2))
    torch.testing.assert_close(refined.flatten(2).transpose(1, 2), tokens)
    torch.testing.assert_close(tokens, refine(x.flatten(2).transpose(1, 2), 4))


def test_has_no_parameters():
    layer = PatchRefinement(3)
    assert not list(layer.parameters()) and not layer.state_dict()
    assert 'num_heads=3' in repr(layer)


def test_bfloat16():
    x = torch.randn(2, 9, 12)
    expected = refine(x, 3)
    assert relative_error(refine(x.bfloat16(), 3).float(), expected) < 2e-2
    with torch.autocast('cpu', torch.bfloat16):
        assert relative_error(refine(x, 3).float(), expected) < 2e-2


def test_compiles_in_one_graph():
    torch.compiler.reset()
    x = torch.randn(2, 9, 12)
    compiled = torch.compile(PatchRefinement(3), backend='eager', fullgraph=True)
    torch.testing.assert_close(compiled(x), refine(x, 3))


@pytest.mark.parametrize('num_heads', [0, -1, 5, 13])
def test_heads_that_do_not_divide_the_channels(num_heads):
    with pytest.raises(ValueError, match=f'12 channels .* num_heads={num_heads} equal heads'):
        refine(torch.randn(1, 4, 12), num_heads)


@pytest.mark.parametrize('shape', [(4, 12), (1, 2, 3, 4, 12)])
def test_input_of_another_shape(shape):
    with pytest.raises(ValueError, match=r'of shape \(.*: expected tokens \(B, N, C\) or a map'):
        PatchRefinement(3)(torch.randn(shape))
