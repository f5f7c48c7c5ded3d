"""Similarity of patches, a pair at a time."""
import numpy as np
import pytest
import torch
from tiny_timm import tiny_swin, tiny_vit

from locat_mmseg.analysis.features import patch_features
from locat_mmseg.analysis.patch_similarity import patch_similarity, similarity_maps

FEATURES = torch.randn(12, 3, 5, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize('num_heads', [1, 3])
@pytest.mark.parametrize('patch', [(0, 0), (2, 3)])
def test_cosines_one_by_one(num_heads, patch):
    found = patch_similarity(FEATURES, patch, num_heads)
    assert found.shape == (num_heads, 3, 5)
    width = 12 // num_heads
    for head, row, column in np.ndindex(num_heads, 3, 5):
        a, b = (FEATURES[head * width:(head + 1) * width, y, x].double().numpy()
                for y, x in (patch, (row, column)))
        assert found[head, row, column].item() == pytest.approx(
            a @ b / np.linalg.norm(a) / np.linalg.norm(b), abs=1e-6)


def test_maps_of_every_block():
    model = tiny_vit(depth=3).eval()
    image = torch.randn(1, 3, 48, 80)
    maps = similarity_maps(model, image, (1, 4), num_heads=3)
    assert [m.shape for m in maps] == [(3, 3, 5)] * 3
    with torch.no_grad():
        expected = patch_similarity(patch_features(model, image)[0], (1, 4), 3)
    torch.testing.assert_close(maps[-1], expected)


@pytest.mark.parametrize('patch, num_heads, reason', [
    ((3, 0), 1, r'patch \(3, 0\) lies outside of the 3 x 5 patches'),
    ((0, -1), 1, r'patch \(0, -1\) lies outside'),
    ((0, 0), 5, '12 channels cannot be split into num_heads=5 equal heads'),
])
def test_mistakes(patch, num_heads, reason):
    with pytest.raises(ValueError, match=reason):
        patch_similarity(FEATURES, patch, num_heads)


def test_a_pyramid_has_other_patches_in_every_stage():
    with pytest.raises(ValueError, match='SwinTransformer is a pyramid'):
        similarity_maps(tiny_swin(), torch.randn(1, 3, 56, 56), (0, 0))
