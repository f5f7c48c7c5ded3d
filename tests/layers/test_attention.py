"""Attention with an additive Gaussian against its definition, and its gradients by differences."""
import math

import pytest
import torch
from golden import relative_error
from torch import Tensor
from torch.func import functional_call

from locat_mmseg.layers import (BACKENDS, Gaussian, GaussianAugment, attend, attention_backend,
                                attention_weights, choose_backend, gaussian_bias)
from locat_mmseg.layers import attention as attention_module
from locat_mmseg.layers import flex_attention as flex_module

# Those that have gradients on a CPU, and those that work without a Gaussian.
ON_CPU, PLAIN = ('tiled', 'sdpa', 'explicit'), ('sdpa', 'explicit')
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


def random_gaussian(heads: int, grid: tuple[int, int], dtype=torch.float32) -> Gaussian:
    """Of one image, without gradients."""
    patches = grid[0] * grid[1]
    return Gaussian(torch.rand(1, heads, patches, 1, dtype=dtype),
                    torch.rand(1, heads, patches, 2, dtype=dtype), grid)


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


@pytest.mark.parametrize('backend', ON_CPU)
@pytest.mark.parametrize('mask', MASKS.values(), ids=MASKS)
def test_equals_the_definition(mask, backend):
    q, k, v, module = make_inputs()
    gaussian = module(q[:, :, PREFIX:], GRID)
    expected = defined_attention(q, k, v, gaussian_bias(gaussian, PREFIX), mask)
    torch.testing.assert_close(attend(q, k, v, gaussian, mask, backend=backend), expected)


@pytest.mark.parametrize('backend', PLAIN)
@pytest.mark.parametrize('mask', MASKS.values(), ids=MASKS)
def test_equals_the_definition_without_gaussian(mask, backend):
    q, k, v, _ = make_inputs()
    expected = defined_attention(q, k, v, torch.zeros(()), mask)
    torch.testing.assert_close(attend(q, k, v, None, mask, backend=backend), expected)


@pytest.mark.parametrize('backend', ON_CPU)
@pytest.mark.parametrize('num_prefix_tokens', [0, 1, 5])
def test_prefix_tokens_neither_give_nor_receive(num_prefix_tokens, backend):
    q, k, v, module = make_inputs()
    patches = SIZE - num_prefix_tokens
    gaussian = module(q[:, :, num_prefix_tokens:], (1, patches))
    factors = gaussian.factors()
    bias = torch.zeros(2, 3, SIZE, SIZE, dtype=torch.float64)
    bias[:, :, num_prefix_tokens:, num_prefix_tokens:] = \
        (factors.rows[..., :, None] * factors.cols[..., None, :]).reshape(2, 3, patches, patches)
    actual = attend(q, k, v, gaussian, backend=backend)
    torch.testing.assert_close(actual, defined_attention(q, k, v, bias, None))
    plain = attend(q, k, v)
    torch.testing.assert_close(actual[:, :, :num_prefix_tokens], plain[:, :, :num_prefix_tokens])
    assert relative_error(actual[:, :, num_prefix_tokens:], plain[:, :, num_prefix_tokens:]) > 1e-2


@pytest.mark.parametrize('backend', ON_CPU)
@pytest.mark.parametrize('mask', MASKS.values(), ids=MASKS)
def test_gradients(mask, backend):
    q, k, v, module = make_inputs(batch=1, heads=2, width=2)
    if mask is not None and mask.ndim > 2:
        mask = mask[:2] if mask.ndim == 3 else mask[:1]
    names, parameters = zip(*module.named_parameters(), strict=True)

    def function(q: Tensor, k: Tensor, v: Tensor, *parameters: Tensor) -> Tensor:
        weights = dict(zip(names, parameters, strict=True))
        gaussian = functional_call(module, weights, (q[:, :, PREFIX:], GRID))
        return attend(q, k, v, gaussian, mask, backend=backend)

    assert torch.autograd.gradcheck(function, (q, k, v, *parameters))


@pytest.mark.parametrize('num_prefix_tokens, grid', [(0, (16, 17)), (1, (24, 26)), (5, (33, 19))])
def test_back_ends_are_equal_on_large_grids(num_prefix_tokens, grid):
    torch.manual_seed(0)
    size = num_prefix_tokens + grid[0] * grid[1]
    module = GaussianAugment(8, (14, 14))
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter)
    leaves = [*torch.randn(3, 2, 3, size, 8).requires_grad_(True).unbind(), *module.parameters()]
    weight = torch.randn(2, 3, size, 8)
    results = []
    for backend in ON_CPU:
        out = attend(*leaves[:3], module(leaves[0][:, :, num_prefix_tokens:], grid),
                     backend=backend)
        results.append([out, *torch.autograd.grad((out * weight).sum(), leaves)])
    for *others, expected in zip(*results, strict=True):
        for actual in others:
            assert relative_error(actual, expected) < 1e-5


def test_gradient_of_a_float_mask():
    q, k, v, module = make_inputs(batch=1, heads=2, width=2)
    q, k, v = (t.detach() for t in (q, k, v))
    with torch.no_grad():
        gaussian = module(q[:, :, PREFIX:], GRID)
    mask = torch.randn(SIZE, SIZE, dtype=torch.float64, requires_grad=True)
    for backend in PLAIN:
        assert torch.autograd.gradcheck(
            lambda mask, backend=backend: attend(q, k, v, gaussian, mask, backend=backend), (mask,))


@pytest.mark.parametrize('backend', ON_CPU)
def test_hand_typed_attention(backend):
    """Two patches, equal keys: the Gaussian alone decides, weights e^S / sum e^S."""
    # ln 3 on a patch itself and as good as nothing beside it; none at all on the second patch
    gaussian = Gaussian(torch.tensor([math.log2(math.log(3)), -99.]).view(1, 1, 2, 1),
                        torch.full((1, 1, 2, 2), 99.), (1, 2))
    q, k = torch.randn(1, 1, 2, 5), torch.ones(1, 1, 2, 5)
    v = torch.tensor([[1., 0.], [0., 1.]]).view(1, 1, 2, 2)
    expected = torch.tensor([[0.75, 0.25], [0.5, 0.5]])
    torch.testing.assert_close(attend(q, k, v, gaussian, backend=backend)[0, 0], expected)


def test_attention_weights_are_a_distribution():
    q, k, v, module = make_inputs()
    weights = attention_weights(q, k, module(q[:, :, PREFIX:], GRID))
    torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))
    torch.testing.assert_close(weights @ v, attend(q, k, v, module(q[:, :, PREFIX:], GRID)))
    kept = MASKS['bool (N, N)']
    assert (attention_weights(q, k, mask=kept)[..., ~kept] == 0).all()


@pytest.mark.parametrize('backend', PLAIN)
def test_dropout(backend):
    torch.manual_seed(0)
    q, k = torch.zeros(1, 1, 64, 8), torch.zeros(1, 1, 64, 8)
    v = torch.ones(1, 1, 64, 8)
    dropped = attend(q, k, v, dropout_p=0.5, backend=backend)
    assert dropped.std() > 0.05  # rows that keep more or fewer keys
    assert dropped.mean().item() == pytest.approx(1, abs=0.1)  # the kept ones are scaled up
    torch.testing.assert_close(attend(q, k, v, backend=backend), v)


@pytest.mark.parametrize('backend', ON_CPU)
@pytest.mark.parametrize('mask', [MASKS['none'], MASKS['bool (N, N)'],
                                  MASKS['float (H, N, N)'].float()], ids=['none', 'bool', 'float'])
def test_bfloat16(mask, backend):
    q, k, v, module = make_inputs(torch.float32)
    expected = attend(q, k, v, module(q[:, :, PREFIX:], GRID), mask, backend=backend)
    with torch.autocast('cpu', torch.bfloat16):
        half = [t.bfloat16() for t in (q, k, v)]
        actual = attend(*half, module(half[0][:, :, PREFIX:], GRID), mask, backend=backend)
    assert actual.dtype == torch.bfloat16
    assert relative_error(actual.float(), expected) < 2e-2
    actual = attend(*half, module.bfloat16()(half[0][:, :, PREFIX:], GRID),
                    mask if mask is None or mask.dtype == torch.bool else mask.bfloat16(),
                    backend=backend)
    assert actual.dtype == torch.bfloat16
    assert relative_error(actual.float(), expected) < 2e-2


@pytest.mark.parametrize('backend', ON_CPU)
def test_compiles_in_one_graph(backend):
    torch.compiler.reset()
    q, k, v, module = make_inputs(torch.float32)

    def function(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return attend(q, k, v, module(q[:, :, PREFIX:], GRID), backend=backend)

    compiled = torch.compile(function, backend='eager', fullgraph=True)
    expected = function(q, k, v)
    actual = compiled(q, k, v)
    torch.testing.assert_close(actual, expected)
    wanted = torch.autograd.grad(expected.square().sum(), (q, k, v))
    for gradient, want in zip(torch.autograd.grad(actual.square().sum(), (q, k, v)), wanted,
                              strict=True):
        torch.testing.assert_close(gradient, want)


@pytest.mark.parametrize('backend', ON_CPU)
def test_query_that_sees_no_key(backend):
    """It gets 0, as from torch's own attention, and spoils no gradient."""
    q, k, v, module = make_inputs()
    mask = torch.ones(SIZE, SIZE, dtype=torch.bool)
    mask[4] = False
    out = attend(q, k, v, module(q[:, :, PREFIX:], GRID), mask, backend=backend)
    assert (out[:, :, 4] == 0).all() and (out[:, :, 3] != 0).all()
    gradients = torch.autograd.grad(out.square().sum(), (q, k, v))
    assert all(gradient.isfinite().all() for gradient in gradients)
    assert (gradients[0][:, :, 4] == 0).all()


@pytest.mark.parametrize('backend', ON_CPU)
def test_lowest_finite_mask(backend):
    """Models mask with the lowest finite number, too: a row of it is even, not 0 / 0."""
    q, k, v, module = make_inputs(torch.float32)
    mask = torch.zeros(SIZE, SIZE)
    mask[4] = torch.finfo(torch.float32).min
    out = attend(q, k, v, module(q[:, :, PREFIX:], GRID), mask, backend=backend)
    torch.testing.assert_close(out[:, :, 4], v.mean(dim=2))
    weight = torch.linspace(-1, 1, out.numel()).view_as(out)
    expected = attend(q, k, v, module(q[:, :, PREFIX:], GRID), mask, backend='explicit')
    for actual, want in zip(torch.autograd.grad((out * weight).sum(), (q, k, v)),
                            torch.autograd.grad((expected * weight).sum(), (q, k, v)),
                            strict=True):
        torch.testing.assert_close(actual, want)


def test_forward_derivative():
    """The automatic choice has one; a back end without it says so instead of giving 0."""
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 1, 2, 150, 4, dtype=torch.float64).unbind()
    gaussian = random_gaussian(2, (15, 10), torch.float64)

    def derivative(backend: str | None) -> Tensor:
        return torch.func.jvp(lambda q: attend(q, k, v, gaussian, backend=backend), (q, ),
                              (torch.ones_like(q), ))[1]

    step = 1e-6
    expected = (attend(q + step, k, v, gaussian) - attend(q - step, k, v, gaussian)) / (2 * step)
    torch.testing.assert_close(derivative(None), expected, rtol=1e-5, atol=1e-8)
    with pytest.raises(ValueError, match='no forward-mode derivative'):
        derivative('tiled')


@pytest.mark.parametrize('shapes, message', [
    (((2, 3, 9, 4), (2, 1, 9, 4), (2, 1, 9, 4)), 'must be the same; expand what is shared'),
    (((2, 3, 9, 4), (2, 3, 9, 4), (1, 3, 9, 4)), r'\(1, 3, 9, 4\): batch, heads and tokens'),
], ids=str)
def test_shapes_that_do_not_fit(shapes, message):
    with pytest.raises(ValueError, match=message):
        attend(*(torch.zeros(shape) for shape in shapes))


@pytest.mark.parametrize('strength, precision, grid', [
    ((2, 3, 6, 1), (2, 3, 6, 2), (2, 2)), ((2, 3, 6, 1), (2, 3, 5, 2), (2, 3)),
    ((2, 3, 6, 1), (2, 3, 6, 1), (2, 3)), ((1, 3, 6, 1), (1, 3, 6, 2), (2, 3)),
    ((2, 3, 6, 2), (2, 3, 6, 2), (2, 3))], ids=str)
def test_gaussian_that_does_not_fit(strength, precision, grid):
    q = torch.zeros(2, 3, 9, 4)
    with pytest.raises(ValueError, match=r'expected \(B, H, h\*w, 1\) and \(B, H, h\*w, 2\)'):
        attend(q, q, q, Gaussian(torch.zeros(strength), torch.zeros(precision), grid))


def test_more_gaussians_than_tokens():
    q, k, v, module = make_inputs()
    gaussian = module(q[:, :, PREFIX:], GRID)
    few = [t[:, :, :5] for t in (q, k, v)]
    with pytest.raises(ValueError, match='Gaussian of 6 patches for 5 tokens'):
        attend(*few, gaussian)


def test_context_manager_forces_a_back_end(monkeypatch):
    called = []
    monkeypatch.setattr(attention_module, 'tiled_attention',
                        lambda *args: called.append('tiled') or args[0])
    monkeypatch.setattr(attention_module, 'attention_weights',
                        lambda *args: called.append('explicit') or attention_weights(*args))
    q, k, v, module = make_inputs()
    gaussian = module(q[:, :, PREFIX:], GRID)
    with attention_backend('explicit'):
        attend(q, k, v, gaussian)
        with attention_backend('tiled'):
            attend(q, k, v, gaussian)
            attend(q, k, v, gaussian, backend='explicit')  # the argument comes first
        with pytest.raises(RuntimeError, match='inside'), attention_backend('tiled'):
            raise RuntimeError('inside')
        attend(q, k, v, gaussian)
    assert called == ['explicit', 'tiled', 'explicit', 'explicit']
    attend(q, k, v, gaussian, backend='sdpa')
    assert len(called) == 4


@pytest.mark.parametrize('tokens, training, options, expected', [
    (197, True, {}, 'tiled'), (197, False, {}, 'tiled'), (1025, True, {}, 'tiled'),
    (49, True, {}, 'explicit'), (144, True, {}, 'explicit'), (49, False, {}, 'sdpa'),
    (197, True, {'dropout_p': 0.1}, 'sdpa'), (197, False, {'mask': torch.zeros(1)}, 'tiled'),
    (197, True, {'mask': torch.zeros(1, requires_grad=True)}, 'sdpa'),
    (49, True, {'dropout_p': 0.1}, 'explicit'),
], ids=str)
def test_choice_on_a_cpu(tokens, training, options, expected):
    q = torch.empty(1, 1, tokens, 8)
    gaussian = random_gaussian(1, (1, tokens - 1))
    with torch.set_grad_enabled(training):
        assert choose_backend(q, gaussian, **options) == expected
        assert choose_backend(q) == 'sdpa'


def test_choice_on_other_devices():
    """The decision looks at shapes, types and the device only: a meta tensor stands for a GPU."""
    q = torch.empty(1, 1, 197, 64, device='meta')
    gaussian = Gaussian(q[..., :1], q[..., :2], (1, 197))
    assert choose_backend(q, gaussian) == 'sdpa'  # neither CUDA nor CPU


def test_exported_models_hold_no_own_operator():
    q, k, v = torch.randn(3, 1, 2, 200, 8).unbind()
    gaussian = random_gaussian(2, (10, 20))

    class Model(torch.nn.Module):
        def forward(self, q, k, v):
            return attend(q, k, v, gaussian)

    expected = attend(q, k, v, gaussian)
    traced = torch.jit.trace(Model(), (q, k, v))
    exported = torch.export.export(Model(), (q, k, v))
    for graph, model in ((traced.graph, traced), (exported.graph, exported.module())):
        assert 'tiled_attention' not in str(graph)
        torch.testing.assert_close(model(q, k, v), expected)


@pytest.mark.parametrize('mask', MASKS.values(), ids=MASKS)
def test_flex_without_gradients(mask):
    """On a CPU flex_attention only runs forward."""
    q, k, v, module = make_inputs(torch.float32, width=16)
    q, k, v = (t.detach() for t in (q, k, v))
    mask = mask.float() if mask is not None and mask.is_floating_point() else mask
    with torch.no_grad():
        gaussian = module(q[:, :, PREFIX:], GRID)
        expected = defined_attention(q, k, v, gaussian_bias(gaussian, PREFIX), mask)
        torch.testing.assert_close(attend(q, k, v, gaussian, mask, backend='flex'), expected)


@pytest.mark.parametrize('mask', MASKS.values(), ids=MASKS)
def test_gradients_of_the_function_that_flex_compiles(mask):
    """Its score_mod, applied to all logits at once, is the whole of the Gaussian's gradient."""
    q, k, v, module = make_inputs(batch=2)
    rows, cols = (t.detach().requires_grad_() for t in module(q[:, :, PREFIX:], GRID).factors())
    logits = (q @ k.transpose(-1, -2) / 2).detach().requires_grad_()  # sqrt(4) = 2
    index = torch.meshgrid(*(torch.arange(s) for s in logits.shape), indexing='ij')
    full = None if mask is None else mask.expand(logits.shape)

    def with_gaussian(logits: Tensor, rows: Tensor, cols: Tensor) -> Tensor:
        score_mod = flex_module.gaussian_score_mod(rows, cols, PREFIX, full)
        return score_mod(logits, *index).softmax(-1) @ v.detach()

    bias = (rows[..., :, None] * cols[..., None, :]).flatten(-2)
    bias = torch.nn.functional.pad(bias, (PREFIX, 0, PREFIX, 0))
    expected = defined_attention(q, k, v, bias, mask)
    torch.testing.assert_close(with_gaussian(logits, rows, cols), expected)
    gradient = torch.randn_like(expected)
    wanted = torch.autograd.grad(expected, (rows, cols), gradient)
    for actual, want in zip(torch.autograd.grad(with_gaussian(logits, rows, cols), (rows, cols),
                                                gradient), wanted, strict=True):
        torch.testing.assert_close(actual, want)


@pytest.mark.parametrize('backend, options, message', [
    ('quick', {}, r"attention back end 'quick': expected one of \('flex', 'tiled'"),
    ('tiled', {'dropout_p': 0.1}, "'tiled' cannot serve this input: .*no dropout; take 'sdpa'"),
    ('tiled', {'mask': torch.zeros(SIZE, SIZE, requires_grad=True)}, 'gives a mask no gradient'),
    ('tiled', {'gaussian': None}, 'there is no Gaussian'),
    ('flex', {'gaussian': None}, 'there is no Gaussian'),
    ('flex', {}, 'flex_attention has no float64'),
    ('flex', {'dtype': torch.float32}, 'heads of 4 channels'),
    ('flex', {'dtype': torch.float32, 'width': 16}, 'no gradients on the CPU'),
], ids=str)
def test_back_ends_that_cannot_serve(backend, options, message):
    made = {key: options[key] for key in ('dtype', 'width') if key in options}
    q, k, v, module = make_inputs(**made)
    arguments = {'gaussian': module(q[:, :, PREFIX:], GRID),
                 **{key: value for key, value in options.items() if key not in made}}
    with pytest.raises(ValueError, match=message):
        attend(q, k, v, backend=backend, **arguments)
    with pytest.raises(ValueError, match=message), attention_backend(backend):
        attend(q, k, v, **arguments)


@pytest.mark.parametrize('width, options, message', [
    (16, {}, None), (8, {}, 'heads of 8 channels are narrower than 16'),
    (16, {'dropout_p': 0.1}, 'no dropout'),
    (16, {'mask': torch.zeros(1, requires_grad=True)}, 'asks for a gradient'),
], ids=str)
def test_what_flex_serves(width, options, message, monkeypatch):
    q = torch.empty(1, 1, 9, width)
    arguments = {'mask': None, 'dropout_p': 0., **options}
    reason = flex_module.reason_against_flex(q, **arguments)
    assert (reason is None) if message is None else message in reason
    monkeypatch.setattr(torch, 'are_deterministic_algorithms_enabled', lambda: True)
    assert flex_module.reason_against_flex(q, **arguments) is not None
    monkeypatch.setattr(flex_module, 'flex_attention', None)
    assert 'has no flex_attention' in flex_module.reason_against_flex(q, **arguments)
