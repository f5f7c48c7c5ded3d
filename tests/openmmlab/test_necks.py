"""PRRPool against a loop over heads and queries."""
import pytest
import torch
from attention_rows import AttentionRows
from golden import load_golden, relative_error
from mmengine.registry import MODELS
from torch import Tensor
from torch.nn import functional as F

from locat_mmseg.openmmlab.necks import PRRPool


def tokens(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def refine_by_hand(x: Tensor, num_heads: int) -> Tensor:
    """softmax(x x^T / sqrt(d)) x of each head, one query at a time; x is (B, N, C)."""
    heads = []
    for head in x.chunk(num_heads, dim=-1):
        scale = head.shape[-1] ** -0.5
        rows = [((head @ head[:, i, :, None]) * scale).softmax(dim=1).mul(head).sum(dim=1)
                for i in range(head.shape[1])]
        heads.append(torch.stack(rows, dim=1))
    return torch.cat(heads, dim=-1)


@pytest.mark.parametrize('num_prefix_tokens', [1, 5])
def test_class_token(num_prefix_tokens: int):
    x = tokens(2, num_prefix_tokens + 12, 24)
    pooled = PRRPool(24, 3, num_prefix_tokens=num_prefix_tokens)((x, ))
    assert isinstance(pooled, tuple) and len(pooled) == 1
    torch.testing.assert_close(pooled[0], refine_by_hand(x, 3)[:, 0])


@pytest.mark.parametrize('refined', [True, False])
def test_several_class_tokens_are_joined(refined: bool):
    x = tokens(2, 5 + 12, 24)
    pooled, = PRRPool(24, 3, num_prefix_tokens=5, refine=refined, num_class_tokens=4)((x, ))
    y = refine_by_hand(x, 3) if refined else x
    torch.testing.assert_close(pooled, torch.cat([y[:, 0], y[:, 1], y[:, 2], y[:, 3]], dim=1))


@pytest.mark.parametrize('pool, class_tokens, rows', [('cls', 1, 1), ('cls', 6, 6),
                                                      ('avg', 1, 40)])
def test_each_class_token_costs_one_row(pool: str, class_tokens: int, rows: int):
    x = tokens(1, 40, 8).requires_grad_()
    with AttentionRows() as attention:
        PRRPool(8, 2, pool, 6, num_class_tokens=class_tokens)((x, ))[0].sum().backward()
    assert attention.rows == [rows, rows]


@pytest.mark.parametrize('num_prefix_tokens', [0, 1, 5])
def test_average_leaves_prefix_tokens_out_of_the_mean_only(num_prefix_tokens: int):
    x = tokens(2, num_prefix_tokens + 12, 24)
    pooled, = PRRPool(24, 3, 'avg', num_prefix_tokens)((x, ))
    torch.testing.assert_close(pooled, refine_by_hand(x, 3)[:, num_prefix_tokens:].mean(dim=1))


def test_norm_comes_after_the_mean():
    x = tokens(2, 13, 24)
    pool = PRRPool(24, 3, 'avg', norm=True)
    torch.nn.init.normal_(pool.fc_norm.weight)
    torch.nn.init.normal_(pool.fc_norm.bias)
    expected = F.layer_norm(refine_by_hand(x, 3)[:, 1:].mean(dim=1), (24, ), pool.fc_norm.weight,
                            pool.fc_norm.bias, eps=1e-6)  # timm's eps of a ViT
    torch.testing.assert_close(pool((x, ))[0], expected)
    assert not list(PRRPool(24, 3, 'avg').parameters())


@pytest.mark.parametrize('pool, expected', [('cls', lambda x: x[:, 0]),
                                            ('avg', lambda x: x[:, 5:].mean(dim=1))])
def test_plain_twin_only_pools(pool: str, expected):
    x = tokens(2, 17, 24)
    assert torch.equal(PRRPool(24, 3, pool, num_prefix_tokens=5, refine=False)((x, ))[0],
                       expected(x))


def test_map_of_any_shape_and_the_last_of_several():
    maps = tokens(2, 12, 8, 8), tokens(2, 24, 3, 5)
    pooled, = PRRPool(24, 4, 'avg', num_prefix_tokens=0)(maps)
    sequence = maps[1].reshape(2, 24, 15).transpose(1, 2)
    torch.testing.assert_close(pooled, refine_by_hand(sequence, 4).mean(dim=1))


@pytest.mark.parametrize('pool', ['cls', 'avg'])
@pytest.mark.parametrize('refine', [True, False])
def test_refinement_sends_gradient_to_every_patch(pool: str, refine: bool):
    """The point of PRR: with class-token pooling alone, no patch token gets any gradient."""
    x = tokens(2, 13, 24).requires_grad_()
    PRRPool(24, 3, pool, refine=refine)((x, ))[0].square().sum().backward()
    reached = x.grad[:, 1:].abs().sum(dim=-1) > 0
    assert reached.all() if refine or pool == 'avg' else not reached.any()


@pytest.mark.parametrize('index', [0, 1])
def test_golden_refinement(index: int):
    """Its mean over the patches is what the neck returns for tokens and maps."""
    golden = load_golden(f'prr_{index}')
    x, y = golden.inputs['x'], golden.outputs['y']
    mean = y.mean(dim=1) if x.ndim == 3 else y.mean(dim=(2, 3))
    channels = x.shape[-1] if x.ndim == 3 else x.shape[1]
    pool = PRRPool(channels, golden.meta['num_heads'], 'avg', num_prefix_tokens=0)
    assert relative_error(pool((x, ))[0], mean) < 1e-5


def test_builds_from_a_config():
    assert isinstance(MODELS.build(dict(type='PRRPool', embed_dims=24, num_heads=3)), PRRPool)


@pytest.mark.parametrize('kwargs, message', [
    (dict(pool='max'), r"pool='max': expected one of \('cls', 'avg'\)"),
    (dict(num_prefix_tokens=0), "num_prefix_tokens=0 says there is none; use pool='avg'"),
    (dict(num_class_tokens=2), 'num_class_tokens=2: expected 1 to num_prefix_tokens=1'),
    (dict(embed_dims=25), 'embed_dims=25 cannot be split into num_heads=3'),
])
def test_arguments_refused(kwargs: dict, message: str):
    with pytest.raises(ValueError, match=message):
        PRRPool(**{'embed_dims': 24, 'num_heads': 3, **kwargs})


@pytest.mark.parametrize('x, message', [
    (tokens(1, 24, 3, 5), r'map of shape \(1, 24, 3, 5\) has no prefix tokens'),
    (tokens(1, 13, 12), 'tokens of 12 channels, but embed_dims=24'),
])
def test_inputs_refused(x: Tensor, message: str):
    with pytest.raises(ValueError, match=message):
        PRRPool(24, 3)((x, ))
