"""Normalised entropy: known answers."""
import math

import pytest
import torch

from locat_mmseg.metrics import attention_entropy


def test_one_patch_is_zero_and_uniform_is_one():
    assert torch.equal(attention_entropy(torch.eye(64)[None, None]), torch.zeros(1, 1, 64))
    torch.testing.assert_close(attention_entropy(torch.full((1, 2, 64, 64), 1 / 64)),
                               torch.ones(1, 2, 64))


def test_typed_by_hand():
    """Six keys: two alike, one, three alike, and 1/2, 1/4, 1/4."""
    attention = torch.tensor([[.5, .5, 0, 0, 0, 0], [0, 0, 0, 1., 0, 0],
                              [0, 1 / 3, 0, 1 / 3, 0, 1 / 3], [.5, 0, .25, 0, .25, 0]])
    expected = torch.tensor([math.log(2), 0., math.log(3), 1.5 * math.log(2)]) / math.log(6)
    torch.testing.assert_close(attention_entropy(attention[None, None])[0, 0], expected)


def test_windows_count_the_allowed_keys():
    """Uniform over what is allowed is 1; a single key leaves nothing to spread."""
    allowed = torch.tensor([[[True, True, True]] * 3,
                            [[True, True, False], [True, True, False], [False, False, True]]])
    attention = torch.tensor([[[1 / 3] * 3] * 3,
                              [[.5, .5, 0], [.9, .1, 0], [0, 0, 1]]])
    uneven = -(0.9 * math.log(0.9) + 0.1 * math.log(0.1)) / math.log(2)
    expected = torch.tensor([[1., 1, 1], [1, uneven, torch.nan]])
    actual = attention_entropy(attention.repeat(2, 1, 1)[:, None], allowed)
    torch.testing.assert_close(actual[:, 0], expected.repeat(2, 1), equal_nan=True)


@pytest.mark.parametrize('size', [2, 7])
def test_nan_stays_nan(size):
    assert attention_entropy(torch.full((1, 1, size, size), torch.nan)).isnan().all()
