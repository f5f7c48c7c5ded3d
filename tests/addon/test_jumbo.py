"""Jumbo against a reference run, and block by block against the formulas written out."""
import copy
import math
import pickle

import pytest
import torch
from golden import load_golden, relative_error
from timm.layers import resample_abs_pos_embed
from tiny_timm import parameter_gradients, randomize, tiny_jumbo
from torch import Tensor, nn
from torch.nn import functional as F

from locat_mmseg.addon import GAugAttention, JumboViT, add_gaug
from locat_mmseg.addon.jumbo import merge_wide_mlp
from locat_mmseg.addon.weights import load_weights

TOKENS, HEADS = 3, 3
GOLDEN = dict(img_size=64, patch_size=8, embed_dim=48, depth=2, num_heads=3, num_classes=100,
              num_class_tokens=3, jumbo_mlp_ratio=2)


def image(*size: int) -> Tensor:
    return torch.randn(2, 3, *size, generator=torch.Generator().manual_seed(0))


# --- the formulas, from a state dict, one query at a time ----------------------------------------

def linear(state: dict, name: str, x: Tensor) -> Tensor:
    return F.linear(x, state[f'{name}.weight'], state[f'{name}.bias'])


def norm(state: dict, name: str, x: Tensor, eps: float) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], state[f'{name}.weight'], state[f'{name}.bias'], eps)


def mlp(state: dict, name: str, x: Tensor) -> Tensor:
    return linear(state, f'{name}.fc2', F.gelu(linear(state, f'{name}.fc1', x)))


def gaussian(state: dict, name: str, q: Tensor, grid: tuple[int, int], trained: int) -> Tensor:
    """(B, H, n, n): the logits' Gaussian for a square pre-training grid of side ``trained``."""
    limit = trained ** 2
    var = limit * torch.sigmoid(linear(state, f'{name}.log_var', q) - math.log(limit - 1))
    if grid != (trained, trained):
        var = var * min(grid) / trained
    alpha = F.softplus(linear(state, f'{name}.log_alpha', q))[..., 0]
    places = torch.cartesian_prod(torch.arange(grid[0]), torch.arange(grid[1])).float()
    columns = []
    for place in places:
        offset = (0.5 * (places - place) ** 2).clamp(max=0.5 * (trained - 1) ** 2)
        columns.append(alpha * torch.exp(-(offset / (var + 0.1)).sum(-1)))
    return torch.stack(columns, dim=-1)


def attention(state: dict, name: str, x: Tensor, grid: tuple[int, int], trained: int) -> Tensor:
    q, k, v = linear(state, f'{name}.qkv', x).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
    logits = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    if f'{name}.gaug.log_var.weight' in state:
        patches = q[:, :, TOKENS:]
        logits[:, :, TOKENS:, TOKENS:] += gaussian(state, f'{name}.gaug', patches, grid, trained)
    return linear(state, f'{name}.proj', (logits.softmax(-1) @ v).transpose(1, 2).flatten(2))


def forward_by_hand(state: dict, x: Tensor, patch: int, trained: int
                    ) -> tuple[list[Tensor], Tensor]:
    """Maps after every block, and logits; refined if there is a norm of the patches."""
    x = F.conv2d(x, state['patch_embed.proj.weight'], state['patch_embed.proj.bias'], patch)
    grid = tuple(x.shape[-2:])
    position = resample_abs_pos_embed(state['pos_embed'], grid, (trained, trained), 0)
    x = torch.cat([state['cls_token'].expand(len(x), -1, -1),
                   x.flatten(2).transpose(1, 2) + position], dim=1)
    maps = []
    for i in range(2):
        at = f'blocks.{i}'
        y = attention(state, f'{at}.attn', norm(state, f'{at}.norm1', x, 1e-6), grid, trained)
        x = x + state[f'{at}.ls1.gamma'] * y
        wide, patches = x[:, :TOKENS].flatten(1), x[:, TOKENS:]
        y = mlp(state, 'jumbo_mlp', norm(state, f'{at}.norm3', wide, 1e-5))
        wide = wide + state[f'{at}.ls3.gamma'] * y
        y = mlp(state, f'{at}.mlp', norm(state, f'{at}.norm2', patches, 1e-6))
        patches = patches + state[f'{at}.ls2.gamma'] * y
        x = torch.cat([wide.unflatten(1, (TOKENS, -1)), patches], dim=1)
        maps.append(patches.transpose(1, 2).unflatten(2, grid))
    x = norm(state, 'norm', wide, 1e-5).unflatten(1, (TOKENS, -1))
    if 'norm_patches.weight' in state:
        x = torch.cat([x, norm(state, 'norm_patches', patches, 1e-5)], dim=1)
        heads = x.unflatten(-1, (HEADS, -1)).transpose(1, 2)
        weights = (heads @ heads.transpose(-1, -2) / heads.shape[-1] ** 0.5).softmax(-1)
        x = (weights @ heads).transpose(1, 2).flatten(2)[:, :TOKENS]
    return maps, linear(state, 'head', x.flatten(1))


@pytest.mark.parametrize('size', [(64, 64), (64, 112), (80, 48)])
@pytest.mark.parametrize('refine', [True, False])
@pytest.mark.parametrize('gaug', [True, False])
@torch.no_grad()
def test_equals_the_formulas(gaug: bool, refine: bool, size: tuple[int, int]):
    model = tiny_jumbo(refine=refine)
    model = randomize(add_gaug(model) if gaug else model).eval()
    maps, logits = forward_by_hand(model.state_dict(), image(*size), patch=16, trained=4)
    for actual, expected in zip(model.forward_intermediates(image(*size))[1], maps, strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(model(image(*size)), logits, rtol=1e-4, atol=1e-5)


# --- the reference ------------------------------------------------------------------------------

@pytest.mark.parametrize('load', [lambda m, s: m.load_state_dict(s), load_weights,
                                  lambda m, s: nn.ModuleDict(dict(backbone=m)).load_state_dict(
                                      {f'backbone.{name}': weight for name, weight in s.items()})],
                         ids=['torch', 'strict', 'below a prefix'])
def test_equals_the_reference(load):
    golden = load_golden('jumbo')
    names = list(golden.state)
    model = add_gaug(JumboViT(**GOLDEN)).eval()
    load(model, golden.state)
    assert list(golden.state) == names
    with torch.no_grad():
        logits = model(golden.inputs['image_64x64'])
    assert relative_error(logits, golden.outputs['logits_64x64']) < 1e-5
    merged = {name for name in names if 'blocks' not in name or 'jumbo_mlp' not in name}
    assert model.state_dict().keys() == merged


def test_wide_mlp_of_a_file_without_the_shared_one():
    state = load_golden('jumbo').state
    merged = merge_wide_mlp({n: w for n, w in state.items() if not n.startswith('jumbo_mlp.')})
    assert torch.equal(merged['jumbo_mlp.fc1.bias'], state['blocks.1.jumbo_mlp.fc1.bias'])


@pytest.mark.parametrize('change', [lambda w: w + 1e-6, lambda w: w[:3]], ids=['value', 'shape'])
def test_wide_mlps_that_differ_are_refused(change):
    state = load_golden('jumbo').state
    state['blocks.1.jumbo_mlp.fc1.bias'] = change(state['blocks.1.jumbo_mlp.fc1.bias'])
    for load in (load_weights, lambda model, weights: model.load_state_dict(weights)):
        with pytest.raises(ValueError, match=r'blocks\.1\.jumbo_mlp\.fc1\.bias differs from jumbo'):
            load(add_gaug(JumboViT(**GOLDEN)), state)


# --- as a timm model ----------------------------------------------------------------------------

def test_start():
    model = tiny_jumbo()
    assert (model.head.weight == 0).all()
    torch.testing.assert_close(model.head.bias, torch.full((7, ), -math.log(7)))
    assert all((ls.gamma == 1e-4).all() for block in model.blocks
               for ls in (block.ls1, block.ls2, block.ls3))
    assert model.jumbo_mlp.fc1.weight.shape == (4 * 144, 144)
    assert 0.015 < model.jumbo_mlp.fc1.weight.std() < 0.025
    assert (model.jumbo_mlp.fc1.bias == 0).all() and model.pos_embed.shape == (1, 16, 48)


def test_every_parameter_gets_a_gradient():
    model = randomize(add_gaug(tiny_jumbo())).train()
    grads = parameter_gradients(model, model(image(64, 96)).square().sum())
    assert all(grad is not None and grad.isfinite().all() and grad.any()
               for grad in grads.values())


@pytest.mark.parametrize('size, expected', [('tiny', 192), ('base', 768)])
def test_number_of_parameters(size: str, expected: int):
    c, wide, classes, d = expected, 6 * expected, 1000, 64
    block = (3 * c * c + 3 * c) + (c * c + c) + (8 * c * c + 5 * c) + 4 * c + 2 * c \
        + 3 * wide + 3 * (d + 1)
    total = 12 * block + (8 * wide * wide + 5 * wide) + (768 * c + c) + (196 + 6) * c \
        + 2 * wide + 2 * c + (wide * classes + classes)
    with torch.device('meta'):
        model = add_gaug(JumboViT(embed_dim=c, num_heads=c // d))
    assert sum(p.numel() for p in model.parameters()) == total
    names = [name for name, _ in model.named_parameters(remove_duplicate=False)]
    assert len(names) == len(set(names)) == len(list(model.parameters()))  # the MLP has one name


@pytest.mark.parametrize('clone', [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))],
                         ids=['deepcopy', 'pickle'])
def test_a_copy_shares_its_own_wide_mlp(clone):
    model = randomize(add_gaug(tiny_jumbo())).eval()
    twin = clone(model)
    assert torch.equal(twin(image(64, 96)), model(image(64, 96)))
    assert all(block.jumbo_mlp is twin.jumbo_mlp for block in twin.blocks)
    assert twin.norm.norm_patches is twin.norm_patches
    assert twin.jumbo_mlp is not model.jumbo_mlp
    assert all(isinstance(block.attn, GAugAttention) for block in twin.blocks)
    nn.init.zeros_(model.jumbo_mlp.fc2.weight)
    assert not torch.equal(twin(image(64, 96)), model(image(64, 96)))


def test_pruning_keeps_the_maps():
    model = randomize(add_gaug(tiny_jumbo())).eval()
    expected = model.forward_intermediates(image(64, 96), intermediates_only=True)
    for count in (2, 1):
        pruned = copy.deepcopy(model)
        pruned.prune_intermediate_layers(list(range(count)), prune_norm=True)
        maps = pruned.forward_intermediates(image(64, 96), intermediates_only=True)
        assert all(map(torch.equal, maps, expected[:count])) and len(maps) == count
        assert not {'head.weight', 'norm_patches.weight', f'blocks.{count - 1}.norm3.weight'} \
            & pruned.state_dict().keys()
        assert ('jumbo_mlp.fc1.weight' in pruned.state_dict()) == (count == 2)


def test_drop_path_acts_on_each_of_three_branches():
    model = randomize(tiny_jumbo(drop_path_rate=0.5)).eval()
    assert [model.blocks[1].drop_path1.drop_prob, model.blocks[1].drop_path2.drop_prob,
            model.blocks[1].drop_path3.drop_prob] == [0.5] * 3
    assert isinstance(model.blocks[0].drop_path3, nn.Identity)
    x = image(64, 64).repeat(8, 1, 1, 1)
    scales = [model.blocks[1].ls1.gamma, model.blocks[1].ls2.gamma, model.blocks[1].ls3.gamma]
    for alone in scales:
        for gamma in scales:
            nn.init.constant_(gamma, float(gamma is alone))
        model.eval()
        assert torch.equal(model(x), model(x))
        model.train()
        assert not torch.equal(model(x), model(x))


def test_classifier_can_be_replaced():
    model = tiny_jumbo()
    model.reset_classifier(5)
    assert model(image(64, 64)).shape == (2, 5) and (model.head.bias == -math.log(5)).all()
    model.reset_classifier(0, '')
    assert model(image(64, 64)).shape == (2, 144)
    with pytest.raises(ValueError, match="global_pool='avg': Jumbo pools its class tokens"):
        model.reset_classifier(5, 'avg')


def test_position_embedding_is_optional():
    model = randomize(tiny_jumbo(pos_embed='none')).eval()
    assert model.pos_embed is None and model(image(64, 96)).shape == (2, 7)


def test_no_class_token_is_refused():
    with pytest.raises(ValueError, match='num_class_tokens=0: expected at least one'):
        JumboViT(num_class_tokens=0)
