"""Attention among patches: rows renormalised, prefix tokens and padding left out."""
import pytest
import torch

from locat_mmseg.metrics import patch_attention, prefix_share


def test_typed_by_hand():
    """One prefix token and two patches."""
    weights = torch.tensor([[[[0.2, 0.4, 0.4], [0.5, 0.1, 0.4], [0.2, 0.6, 0.2]]]])
    torch.testing.assert_close(patch_attention(weights, 1),
                               torch.tensor([[[[0.2, 0.8], [0.75, 0.25]]]]))
    torch.testing.assert_close(prefix_share(weights, 1), torch.tensor([[[[0.5], [0.2]]]]))


def test_without_prefix_tokens_nothing_changes():
    weights = torch.rand(2, 3, 6, 6).softmax(-1)
    torch.testing.assert_close(patch_attention(weights), weights)
    assert prefix_share(weights, 0).shape == (2, 3, 6, 0)


def test_windows_typed_by_hand():
    """Two windows of two tokens; the second token of the second window is padding."""
    weights = torch.tensor([[0.3, 0.7], [0.6, 0.4]]).expand(4, 1, 2, 2)  # two images
    allowed = torch.tensor([[[True, True], [True, True]], [[True, False], [False, False]]])
    first, second = [[0.3, 0.7], [0.6, 0.4]], [[1., 0.], [torch.nan, torch.nan]]
    torch.testing.assert_close(patch_attention(weights, 0, allowed)[:, 0],
                               torch.tensor([first, second] * 2), equal_nan=True)


def test_a_query_that_sees_no_patch_is_nan():
    weights = torch.tensor([[[[1., 0., 0.], [1., 0., 0.], [0.5, 0.25, 0.25]]]])
    assert patch_attention(weights, 1).isnan()[0, 0].tolist() == [[True, True], [False, False]]


def test_half_precision_is_renormalised_in_float32():
    weights = torch.tensor([[[[0., 1., 2.]] * 3]]).softmax(-1)
    assert patch_attention(weights.bfloat16(), 1).dtype == torch.float32
    assert patch_attention(weights.double(), 1).dtype == torch.float64
    rows = patch_attention(weights.bfloat16(), 1).sum(-1)
    torch.testing.assert_close(rows, torch.ones(1, 1, 2))


@pytest.mark.parametrize('shape', [(1, 3, 3), (3, 2, 2)])
def test_allowed_pairs_of_other_windows_are_refused(shape):
    with pytest.raises(ValueError, match=r'allowed pairs .* for attention \(4, 1, 2, 2\) with 0'):
        patch_attention(torch.rand(4, 1, 2, 2), 0, torch.ones(shape, dtype=torch.bool))
