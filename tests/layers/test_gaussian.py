"""GAug's Gaussian against reference tensors, a dense formula, and matrices typed by hand."""
import math

import pytest
import torch
from golden import load_golden, relative_error
from torch import Tensor
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from locat_mmseg.layers import (Gaussian, GaussianAugment, attend, check_grid, gaussian_bias,
                                make_gaussian)

# Pre-training grid, grid of the input, prefix tokens, eps by hand.
DENSE_CASES = [
    ((4, 4), (4, 4), 0, 0.1),
    ((4, 4), (3, 5), 1, 0.1),
    ((5, 3), (3, 5), 5, 0.1),  # transposed: as many patches, another function
    ((14, 14), (20, 9), 1, 0.1),
    ((26, 26), (26, 2), 0, 0.1),
    ((28, 28), (28, 5), 1, 0.2),
    ((28, 3), (3, 28), 0, 0.2),
    ((51, 51), (51, 2), 1, 0.2),
    ((53, 53), (53, 4), 0, 0.4),
    ((53, 53), (3, 60), 0, 0.4),
    ((120, 2), (120, 2), 0, 0.8),  # squared offsets above 6550
    ((1, 1), (1, 1), 1, 0.1),
    ((1, 1), (2, 3), 0, 0.1),
    ((1, 6), (6, 1), 0, 0.1),
]


def make_module(head_dim: int, grid: tuple[int, int], dtype=torch.float64) -> GaussianAugment:
    """A module whose variances and strengths differ much between queries."""
    torch.manual_seed(0)
    module = GaussianAugment(head_dim, grid).to(dtype)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=1.5)
    return module


def dense_gaussian(module: GaussianAugment, q: Tensor, initial_grid: tuple[int, int],
                   grid: tuple[int, int], num_prefix_tokens: int, eps: float) -> Tensor:
    """The additive term by definition, from the offsets (n, n, 2) of all pairs of patches."""
    rows, cols = torch.meshgrid(torch.arange(grid[0]), torch.arange(grid[1]), indexing='ij')
    position = torch.stack([rows.flatten(), cols.flatten()], dim=-1)
    offset = (position[:, None] - position[None]).to(q.dtype)
    clip = min((max(initial_grid) - 1) ** 2 / 2, 6550)
    squared = torch.minimum(offset ** 2 / 2, torch.tensor(clip, dtype=q.dtype))
    largest = max(initial_grid) ** 2
    value = F.linear(q, module.log_var.weight, module.log_var.bias)
    if largest > 2:
        value = value - math.log(largest - 1)
    variance = largest / (1 + torch.exp(-value))
    if grid != initial_grid:
        variance = variance * min(grid) / min(initial_grid)
    alpha = torch.log1p(F.linear(q, module.log_alpha.weight, module.log_alpha.bias).exp())
    exponent = (squared / (variance[..., None, :] + eps)).sum(-1)
    size = q.shape[-2] + num_prefix_tokens
    full = q.new_zeros(*q.shape[:2], size, size)
    full[:, :, num_prefix_tokens:, num_prefix_tokens:] = alpha * torch.exp(-exponent)
    return full


@pytest.mark.parametrize('index', range(5))
def test_equals_the_reference(index):
    meta, state, inputs, outputs = load_golden(f'gaussian_{index}')
    module = GaussianAugment(meta['head_dim'], tuple(meta['initial_grid']))
    module.load_state_dict(state)
    num_prefix_tokens = meta['num_prefix_tokens']
    q = inputs['q'].requires_grad_(True)
    bias = gaussian_bias(module(q[:, :, num_prefix_tokens:], tuple(meta['grid'])),
                         num_prefix_tokens)
    if index == 1:  # the file keeps some rows only, and no gradients
        assert relative_error(bias[:, :, ::37], outputs['S_rows_step37']) < 1e-5
        return
    assert relative_error(bias, outputs['S']) < 1e-5
    (bias * inputs['w']).sum().backward()
    gradients = {'q': q.grad, **{name: p.grad for name, p in module.named_parameters()}}
    assert {f'grad_{name}' for name in gradients} == outputs.keys() - {'S'}
    for name, gradient in gradients.items():
        assert relative_error(gradient, outputs[f'grad_{name}']) < 1e-4, name


@pytest.mark.parametrize('initial_grid, grid, num_prefix_tokens, eps', DENSE_CASES)
def test_equals_the_dense_formula(initial_grid, grid, num_prefix_tokens, eps):
    module = make_module(6, initial_grid)
    num_patches = grid[0] * grid[1]
    q = torch.randn(2, 2, num_patches, 6, dtype=torch.float64, requires_grad=True)
    size = num_patches + num_prefix_tokens
    weight = torch.randn(2, 2, size, size, dtype=torch.float64)
    leaves = [q, *module.parameters()]

    bias = gaussian_bias(module(q, grid), num_prefix_tokens)
    gradients = torch.autograd.grad((bias * weight).sum(), leaves)
    expected = dense_gaussian(module, q, initial_grid, grid, num_prefix_tokens, eps)
    expected_gradients = torch.autograd.grad((expected * weight).sum(), leaves)

    torch.testing.assert_close(bias, expected, rtol=1e-10, atol=1e-12)
    assert (bias[:, :, :num_prefix_tokens] == 0).all()
    assert (bias[..., :num_prefix_tokens] == 0).all()
    for actual, wanted in zip(gradients, expected_gradients, strict=True):
        torch.testing.assert_close(actual, wanted, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize('rows, eps', [(28, 0.2), (53, 0.4)])
def test_large_grids_have_a_larger_eps(rows, eps):
    module = make_module(6, (rows, rows))
    q = torch.randn(1, 1, rows * 5, 6, dtype=torch.float64)
    bias = gaussian_bias(module(q, (rows, 5)))
    for factor in (0.5, 1, 2):
        dense = dense_gaussian(module, q, (rows, rows), (rows, 5), 0, eps * factor)
        assert (relative_error(bias, dense) < 1e-10) == (factor == 1)


def test_typed_matrix_of_one_row():
    module = GaussianAugment(2, (1, 3)).double()
    torch.nn.init.zeros_(module.log_var.weight)
    torch.nn.init.zeros_(module.log_alpha.weight)
    torch.nn.init.constant_(module.log_alpha.bias, math.log(math.e - 1))  # strength 1
    bias = gaussian_bias(module(torch.randn(1, 1, 3, 2).double(), (1, 3)), num_prefix_tokens=1)
    # exp(-0.5 / 1.1) = 0.634736, exp(-2 / 1.1) = 0.162321
    expected = torch.tensor([[0, 0, 0, 0],
                             [0, 1, 0.634736, 0.162321],
                             [0, 0.634736, 1, 0.634736],
                             [0, 0.162321, 0.634736, 1]]).double()
    torch.testing.assert_close(bias[0, 0], expected, rtol=0, atol=1e-6)


def test_typed_matrix_of_two_by_two():
    variance = torch.tensor([1., 4.]).expand(1, 1, 4, 2)  # along rows 1, along columns 4
    alpha = torch.tensor([1., 2., 3., 4.]).view(1, 1, 4, 1)
    bias = gaussian_bias(make_gaussian(variance, alpha, (2, 2), eps=0.))
    # beside: exp(-0.5 / 4) = 0.882497; below: exp(-0.5 / 1) = 0.606531; across: their product
    expected = torch.tensor([[1, 0.882497, 0.606531, 0.535261],
                             [0.882497, 1, 0.535261, 0.606531],
                             [0.606531, 0.535261, 1, 0.882497],
                             [0.535261, 0.606531, 0.882497, 1]]) * alpha[0, 0]
    torch.testing.assert_close(bias[0, 0], expected, rtol=0, atol=1e-5)


def test_factors_have_one_vector_per_axis():
    gaussian = make_module(6, (3, 5))(torch.randn(2, 4, 15, 6, dtype=torch.float64), (3, 5))
    factors = gaussian.factors()
    assert factors.rows.shape == (2, 4, 15, 3)
    assert factors.cols.shape == (2, 4, 15, 5)


@pytest.mark.parametrize('grid, variance', [((7, 7), 1.), ((1, 9), 1.), ((1, 1), 0.5)])
def test_zero_weights_give_unit_variance_and_strength_ln_2(grid, variance):
    module = GaussianAugment(4, grid)
    for linear in (module.log_var, module.log_alpha):
        torch.nn.init.zeros_(linear.weight)
    num_patches = grid[0] * grid[1]
    torch.testing.assert_close(module.variance(torch.zeros(num_patches, 2), grid),
                               torch.full((num_patches, 2), variance))
    gaussian = module(torch.randn(1, 1, num_patches, 4), grid)
    strength = gaussian_bias(gaussian).diagonal(dim1=-2, dim2=-1)
    torch.testing.assert_close(strength, torch.full_like(strength, math.log(2)))


def test_variance_follows_the_shorter_side():
    module = GaussianAugment(4, (4, 6))
    zero = torch.zeros(1, 2)
    assert module.variance(zero, (4, 6)).unique().item() == pytest.approx(1)
    assert module.variance(zero, (12, 8)).unique().item() == pytest.approx(2)
    assert module.variance(zero, (2, 50)).unique().item() == pytest.approx(0.5)
    assert module.variance(zero, (6, 4)).unique().item() == pytest.approx(1)


def test_initialisation():
    torch.manual_seed(0)
    module = GaussianAugment(4096, 14)
    assert sum(p.numel() for p in module.parameters()) == 3 * (4096 + 1)
    assert set(module.state_dict()) == {'log_var.weight', 'log_var.bias', 'log_alpha.weight',
                                        'log_alpha.bias'}
    assert module.grid == (14, 14) and 'grid=(14, 14)' in repr(module)
    for linear in (module.log_var, module.log_alpha):
        assert linear.weight.std().item() == pytest.approx(0.02, rel=0.05)
        assert linear.bias.eq(0).all()


def test_module_equals_function():
    module = make_module(6, (5, 4))
    q = torch.randn(1, 2, 20, 6, dtype=torch.float64)
    variance = module.variance(module.log_var(q), (5, 4))
    alpha = F.softplus(module.log_alpha(q))
    expected = make_gaussian(variance, alpha, (5, 4), eps=0.1, max_offset=8.)
    actual = module(q, (5, 4))
    assert actual.grid == expected.grid and actual.max_offset == expected.max_offset
    torch.testing.assert_close(actual.strength, expected.strength)
    torch.testing.assert_close(actual.precision, expected.precision)
    torch.testing.assert_close(actual.alpha, alpha)
    torch.testing.assert_close(actual.sigma, (variance + 0.1).sqrt())


def test_half_precision_computes_the_gaussian_in_float32():
    module = make_module(16, (14, 14), torch.float32)
    q = torch.randn(1, 3, 20 * 9, 16)
    expected = gaussian_bias(module(q, (20, 9)))
    with torch.autocast('cpu', torch.bfloat16):
        gaussian = module(q, (20, 9))
    assert gaussian.strength.dtype == gaussian.precision.dtype == torch.float32
    assert relative_error(gaussian_bias(gaussian), expected) < 2e-2
    for dtype, bound in ((torch.bfloat16, 2e-2), (torch.float16, 5e-3)):
        gaussian = module.to(dtype)(q.to(dtype), (20, 9))
        assert gaussian.strength.dtype == gaussian.precision.dtype == torch.float32
        assert relative_error(gaussian_bias(gaussian), expected) < bound


@pytest.mark.parametrize('dtype', [torch.float32, torch.bfloat16])
def test_extreme_predictions_stay_finite(dtype):
    module = GaussianAugment(2, (28, 28)).to(dtype)
    q = torch.tensor([[1e4, -1e4], [-1e4, 1e4]]).to(dtype).repeat(28 * 28 // 2, 1)[None, None]
    q.requires_grad_(True)
    with torch.no_grad():
        module.log_var.weight.copy_(torch.eye(2))
        module.log_alpha.weight.copy_(torch.tensor([[1., 0.]]))
    bias = gaussian_bias(module(q, (28, 28)))
    bias.sum().backward()
    assert bias.isfinite().all()
    assert q.grad.isfinite().all()
    assert all(p.grad.isfinite().all() for p in module.parameters())


class LargestTensor(TorchDispatchMode):
    """Notes the number of elements of the largest tensor that an operation returns."""

    numel = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(out):
            if isinstance(leaf, Tensor):
                self.numel = max(self.numel, leaf.numel())
        return out


def test_no_tensor_of_all_pairs_and_axes():
    module = GaussianAugment(8, (16, 16))
    q = torch.randn(1, 1, 256, 8, requires_grad=True)
    for backend in ('tiled', 'sdpa', 'explicit'):
        with LargestTensor() as largest:
            attend(q, q, q, module(q, (16, 16)), backend=backend).square().sum().backward()
        assert largest.numel <= 256 * 256
    with LargestTensor() as largest:
        dense_gaussian(module, q, (16, 16), (16, 16), 0, 0.1).sum().backward()
    assert largest.numel == 256 * 256 * 2
    with LargestTensor() as largest:  # the factors alone are far smaller still
        sum(factor.sum() for factor in module(q, (16, 16)).factors()).backward()
    assert largest.numel == 256 * 16


def check_compiled(backend: str) -> None:
    torch.compiler.reset()
    module = make_module(6, (14, 14), torch.float32)
    compiled = torch.compile(lambda q: gaussian_bias(module(q, (3, 5)), 1), backend=backend,
                             fullgraph=True)
    q = torch.randn(1, 2, 15, 6)
    eager_q, compiled_q = q.clone().requires_grad_(True), q.clone().requires_grad_(True)
    expected, actual = gaussian_bias(module(eager_q, (3, 5)), 1), compiled(compiled_q)
    torch.testing.assert_close(actual, expected)
    expected.square().sum().backward()
    actual.square().sum().backward()
    torch.testing.assert_close(compiled_q.grad, eager_q.grad)


def test_compiles_in_one_graph():
    check_compiled('eager')


@pytest.mark.slow
def test_compiles_with_inductor():
    check_compiled('inductor')


def test_parameters_survive_a_state_dict():
    module = make_module(6, (4, 4))
    other = GaussianAugment(6, (4, 4)).double()
    other.load_state_dict(module.state_dict())
    q = torch.randn(1, 1, 16, 6, dtype=torch.float64)
    assert torch.equal(gaussian_bias(other(q, (4, 4))), gaussian_bias(module(q, (4, 4))))


@pytest.mark.parametrize('grid', [0, -3, (0, 4), (4,), (2, 2, 2), (2.0, 3), 'ab', 3.5, None])
def test_refuses_what_is_no_grid(grid):
    with pytest.raises(ValueError, match=r'gaug_grid=.*expected a positive integer or a pair'):
        check_grid(grid, 'gaug_grid')


@pytest.mark.parametrize('grid, pair', [(7, (7, 7)), ((3, 5), (3, 5)), ([3, 5], (3, 5)),
                                        (torch.Size([3, 5]), (3, 5))])
def test_grid_forms(grid, pair):
    assert check_grid(grid) == pair


def test_error_messages():
    with pytest.raises(ValueError, match=r'head_dim=0: expected the width of an attention head'):
        GaussianAugment(0, 4)
    with pytest.raises(ValueError, match=r'grid=\(0, 3\): expected a positive integer or a pair'):
        GaussianAugment(8, (0, 3))
    with pytest.raises(ValueError, match=r'14 patch queries do not fill the grid \(3, 5\) of 15'):
        GaussianAugment(8, 4)(torch.randn(1, 1, 14, 8), (3, 5))
