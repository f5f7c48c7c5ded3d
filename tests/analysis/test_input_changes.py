"""Shuffled, shifted and rotated pictures by hand, on sizes that are odd."""
import math

import pytest
import torch

from locat_mmseg.analysis.input_changes import (CHANGES, make_change, make_changes, rotate,
                                                shift, shuffle_patches)


def test_patches_are_moved_whole_and_the_rest_stays():
    pictures = torch.arange(2 * 3 * 7 * 11, dtype=torch.float32).view(2, 3, 7, 11)
    changed = shuffle_patches(pictures, 3, seed=1)

    def patches(x):
        return [x[..., 3 * row:3 * row + 3, 3 * column:3 * column + 3]
                for row in range(2) for column in range(3)]

    before = patches(pictures)
    order = [next(i for i, old in enumerate(before) if torch.equal(old, new))
             for new in patches(changed)]
    assert sorted(order) == list(range(6)) and order != list(range(6))
    assert torch.equal(changed[..., 6:, :], pictures[..., 6:, :])
    assert torch.equal(changed[..., 9:], pictures[..., 9:])


def test_the_order_depends_on_the_seed_alone():
    pictures = torch.rand(3, 3, 16, 24)
    first = shuffle_patches(pictures, 4, seed=5)
    assert torch.equal(first[2:], shuffle_patches(pictures[2:], 4, seed=5))
    assert not torch.equal(first, shuffle_patches(pictures, 4, seed=6))


def test_shift_by_hand():
    picture = torch.tensor([[1, 2, 3], [4, 5, 6]])
    assert shift(picture, 1).tolist() == [[6, 4, 5], [3, 1, 2]]
    assert torch.equal(shift(picture, 0), picture)


def test_quarter_turns_and_the_black_around():
    pictures = torch.rand(2, 3, 9, 9)
    torch.testing.assert_close(rotate(pictures, 90), pictures.rot90(1, (-2, -1)))
    turned = rotate(torch.ones(1, 3, 9, 15), 90)
    assert not turned[..., :2].any() and turned[..., 4, 7].all()  # 9 columns are left of 15


def test_label_maps_move_with_their_pictures():
    torch.manual_seed(0)
    labels = torch.randint(5, (2, 8, 12))
    pictures = labels[:, None].repeat(1, 3, 1, 1).float() / 4
    for kind, value in (('shuffle', 4), ('shift', 3), ('rotate', 180)):
        change = make_change(kind, value, seed=2)
        moved = change.labels(labels, 255)
        torch.testing.assert_close(change.pictures(pictures)[:, 0] * 4, moved.float())
        assert not torch.equal(moved, labels)
    assert (make_change('rotate', 45).labels(labels, 9)[:, 0, 0] == 9).all()
    assert make_change('low_pass', 0.5).labels is None


def test_every_kind_can_be_made():
    pictures = torch.rand(1, 3, 17, 23)
    for kind in CHANGES:
        change, = make_changes(kind, [4])
        result = change.pictures(pictures)
        assert (change.kind, change.value) == (kind, 4) and result.shape == pictures.shape
        assert 0 <= result.min() and result.max() <= 1


def test_errors():
    with pytest.raises(ValueError, match="change 'blur': expected one of low_pass, high_pass"):
        make_change('blur', 1)
    with pytest.raises(ValueError, match='shift 0.5: expected a whole number of pixels'):
        make_change('shift', 0.5)
    for kind, value in (('shift', math.inf), ('shuffle', math.nan), ('rotate', math.nan)):
        with pytest.raises(ValueError, match=f'{kind} {value}: expected a finite number'):
            make_change(kind, value)
    for patch in (0, 9):
        with pytest.raises(ValueError, match=f'patches of {patch} pixels in pictures of 16 x 16'):
            shuffle_patches(torch.rand(3, 16, 16), patch)
