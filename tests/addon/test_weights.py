"""Loading state dicts: all that fits, nothing lost in silence, grids resampled or refused."""
import copy

import numpy as np
import pytest
import timm
import torch
from timm.models.eva import Eva
from timm.models.swin_transformer import SwinTransformer
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn
from torch.nn import functional as F

from locat_mmseg.addon import add_gaug
from locat_mmseg.addon.weights import LoadReport, load_weights, names, square_grid

StateDict = dict[str, Tensor]


def vit(gaug: bool = True, gaug_grid: int | None = None, **kwargs) -> nn.Module:
    model = VisionTransformer(**{
        'img_size': 32, 'patch_size': 8, 'embed_dim': 24, 'depth': 2, 'num_heads': 3,
        'num_classes': 5, 'dynamic_img_size': True, **kwargs})
    return add_gaug(model, gaug_grid) if gaug else model


def swin(gaug: bool = True, **kwargs) -> nn.Module:
    model = SwinTransformer(**{
        'img_size': 40, 'patch_size': 2, 'window_size': 5, 'embed_dim': 12, 'depths': (1, 1),
        'num_heads': (3, 3), 'num_classes': 5, 'strict_img_size': False, **kwargs})
    return add_gaug(model) if gaug else model


def weights(model: nn.Module) -> StateDict:
    """Random values for every entry of a model's state dict."""
    generator = torch.Generator().manual_seed(0)
    return {name: torch.randn(weight.shape, generator=generator)
            for name, weight in model.state_dict().items()}


def is_gaug(name: str) -> bool:
    return '.gaug.' in name


@pytest.mark.parametrize('build', [vit, swin])
@pytest.mark.parametrize('gaug', [True, False])
def test_same_model(build, gaug: bool):
    source = weights(build(gaug))
    kept = dict(source)
    model = build(gaug)
    report = load_weights(model, source)
    assert all(torch.equal(weight, source[name]) for name, weight in model.state_dict().items())
    assert report == LoadReport(loaded=len(source))
    assert source == kept and list(source) == list(kept)  # the very same tensors, untouched


@pytest.mark.parametrize('build', [vit, swin])
def test_plain_weights_into_a_model_with_gaug(build):
    source, model = weights(build(gaug=False)), build()
    before = copy.deepcopy(model.state_dict())
    report = load_weights(model, source)
    for name, weight in model.state_dict().items():
        assert torch.equal(weight, before[name] if is_gaug(name) else source[name]), name
    assert report.missing == sorted(filter(is_gaug, before))
    assert report.loaded == len(source) and not report.unused


def test_gaug_weights_into_a_plain_model():
    model = vit(gaug=False)
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(ValueError, match='In the file but not in the model: blocks.0.attn.gaug'):
        load_weights(model, weights(vit()))
    assert all(torch.equal(w, before[name]) for name, w in model.state_dict().items())


def test_incomplete_gaug_weights():
    source = weights(vit())
    del source['blocks.1.attn.gaug.log_var.bias']
    with pytest.raises(ValueError, match='In the model but not in the file: '
                                         r'blocks.1.attn.gaug.log_var.bias\. Build'):
        load_weights(vit(), source)


def test_missing_and_unexpected():
    source = weights(vit())
    source['extra'] = source.pop('norm.weight')
    with pytest.raises(ValueError, match='not of this VisionTransformer.*but not in the model: '
                                         r'extra\. In the model but not in the file: norm.weight'):
        load_weights(vit(), source, may_leave={'head.weight'})


def test_what_may_be_left_is_reported():
    source = weights(vit())
    report = load_weights(vit(num_classes=0), source, may_leave={'head.weight', 'head.bias', 'x'})
    assert report.unused == ['head.bias', 'head.weight']
    assert report.loaded == len(source) - 2


@pytest.mark.parametrize('kwargs, name', [
    (dict(embed_dim=48), r'.* has shape \(1, 8\) in the file and \(1, 16\) in the model'),
    (dict(mlp_ratio=2), r'mlp.fc1.bias has shape \(96,\) in the file and \(48,\)'),
    (dict(num_heads=2), r'gaug.* has shape \(1, 8\) in the file and \(1, 12\) in the model'),
    (dict(depth=3), 'not in the file: blocks.2.attn.gaug.log_alpha.bias'),
    (dict(depth=1), 'not in the model: blocks.1.attn.gaug.log_alpha.bias'),
    (dict(class_token=False, global_pool='avg', fc_norm=False), 'not in the model: cls_token'),
    (dict(reg_tokens=4), 'In the model but not in the file: reg_token'),
])
def test_another_architecture(kwargs: dict, name: str):
    with pytest.raises(ValueError, match=name):
        load_weights(vit(**kwargs), weights(vit()))


@pytest.mark.parametrize('gaug', [True, False])
def test_another_number_of_registers(gaug: bool):
    with pytest.raises(ValueError, match='num_registers|reg_token has shape'):
        load_weights(vit(gaug, reg_tokens=4), weights(vit(gaug, reg_tokens=1)))


@pytest.mark.parametrize('gaug', [True, False])
def test_another_patch_size(gaug: bool):
    with pytest.raises(ValueError, match='patches of 8 x 8 pixels, the model has patches of 4 x 4'):
        load_weights(vit(gaug, patch_size=4, img_size=16), weights(vit(gaug)))


# --- position embedding --------------------------------------------------------------------------

def resample_by_hand(pos_embed: Tensor, prefix: int, old: int, new: tuple[int, int]) -> Tensor:
    grid = pos_embed[:, prefix:].reshape(1, old, old, -1).permute(0, 3, 1, 2)
    grid = F.interpolate(grid, size=new, mode='bicubic', antialias=True, align_corners=False)
    return torch.cat([pos_embed[:, :prefix], grid.flatten(2).transpose(1, 2)], dim=1)


@pytest.mark.parametrize('img_size, grid', [(64, (8, 8)), (16, (2, 2)), ((48, 80), (6, 10))])
@pytest.mark.parametrize('prefix, kwargs', [
    (1, {}), (5, dict(reg_tokens=4)), (0, dict(class_token=False, global_pool='avg')),
    (0, dict(reg_tokens=4, no_embed_class=True))])
def test_position_embedding_is_resampled_without_gaug(img_size, grid: tuple[int, int], prefix: int,
                                                      kwargs: dict):
    source = weights(vit(gaug=False, **kwargs))
    model = vit(img_size=img_size, **kwargs)
    report = load_weights(model, source)
    torch.testing.assert_close(model.state_dict()['pos_embed'],
                               resample_by_hand(source['pos_embed'], prefix, 4, grid))
    assert report.resampled == [
        f'pos_embed (1, {prefix + 16}, 24) -> (1, {prefix + grid[0] * grid[1]}, 24)']
    others = [name for name in source if name != 'pos_embed']
    assert all(torch.equal(model.state_dict()[name], source[name]) for name in others)


def test_resampling_keeps_the_class_token_where_registers_are_not_embedded():
    source = weights(timm.create_model('vit_small_patch14_reg4_dinov2', img_size=56, embed_dim=24,
                                       depth=1, num_heads=3))
    model = add_gaug(timm.create_model('vit_small_patch14_reg4_dinov2', img_size=70, embed_dim=24,
                                       depth=1, num_heads=3))
    load_weights(model, source)
    torch.testing.assert_close(model.state_dict()['pos_embed'],
                               resample_by_hand(source['pos_embed'], 0, 4, (5, 5)))


def test_eva_position_embedding():
    def eva(img_size: int) -> nn.Module:
        return Eva(img_size=img_size, patch_size=8, embed_dim=24, depth=1, num_heads=3)
    source, model = weights(eva(32)), eva(48)
    load_weights(model, source)
    torch.testing.assert_close(model.state_dict()['pos_embed'],
                               resample_by_hand(source['pos_embed'], 1, 4, (6, 6)))


def test_position_embedding_that_covers_no_square():
    with pytest.raises(ValueError, match='of 11 entries, 1 of them .* not cover a square grid'):
        load_weights(vit(gaug=False), weights(vit(gaug=False, img_size=(16, 40))))
    with pytest.raises(ValueError, match='of 3 entries, 5 of them'):
        square_grid(torch.zeros(1, 3, 8), 5)


# --- the grid of GAug ----------------------------------------------------------------------------

@pytest.mark.parametrize('kwargs', [dict(img_size=64), dict(gaug_grid=8), dict(img_size=(64, 64)),
                                    dict(img_size=64, gaug_grid=8)], ids=str)
def test_gaug_of_another_grid_is_refused(kwargs: dict):
    with pytest.raises(ValueError, match='GAug parameters of a 4 x 4 grid, .* a 8 x 8 grid.*'
                                         'Set img_size .* or gaug_grid'):
        load_weights(vit(**kwargs), weights(vit()))


def test_gaug_grid_tells_what_the_weights_were_trained_on():
    source, model = weights(vit()), vit(img_size=64, gaug_grid=4)
    report = load_weights(model, source)
    assert report.resampled == ['pos_embed (1, 17, 24) -> (1, 65, 24)']
    torch.testing.assert_close(model.state_dict()['pos_embed'],
                               resample_by_hand(source['pos_embed'], 1, 4, (8, 8)))


def test_without_position_embedding_no_grid_is_known():
    source = weights(vit(pos_embed='none'))
    assert load_weights(vit(pos_embed='none', img_size=64), source).loaded == len(source)


# --- relative-position tables --------------------------------------------------------------------

def test_tables_are_resampled_without_gaug():
    """Offsets of -4..4 are spread geometrically over -5..5, then interpolated linearly."""
    source, model = weights(swin(gaug=False)), swin(window_size=6, img_size=48)
    report = load_weights(model, source)
    ratio = next(r.real for r in np.roots([1, 1, 1, 1 - 5]) if abs(r.imag) < 1e-9 and r.real > 0)
    positive = np.cumsum(ratio ** np.arange(4))  # 1 + r + r^2 + r^3 = 5
    offsets = np.concatenate([-positive[::-1], [0], positive])
    for name in ('layers.0', 'layers.1'):
        name = f'{name}.blocks.0.attn.relative_position_bias_table'
        table = source[name].reshape(9, 9, 3).numpy()
        for axis in (0, 1):
            table = np.apply_along_axis(lambda v: np.interp(np.arange(-5, 6), offsets, v), axis,
                                        table)
        np.testing.assert_allclose(model.state_dict()[name].reshape(11, 11, 3), table, atol=1e-4)
        assert f'{name} (81, 3) -> (121, 3)' in report.resampled
    assert len(report.resampled) == 2


def test_tables_of_another_window_are_refused_with_gaug():
    with pytest.raises(ValueError, match='relative_position_bias_table is of another window: the '
                                         'file has 81 offsets, the model 121'):
        load_weights(swin(window_size=6, img_size=48), weights(swin()))


def test_tables_of_another_number_of_heads():
    source = weights(swin(gaug=False, window_size=6, img_size=48, num_heads=(3, 6)))
    with pytest.raises(ValueError, match=r'table has shape \(121, 6\) in the file and \(81, 3\)'):
        load_weights(swin(), source)


# --- what is said --------------------------------------------------------------------------------

def test_the_report_names_every_key():
    """However many: what was not used must not hide behind a number."""
    unused = [f'head.{i}' for i in range(20)]
    text = str(LoadReport(loaded=3, resampled=['pos_embed (1, 17, 24) -> (1, 65, 24)'],
                          unused=unused))
    assert 'loaded: 3 tensors' in text and 'pos_embed (1, 17, 24) -> (1, 65, 24)' in text
    assert 'missing (allowed, stay as initialised): none' in text
    assert all(f'{name}' in text.split('not used: ')[1].split(', ') for name in unused)


@pytest.mark.parametrize('items, text', [([], 'none'), (['a', 'b'], 'a, b'),
                                         (list('abcdefg'), 'a, b, c, d, e, f ... (7 in all)')])
def test_names_for_errors(items: list[str], text: str):
    assert names(items) == text
