"""The tiled back end: each tile size gives what the definition in float64 gives."""
import itertools

import pytest
import torch
from golden import relative_error
from torch import Tensor

from locat_mmseg.layers import Gaussian, attend, tiled_attention as tiled
from locat_mmseg.layers.tiled_attention import parts, tiled_attention, tiles

# Batch, heads, grid, prefix tokens, head width.
SHAPES = [(2, 3, (5, 7), 1, 8), (1, 2, (6, 4), 5, 16), (3, 1, (1, 9), 0, 5), (2, 2, (1, 1), 0, 4)]
MAX_OFFSET = 10.  # clips the longest offsets of these grids


def make_inputs(shape: tuple, dtype: torch.dtype) -> list[Tensor]:
    """q, k, v as slices of one projection, strength and precision; all want gradients."""
    batch, heads, (height, width), num_prefix_tokens, head_dim = shape
    generator = torch.Generator().manual_seed(0)
    patches = height * width
    qkv = torch.randn(batch, num_prefix_tokens + patches, 3, heads, head_dim,
                      generator=generator, dtype=torch.float64)
    numbers = (torch.rand(batch, heads, patches, count, generator=generator, dtype=torch.float64)
               for count in (1, 2))
    return [t.to(dtype).detach().requires_grad_()
            for t in (*qkv.permute(2, 0, 3, 1, 4).unbind(), *numbers)]


def masks(shape: tuple) -> list[Tensor | None]:
    """None, boolean of one per image, and additive of one per head, in turn for all images."""
    batch, heads, grid, num_prefix_tokens, _ = shape
    size = num_prefix_tokens + grid[0] * grid[1]
    generator = torch.Generator().manual_seed(1)
    keep = torch.rand(batch, 1, size, size, generator=generator) > 0.3
    return [None, keep | torch.eye(size, dtype=torch.bool),
            torch.randn(heads, size, size, generator=generator)]


def in_tiles(shape: tuple):
    """`tiled_attention` as a function of tensors."""
    return lambda q, k, v, strength, precision, mask=None: tiled_attention(
        q, k, v, Gaussian(strength, precision, shape[2], MAX_OFFSET), mask)


def outputs_and_gradients(function, inputs: list[Tensor], mask: Tensor | None) -> list[Tensor]:
    out = function(*inputs, mask)
    gradient = torch.linspace(-1, 1, out.numel(), dtype=torch.float64).sin().view(out.shape)
    return [out, *torch.autograd.grad(out, inputs, gradient.to(out.dtype))]


def explicit(shape: tuple):
    def function(q, k, v, strength, precision, mask):
        mask = mask.double() if mask is not None and mask.is_floating_point() else mask
        gaussian = Gaussian(strength, precision, shape[2], MAX_OFFSET)
        return attend(q, k, v, gaussian, mask, backend='explicit')
    return function


def same_layout(name: str, shape: tuple) -> bool:
    """Whether a gradient is zero by theory: with one patch and no prefix no key can be chosen."""
    return shape[2] == (1, 1) and shape[3] == 0 and name not in ('out', 'v')


@pytest.mark.parametrize('elements', [10 ** 6, 2000, 300, 1])
@pytest.mark.parametrize('shape', SHAPES, ids=str)
def test_equals_explicit_in_float64(shape, elements, monkeypatch):
    """Tiles of all heads, of some heads, of some queries, and with poisoned memory."""
    monkeypatch.setattr(tiled, 'ELEMENTS_PER_THREAD', elements)
    monkeypatch.setattr(tiled, 'ALIGNMENT', 4)
    for mask, dtype in itertools.product(masks(shape), (torch.float32, torch.float64)):
        expected = outputs_and_gradients(explicit(shape), make_inputs(shape, torch.float64), mask)
        with poisoned_memory():
            typed = mask.to(dtype) if mask is not None and mask.is_floating_point() else mask
            actual = outputs_and_gradients(in_tiles(shape), make_inputs(shape, dtype), typed)
        limit = 1e-5 if dtype == torch.float32 else 1e-12
        for name, result, want in zip(('out', 'q', 'k', 'v', 'strength', 'precision'), actual, expected,
                                      strict=True):
            assert result.dtype == dtype and result.isfinite().all()
            if same_layout(name, shape):
                assert result.abs().max() < limit
            else:
                assert relative_error(result.double(), want) < limit, name


class poisoned_memory:
    """Fill new memory with NaN, so that an element that nobody writes shows."""

    def __enter__(self) -> None:
        torch.use_deterministic_algorithms(True)
        assert torch.utils.deterministic.fill_uninitialized_memory
        assert torch.empty(3).isnan().all()

    def __exit__(self, *_) -> None:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize('shape', SHAPES[:3], ids=str)
def test_bfloat16(shape):
    for mask in masks(shape):
        expected = outputs_and_gradients(explicit(shape), make_inputs(shape, torch.float64), mask)
        inputs = [t.detach().bfloat16().requires_grad_() for t in make_inputs(shape, torch.float64)
                  [:3]] + [t.detach().float().requires_grad_() for t in
                           make_inputs(shape, torch.float64)[3:]]
        actual = outputs_and_gradients(in_tiles(shape), inputs, mask)
        assert [t.dtype for t in actual] == [torch.bfloat16] * 4 + [torch.float32] * 2
        for result, want in zip(actual, expected, strict=True):
            assert relative_error(result.double(), want) < 2e-2


def test_large_logits_neither_overflow_nor_vanish():
    inputs = make_inputs(SHAPES[0], torch.float32)
    inputs = [t.detach().mul(scale).requires_grad_()
              for t, scale in zip(inputs, (60, 60, 1, 10, 30), strict=True)]
    doubles = [t.detach().double().requires_grad_() for t in inputs]
    out, expected = in_tiles(SHAPES[0])(*inputs), explicit(SHAPES[0])(*doubles, None)
    assert relative_error(out.double(), expected) < 1e-4


@pytest.mark.parametrize('threads, heads, tokens, elements, expected', [
    (1, 6, 1025, 2 ** 18, (1, 224)), (2, 6, 1025, 2 ** 18, (2, 224)),
    (2, 24, 197, 2 ** 18, (6, 197)), (2, 24, 197, 2 ** 19, (12, 197)),
    (2, 6, 577, 2 ** 18, (2, 577)), (2, 6, 785, 2 ** 18, (2, 288)),
    (2, 24, 197, 2 ** 20, (24, 197)), (1, 5, 64, 25 * 10 ** 3, (3, 64)), (1, 5, 64, 10 ** 4, (1, 64)), (1, 2, 50, 1, (1, 32)),
    (3, 7, 1, 100, (7, 1)), (8, 3, 1025, 2 ** 18, (3, 544))])
def test_tiles_cover_each_logit_once(threads, heads, tokens, elements, expected, monkeypatch):
    monkeypatch.setattr(tiled, 'ELEMENTS_PER_THREAD', elements)
    monkeypatch.setattr(torch, 'get_num_threads', lambda: threads)
    seen = torch.zeros(heads, tokens, dtype=torch.int)
    for tile in tiles(heads, tokens):
        seen[tile] += 1
    assert (seen == 1).all()
    assert tuple(part.stop for part in next(tiles(heads, tokens))) == expected


def test_empty_batch():
    inputs = [t[:0] for t in make_inputs(SHAPES[0], torch.float32)]
    assert in_tiles(SHAPES[0])(*inputs).shape == inputs[0].shape


def test_autocast_computes_in_its_type_forward_and_backward():
    inputs = make_inputs(SHAPES[0], torch.float32)
    large = [8 * t for t in inputs[:2]] + inputs[2:]
    with torch.autocast('cpu', torch.bfloat16):
        out = in_tiles(SHAPES[0])(*large)
    assert out.dtype == torch.bfloat16
    halves = [t.bfloat16() for t in large[:3]] + large[3:]
    expected = in_tiles(SHAPES[0])(*halves)
    assert torch.equal(out, expected)
    for actual, want in zip(torch.autograd.grad(out.sum(), inputs, retain_graph=True),
                            torch.autograd.grad(expected.sum(), inputs), strict=True):
        assert torch.equal(actual, want)


def test_parts():
    assert parts(7, 3) == [slice(0, 3), slice(3, 6), slice(6, 7)]
    assert parts(4, 9) == [slice(0, 4)]


@pytest.mark.parametrize('backend', ['eager', 'aot_eager'])
def test_compiles_whole(backend):
    torch.compiler.reset()
    inputs = make_inputs(SHAPES[0], torch.float32)
    function = in_tiles(SHAPES[0])
    compiled = torch.compile(function, backend=backend, fullgraph=True, dynamic=False)
    expected = outputs_and_gradients(function, inputs, None)
    for actual, want in zip(outputs_and_gradients(compiled, inputs, None), expected, strict=True):
        torch.testing.assert_close(actual, want)


def test_operator_keeps_its_promises():
    """Torch's own checks of custom operators: schema, fake tensors, autograd, compilation."""
    inputs = make_inputs(SHAPES[0], torch.float32)
    for mask in masks(SHAPES[0])[:2]:
        torch.library.opcheck(torch.ops.locat_mmseg.tiled_attention.default,
                              (*inputs, *SHAPES[0][2], MAX_OFFSET, mask))


def test_training_after_inference():
    """What is kept from call to call was made in inference mode first."""
    tiled.offsets_of_queries.cache_clear()
    inputs = make_inputs(SHAPES[0], torch.float32)
    with torch.inference_mode():
        expected = in_tiles(SHAPES[0])(*inputs)
    out, *gradients = outputs_and_gradients(in_tiles(SHAPES[0]), inputs, None)
    assert torch.equal(out, expected) and tiled.offsets_of_queries.cache_info().hits
    assert all(gradient.isfinite().all() for gradient in gradients)
