"""Separated class tokens against running both kinds of tokens one after the other."""
import pytest
import timm
import torch
from tiny_pictures import picture_model
from tiny_timm import randomize, tiny, tiny_jumbo, tiny_swin, tiny_vit

from locat_mmseg.addon import add_gaug
from locat_mmseg.analysis.class_token import (class_token_only, count_class_tokens, isolated,
                                              separated, token_groups)

SIZE = (48, 80)  # 3 x 5 patches


def regvit(**kwargs):
    return tiny('vit_little_patch16_reg4_gap_256', class_token=True, global_pool='token',
                dynamic_img_size=True, **kwargs)


def eva(**kwargs):
    return tiny('eva02_tiny_patch14_224', img_size=56, global_pool='token', dynamic_img_size=True,
                **kwargs)


PLAIN = {'vit': tiny_vit, 'jumbo': tiny_jumbo, 'regvit': regvit}
ALL = {**PLAIN, 'locatvit': lambda **kwargs: add_gaug(tiny_vit(**kwargs)), 'eva': eva,
       'locateva': lambda **kwargs: add_gaug(eva(**kwargs)),
       'locatjumbo': lambda **kwargs: add_gaug(tiny_jumbo(**kwargs)),
       'deit': lambda **kwargs: tiny('deit_tiny_distilled_patch16_224', dynamic_img_size=True,
                                     **kwargs)}


def built(build):
    return randomize(build(depth=3)).double().eval()


def images(model, count=2):
    side = model.patch_embed.patch_size[0]
    return torch.rand(count, 3, 3 * side, 5 * side, dtype=torch.float64,
                      generator=torch.Generator().manual_seed(0))


def embedded(model, x):
    """Tokens before the first block, of a plain ViT."""
    return model.norm_pre(model._pos_embed(model.patch_embed(x)))


def through(model, tokens, blocks):
    for block in model.blocks[blocks]:
        tokens = block(tokens)
    return tokens


@pytest.mark.parametrize('layer', range(4))
@pytest.mark.parametrize('insert', ['propagated', 'raw'])
@pytest.mark.parametrize('build', [tiny_vit, regvit], ids=['vit', 'regvit'])
@torch.no_grad()
def test_isolated_is_the_same_as_one_after_the_other(build, insert, layer):
    model = built(build)
    x = images(model)
    class_token, rest = embedded(model, x).tensor_split([1], 1)  # registers go with the patches
    if insert == 'propagated':
        class_token = through(model, class_token, slice(layer))
    tokens = torch.cat([class_token, through(model, rest, slice(layer))], 1)
    expected = model.norm(through(model, tokens, slice(layer, None)))
    with isolated(model, layer, insert):
        torch.testing.assert_close(model.forward_features(x), expected)


@pytest.mark.parametrize('registers, kept', [('patches', 1), ('class', 5), ('apart', 1)])
@pytest.mark.parametrize('layer', range(4))
@torch.no_grad()
def test_only_the_class_token_is_the_same_as_without_the_rest(layer, registers, kept):
    model = built(regvit)
    x = images(model)
    tokens = through(model, embedded(model, x), slice(layer))[:, :kept]
    expected = model.norm(through(model, tokens, slice(layer, None)))
    with class_token_only(model, layer, registers):
        torch.testing.assert_close(model.forward_features(x)[:, :kept], expected)


@torch.no_grad()
def test_registers_apart_see_nobody():
    model = built(regvit)
    x = images(model)
    parts = embedded(model, x).tensor_split([1, 5], 1)
    expected = model.norm(torch.cat([through(model, part, slice(None)) for part in parts], 1))
    with isolated(model, 3, registers='apart'):
        torch.testing.assert_close(model.forward_features(x), expected)


@pytest.mark.parametrize('build', ALL.values(), ids=ALL.keys())
@torch.no_grad()
def test_invariants(build):
    model = built(build)
    x = images(model)
    plain = model(x)
    assert not torch.allclose(plain[0], plain[1], rtol=1e-3)
    with isolated(model, 0):
        torch.testing.assert_close(model(x), plain)
    with class_token_only(model, 3):
        torch.testing.assert_close(model(x), plain)
    with isolated(model, 3):
        tokens = model.forward_features(x)
    with class_token_only(model, 0):
        alone = model.forward_features(x)
    count = count_class_tokens(model)
    constant = tokens[:, :count]
    torch.testing.assert_close(constant[0], constant[1])  # it has seen no picture
    torch.testing.assert_close(alone[:, :count], constant)
    torch.testing.assert_close(model(x), plain)  # no hook is left


@pytest.mark.parametrize('build', ALL.values(), ids=ALL.keys())
@torch.no_grad()
def test_isolated_patches_do_not_depend_on_the_class_token(build):
    model = built(build)
    x = images(model)
    count = model.num_prefix_tokens
    with isolated(model, 3, registers='class'):
        before = model.forward_features(x)[:, count:]
    other = model.forward_features(x)[:, count:]
    model.cls_token.add_(1)
    with isolated(model, 3, registers='class'):
        torch.testing.assert_close(model.forward_features(x)[:, count:], before)
    assert not torch.allclose(other, before, rtol=1e-3)


@torch.no_grad()
def test_maps_of_a_backbone_are_isolated_as_well():
    model = picture_model('LocAtViT')  # a registered backbone of 3 blocks, the last one returned
    x = torch.rand(2, 3, 40, 24)
    plain, = model(x)
    with isolated(model.core, 3):
        apart, = model(x)
        model.core.cls_token.add_(1)
        torch.testing.assert_close(model(x)[0], apart)
    assert not torch.allclose(plain, apart, rtol=1e-3)


def test_groups_by_hand():
    model = regvit()
    assert token_groups(model, 7, 'patches').tolist() == [0, 1, 1, 1, 1, 1, 1]
    assert token_groups(model, 7, 'class').tolist() == [0, 0, 0, 0, 0, 1, 1]
    assert token_groups(model, 7, 'apart').tolist() == [0, 2, 2, 2, 2, 1, 1]
    assert [count_class_tokens(ALL[name]()) for name in ('vit', 'jumbo', 'deit', 'eva')] == \
        [1, 3, 2, 1]


def test_errors():
    with pytest.raises(ValueError, match='SwinTransformer has no class token'):
        with separated(tiny_swin(), [0]):
            pass
    beit = timm.create_model('beit_base_patch16_224', depth=1, embed_dim=24, num_heads=2)
    with pytest.raises(ValueError, match='Beit is made of Block, whose attention takes no mask'):
        with isolated(beit, 1):
            pass
    for layer in (-1, 3):
        for experiment in (isolated, class_token_only):
            with pytest.raises(ValueError, match=f'layer {layer}: expected 0 to 2, for 2 layers'):
                with experiment(tiny_vit(), layer):
                    pass
    with pytest.raises(ValueError, match="insert='new': expected one of"):
        with isolated(tiny_vit(), 1, insert='new'):
            pass
    with pytest.raises(ValueError, match="registers='gone': expected one of"):
        token_groups(regvit(), 7, 'gone')
