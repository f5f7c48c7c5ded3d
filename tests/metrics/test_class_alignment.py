"""Cosine of patch tokens with the class token."""
import math

import pytest
import torch

from locat_mmseg.metrics import class_alignment


def test_typed_by_hand():
    """A class token, a register that does not count, and four patches."""
    tokens = torch.tensor([[[3., 0.], [5., 5.], [2., 0.], [-1., 0.], [0., 4.], [1., 1.]]])
    expected = torch.tensor([[1., -1., 0., 1 / math.sqrt(2)]])
    torch.testing.assert_close(class_alignment(tokens, 2), expected)
    torch.testing.assert_close(class_alignment(tokens.bfloat16(), 2), expected)


def test_without_class_token_refused():
    with pytest.raises(ValueError, match='num_prefix_tokens=0: the model has no class token'):
        class_alignment(torch.rand(1, 4, 2), 0)
