"""GAug twins against the timm layers they replace, for every option of those layers."""
import itertools

import pytest
import torch
from timm.layers import Attention, AttentionRope, RotaryEmbeddingCat
from timm.models.eva import EvaAttention
from timm.models.swin_transformer import WindowAttention
from tiny_timm import strengthen, switch_off
from torch import Tensor, nn

from locat_mmseg.addon import (TWINS, GAugAttention, GAugAttentionRope, GAugEvaAttention,
                               GAugWindowAttention, GaussianAttention)

GRID, PREFIX = (3, 5), 2
SIZE = PREFIX + GRID[0] * GRID[1]
SEQUENCE_TWINS = {GAugAttention: Attention, GAugAttentionRope: AttentionRope,
                  GAugEvaAttention: EvaAttention}


def products(**options: tuple) -> list[dict]:
    """All combinations of the options' values."""
    return [dict(zip(options, values, strict=True))
            for values in itertools.product(*options.values())]


def name(case: object) -> str:
    if isinstance(case, type):
        return case.__name__
    return ' '.join(key if value is True else f'{key}={value}'
                    for key, value in case.items() if value) or 'plain'


both = (False, True)
CASES = [
    *((Attention, options) for options in products(
        qkv_bias=both, qk_norm=both, scale_norm=both, gated=both, attn_head_dim=(None, 4))),
    *((AttentionRope, options) for options in products(
        qkv_bias=both, qk_norm=both, scale_norm=both, gated=both, attn_head_dim=(None, 4),
        rotate_half=both)),
    *((AttentionRope, {'qkv_fused': False, **options}) for options in products(
        qkv_bias=both, qk_norm=both, gated=both, num_kv_heads=(1, 2, 4), rotate_half=both)),
    *((EvaAttention, options) for options in products(
        qkv_bias=both, qkv_fused=both, qk_norm=both, scale_norm=both, gated=both,
        rotate_half=both)),
    *((EvaAttention, {'qkv_bias_separate': True, **options}) for options in products(
        qkv_bias=both, qk_norm=both)),
    (Attention, {'dim_out': 20}),
    (Attention, {'proj_bias': False}),
    (AttentionRope, {'dim_out': 20, 'proj_bias': False}),
]
MASKS = {
    'none': None,
    'bool': torch.ones(SIZE, SIZE).tril().bool(),
    'float': torch.linspace(-2, 2, SIZE * SIZE).view(1, 1, SIZE, SIZE),
}


def make_layer(cls: type[nn.Module], **options) -> nn.Module:
    """A timm layer of 32 channels and 4 heads of which every parameter matters."""
    torch.manual_seed(0)
    if cls is not Attention:
        options = {'num_prefix_tokens': PREFIX, **options}
    layer = cls(32, 4, norm_layer=nn.LayerNorm, **options).eval()
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.3)
    return layer


def rope_of(layer: nn.Module) -> dict[str, Tensor]:
    """The rotary argument that a layer's forward takes, if any."""
    if isinstance(layer, Attention):
        return {}
    rotary = RotaryEmbeddingCat(layer.head_dim, in_pixels=False, feat_shape=GRID,
                                rotate_half=layer.rotate_half)
    return {'rope': rotary.get_embed()}


@pytest.mark.parametrize('cls, options', CASES, ids=name)
def test_switched_off_equals_timm(cls, options):
    layer = make_layer(cls, **options)
    twin = TWINS[cls].from_attention(layer, GRID, PREFIX)
    x = torch.randn(2, SIZE, 32)
    rope = rope_of(layer)
    for fused, mask in itertools.product(both, MASKS.values()):
        layer.fused_attn = twin.fused_attn = fused
        expected = layer(x, attn_mask=mask, **rope)
        with_gaussian = strengthen(twin)(x, attn_mask=mask, grid=GRID, **rope)
        torch.testing.assert_close(switch_off(twin)(x, attn_mask=mask, grid=GRID, **rope),
                                   expected, rtol=1e-5, atol=1e-5)
        assert not torch.allclose(with_gaussian, expected, atol=1e-3)


def test_eva_takes_heads_of_another_width():
    """timm's own EvaAttention cannot run with attn_head_dim: the twin equals its siblings."""
    eva = make_layer(EvaAttention, attn_head_dim=4, scale_norm=False)
    sibling = make_layer(AttentionRope, attn_head_dim=4)
    sibling.load_state_dict({
        'qkv.weight': eva.qkv.weight, 'proj.weight': eva.proj.weight, 'proj.bias': eva.proj.bias,
        'qkv.bias': torch.cat([eva.q_bias, eva.k_bias, eva.v_bias])})
    twins = GAugEvaAttention.from_attention(eva, GRID), GAugAttentionRope.from_attention(sibling,
                                                                                         GRID)
    twins[0].gaug.load_state_dict(twins[1].gaug.state_dict())
    x = torch.randn(2, 15, 32)
    torch.testing.assert_close(*(twin(x, grid=GRID, **rope_of(twin)) for twin in twins))


@pytest.mark.parametrize('masked', both)
@pytest.mark.parametrize('options', [{}, {'qkv_bias': False}, {'head_dim': 4}], ids=name)
def test_window_switched_off_equals_timm(options, masked):
    torch.manual_seed(0)
    layer = WindowAttention(32, 4, window_size=GRID, **options).eval()
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.3)
    twin = GAugWindowAttention.from_attention(layer, GRID)
    x = torch.randn(6, 15, 32)  # two images of three windows
    mask = torch.randn(3, 15, 15) if masked else None
    for fused in both:
        layer.fused_attn = twin.fused_attn = fused
        expected = layer(x, mask)
        assert not torch.allclose(strengthen(twin)(x, mask), expected, atol=1e-3)
        torch.testing.assert_close(switch_off(twin)(x, mask), expected, rtol=1e-5, atol=1e-5)


def test_window_has_its_own_shape():
    """A window without position bias equals a sequence whose grid is the window."""
    torch.manual_seed(0)
    window = GAugWindowAttention(32, 4, window_size=GRID)
    nn.init.zeros_(window.relative_position_bias_table)
    sequence = GAugAttention(32, 4, GRID, num_prefix_tokens=0, qkv_bias=True)
    sequence.load_state_dict(strengthen(window).state_dict(), strict=False)
    x = torch.randn(2, 15, 32)
    torch.testing.assert_close(window(x), sequence(x, grid=GRID))
    assert not torch.allclose(window(x), sequence(x, grid=GRID[::-1]), atol=1e-3)


@pytest.mark.parametrize('separate', both)
def test_eva_bias_rounds_as_in_timm(separate):
    layer = make_layer(EvaAttention, qkv_bias_separate=separate).bfloat16()
    twin = switch_off(GAugEvaAttention.from_attention(layer, GRID, PREFIX))
    layer.fused_attn = twin.fused_attn = False  # fused kernels differ with and without a mask
    x = torch.randn(2, SIZE, 32).bfloat16()
    assert torch.equal(twin(x, grid=GRID), layer(x))


@pytest.mark.parametrize('fused', both)
def test_gaussian_reads_queries_after_the_norm_and_before_the_rotation(fused):
    """With k = 0 the Gaussian alone decides: that of the q-norm's bias, the same at every patch."""
    layer = make_layer(AttentionRope, qk_norm=True)
    nn.init.zeros_(layer.q_norm.weight)
    nn.init.zeros_(layer.k_norm.weight)
    nn.init.zeros_(layer.k_norm.bias)
    twin = strengthen(GAugAttentionRope.from_attention(layer, GRID, PREFIX))
    twin.fused_attn = fused
    x = torch.randn(2, SIZE, 32)
    query = layer.q_norm.bias.expand(1, 1, 15, 8)
    rows, cols = twin.gaug(query, GRID).factors()
    bias = torch.zeros(SIZE, SIZE)
    bias[PREFIX:, PREFIX:] = (rows[..., :, None] * cols[..., None, :]).reshape(15, 15)
    v = layer.qkv(x).unflatten(-1, (3, 4, 8))[:, :, 2].transpose(1, 2)
    expected = layer.proj((bias.softmax(-1) @ v).transpose(1, 2).flatten(2))
    torch.testing.assert_close(twin(x, grid=GRID, **rope_of(layer)), expected, rtol=1e-4,
                               atol=1e-5)


@pytest.mark.parametrize('fused', both)
@pytest.mark.parametrize('twin_cls', TWINS.values(), ids=name)
def test_dropout_in_training(twin_cls, fused):
    torch.manual_seed(0)
    if twin_cls is GAugWindowAttention:
        twin, arguments = twin_cls(32, 4, GRID, attn_drop=0.3, proj_drop=0.3), {}
        x = torch.randn(2, 15, 32)
    else:
        twin = twin_cls(32, 4, GRID, PREFIX, attn_drop=0.3, proj_drop=0.3)
        x, arguments = torch.randn(2, SIZE, 32), {'grid': GRID}
    twin.fused_attn = fused
    twin.proj_drop.p = 0.
    first, second = twin(x, **arguments), twin(x, **arguments)
    assert first.isfinite().all()
    assert not torch.equal(first, second)
    first.sum().backward()
    assert all(p.grad.isfinite().all() for p in twin.parameters() if p.grad is not None)
    twin.eval()
    assert torch.equal(twin(x, **arguments), twin(x, **arguments))
    twin.train()
    twin.proj_drop.p, twin.attn_drop.p = 0.5, 0.
    assert (twin(x, **arguments) == 0).float().mean() > 0.3


@pytest.mark.parametrize('twin_cls', SEQUENCE_TWINS, ids=name)
def test_alone(twin_cls):
    twin = twin_cls(32, num_heads=4, gaug_grid=(2, 3), num_prefix_tokens=1)
    assert twin.gaug.grid == (2, 3)
    x = torch.randn(2, 7, 32)
    tall, wide = twin(x, grid=(3, 2)), twin(x, grid=(2, 3))
    assert tall.shape == wide.shape == x.shape
    assert not torch.allclose(tall, wide, atol=1e-6)
    with pytest.raises(ValueError, match=r'got 6 patch tokens, .*grids of no patches.*'
                                         r'needs its grid: layer\(x, grid=\(h, w\)\)'):
        twin(x)
    with pytest.raises(ValueError, match=r'6 patch queries do not fill the grid \(2, 2\)'):
        twin(x, grid=(2, 2))
    with pytest.raises(ValueError, match='is_causal=True: .* pass an attn_mask instead'):
        twin(x, is_causal=True, grid=(2, 3))


def test_alone_with_norms_by_name():
    twin = GAugAttention(32, 4, gaug_grid=3, norm_layer='rmsnorm', qk_norm=True, scale_norm=True)
    assert twin.gaug.grid == (3, 3)
    assert type(twin.q_norm).__name__ == type(twin.norm).__name__ == 'RmsNorm'
    assert twin(torch.randn(1, 10, 32), grid=(3, 3)).shape == (1, 10, 32)


def test_window_alone():
    twin = GAugWindowAttention(32, 4, window_size=7)
    assert twin.gaug.grid == (7, 7)
    assert twin(torch.randn(2, 49, 32)).shape == (2, 49, 32)
    assert GAugWindowAttention(32, 4, window_size=GRID).gaug.grid == GRID
    assert GAugWindowAttention(32, 4, window_size=12, gaug_grid=7).gaug.grid == (7, 7)
    with pytest.raises(ValueError, match='grid=0: expected a positive integer or a pair'):
        GAugWindowAttention(32, 4, window_size=12, gaug_grid=0)


@pytest.mark.parametrize('options, width', [({}, 8), ({'attn_head_dim': 10}, 10)], ids=str)
def test_gaussian_has_the_width_of_a_head(options, width):
    twin = GAugAttention(32, 4, GRID, **options)
    assert twin.gaug.log_var.in_features == twin.gaug.log_alpha.in_features == width


@pytest.mark.parametrize('cls', TWINS, ids=name)
def test_twin_shares_and_the_original_stays_as_it_was(cls):
    kwargs = {'window_size': GRID} if cls is WindowAttention else {'norm_layer': nn.LayerNorm}
    layer = cls(32, 4, **kwargs).double().eval()
    before = {key: value.clone() for key, value in layer.state_dict().items()}
    attributes = dict(layer.__dict__)
    twin = TWINS[cls].from_attention(layer, GRID, PREFIX)

    assert isinstance(twin, cls) and isinstance(twin, GaussianAttention)
    assert type(layer) is cls
    assert layer.__dict__.keys() == attributes.keys()
    assert not hasattr(layer, 'gaug')
    assert layer.state_dict().keys() == before.keys()
    assert all(torch.equal(layer.state_dict()[key], value) for key, value in before.items())
    assert set(twin.state_dict()) - set(before) == {
        f'gaug.{linear}.{kind}' for linear in ('log_var', 'log_alpha')
        for kind in ('weight', 'bias')}
    assert all(twin.get_parameter(key) is parameter for key, parameter in layer.named_parameters())
    assert twin.gaug.log_var.weight.dtype == torch.float64
    assert not twin.training and not twin.gaug.training


def test_a_grid_of_the_model_is_read_at_each_call():
    twin = GAugAttention(32, 4, GRID, PREFIX)
    x = torch.randn(1, SIZE, 32)
    twin.token_grid.record((5, 3))
    torch.testing.assert_close(twin(x), twin(x, grid=(5, 3)))
    twin.token_grid.record((1, 15))
    torch.testing.assert_close(twin(x), twin(x, grid=(1, 15)))
