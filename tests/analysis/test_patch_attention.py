"""Attention from one patch against the explicit formula."""
import pytest
import torch
from tiny_timm import strengthen, tiny_swin, tiny_vit

from locat_mmseg.addon import add_gaug
from locat_mmseg.analysis.patch_attention import attention_maps

IMAGE = torch.randn(1, 3, 48, 80, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize('patch', [(0, 0), (2, 3)])
@pytest.mark.parametrize('prefix', [1, 5])
def test_as_the_explicit_formula(patch, prefix):
    """The first block of a plain ViT, whose input is known."""
    model = tiny_vit(reg_tokens=prefix - 1).eval()
    with torch.no_grad():
        x = model._pos_embed(model.patch_embed(IMAGE))
        block = model.blocks[0]
        q, k, _ = block.attn.qkv(block.norm1(x)).reshape(-1, 3, 3, 16).permute(1, 2, 0, 3)
        weights = (q @ k.transpose(1, 2) / 4).softmax(dim=-1)
    expected = weights[:, prefix + patch[0] * 5 + patch[1], prefix:].reshape(3, 3, 5)
    maps = attention_maps(model, IMAGE, patch)
    assert len(maps) == 2
    torch.testing.assert_close(maps[0], expected)


def test_the_gaussian_draws_attention_to_the_patch():
    plain = tiny_vit().eval()
    locat = add_gaug(tiny_vit()).eval()
    locat.load_state_dict(plain.state_dict(), strict=False)
    patch = 1, 3
    without, with_it = (attention_maps(model, IMAGE, patch)[0] for model in (plain, locat))
    assert (with_it[:, 1, 3] > without[:, 1, 3]).all()
    assert (with_it[:, 0, 0] < without[:, 0, 0]).all()  # far away


def test_maps_leave_out_prefix_tokens():
    model = strengthen(add_gaug(tiny_vit(reg_tokens=4))).eval()
    for layer in attention_maps(model, IMAGE, (0, 2)):
        sums = layer.sum(dim=(1, 2))
        assert layer.shape == (3, 3, 5) and (sums < 1).all() and (sums > 0).all()


def test_patch_outside():
    with pytest.raises(ValueError, match=r'patch \(3, 0\) lies outside of the 3 x 5 patches'):
        attention_maps(tiny_vit().eval(), IMAGE, (3, 0))


def test_windows_are_refused():
    with pytest.raises(ValueError, match='attends inside windows'):
        attention_maps(tiny_swin().eval(), torch.randn(1, 3, 56, 56), (0, 0))
