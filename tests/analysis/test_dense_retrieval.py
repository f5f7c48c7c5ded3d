"""Dense retrieval against a brute-force twin that goes pixel by pixel and patch by patch."""
import math

import numpy as np
import pytest
import torch
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from locat_mmseg.analysis import dense_retrieval, neighbors
from locat_mmseg.analysis.dense_retrieval import (DenseRetrieval, PatchMemory, patch_class_shares,
                                                  sample_patches)

VOID, CLASSES, STRIDE = 255, 3, 4
SIZES = [(12, 20), (13, 9), (8, 8), (5, 17)]  # (height, width), whole patches or not


def pictures(sizes=SIZES, seed=0):
    """Features (C, h, w) and labels (H, W) with void, of several sizes."""
    generator = torch.Generator().manual_seed(seed)
    for height, width in sizes:
        grid = math.ceil(height / STRIDE), math.ceil(width / STRIDE)
        labels = torch.randint(CLASSES + 1, (height, width), generator=generator)
        labels[:4, :4] = CLASSES  # a whole patch of void
        yield (torch.randn(6, *grid, generator=generator), labels.where(labels < CLASSES, VOID))


def brute_shares(labels):
    """(h, w, K), a pixel at a time."""
    height, width = labels.shape
    shares = np.zeros((math.ceil(height / STRIDE), math.ceil(width / STRIDE), CLASSES))
    for y in range(height):
        for x in range(width):
            if labels[y, x] != VOID:
                shares[y // STRIDE, x // STRIDE, labels[y, x]] += 1
    return shares / np.maximum(shares.sum(-1, keepdims=True), 1)


def brute_lookup(query, keys, shares, k, temperature):
    """The class shares of one patch."""
    cosines = [key @ query / np.linalg.norm(key) / np.linalg.norm(query) for key in keys]
    best = sorted(range(len(keys)), key=lambda i: -cosines[i])[:k]
    weights = np.exp([cosines[i] / temperature for i in best])
    return sum(w * shares[i] for w, i in zip(weights, best)) / weights.sum()


def brute_segment(memorised, features, size, out_size, k=5, temperature=.1):
    keys, shares = [], []
    for picture, labels in memorised:
        all_shares = brute_shares(labels.numpy())
        for y, x in np.ndindex(*picture.shape[1:]):
            if all_shares[y, x].sum() > 0:
                keys.append(picture[:, y, x].double().numpy())
                shares.append(all_shares[y, x])
    grid = features.shape[1:]
    maps = np.zeros((CLASSES, *grid))
    for y, x in np.ndindex(*grid):
        maps[:, y, x] = brute_lookup(features[:, y, x].double().numpy(), keys, shares, k,
                                     temperature)
    scores = torch.from_numpy(maps)[None]
    if tuple(side * STRIDE for side in grid) != size:  # padded to whole patches
        scores = F.interpolate(scores, scale_factor=STRIDE, mode='bilinear')
        scores = scores[..., :size[0], :size[1]]
    return F.interpolate(scores, size=out_size, mode='bilinear')[0]


@pytest.mark.parametrize('faiss', [True, False], ids=['faiss', 'torch'])
@pytest.mark.parametrize('out_size', [None, (31, 22)], ids=str)
def test_as_brute_force(monkeypatch, faiss, out_size):
    monkeypatch.setattr(dense_retrieval, 'BLOCK', 7)
    monkeypatch.setattr(dense_retrieval, 'QUERIES', 4)
    if not faiss:
        monkeypatch.setattr(neighbors, 'find_spec', lambda name: None)
    retrieval = DenseRetrieval(CLASSES, num_images=4, ignore_index=VOID)
    for features, labels in pictures():
        retrieval.memorize(features, labels, STRIDE)
    for features, labels in pictures(seed=1):
        size = tuple(labels.shape)
        expected = brute_segment(list(pictures()), features, size, out_size or size)
        best, second = expected.topk(2, dim=0).values
        sure = best - second > 1e-4  # a tie may fall either way
        found = retrieval.segment(features, size, STRIDE, out_size, k=5, temperature=.1)
        assert found.shape == sure.shape
        assert sure.double().mean() > .95
        assert torch.equal(found[sure], expected.argmax(dim=0)[sure])


@pytest.mark.parametrize('size', SIZES, ids=str)
def test_shares_pixel_by_pixel(size):
    (_, labels), = pictures([size])
    shares = patch_class_shares(labels, STRIDE, CLASSES, VOID)
    np.testing.assert_allclose(shares, brute_shares(labels.numpy()), rtol=1e-6)
    assert shares[0, 0].sum() == 0
    assert set(shares.sum(-1).round(decimals=5).unique().tolist()) == {0., 1.}


def test_shares_by_hand():
    labels = torch.tensor([[0, 0, 2, 2, 255],
                           [1, 255, 255, 255, 255]])
    expected = [[[2 / 3, 1 / 3, 0], [0, 0, 1], [0, 0, 0]]]
    np.testing.assert_allclose(patch_class_shares(labels, 2, 3), expected, rtol=1e-6)


def test_another_void_label():
    labels = torch.tensor([[0, 1], [2, 2]])
    np.testing.assert_allclose(patch_class_shares(labels, 2, 2, ignore_index=2), [[[.5, .5]]])


@pytest.mark.parametrize('wrong', [3, -1, 200])
def test_unknown_label(wrong):
    labels = torch.tensor([[0, 255], [wrong, 1]])
    with pytest.raises(ValueError, match=rf'labels \[{wrong}\] in a label map: expected 0 to 2'):
        patch_class_shares(labels, 2, 3)


# ---- the bound of the memory ----

def rows_of(memory):
    return [key for block in memory._keys for key in block]


@pytest.mark.parametrize('memory_size', [4, 10, 11, 1000])
@pytest.mark.parametrize('block', [16384, 3])
def test_a_bounded_memory_holds_no_more(monkeypatch, memory_size, block):
    monkeypatch.setattr(dense_retrieval, 'BLOCK', block)
    retrieval = DenseRetrieval(CLASSES, 4, memory_size, VOID)
    known = []
    for features, labels in pictures():
        before = len(retrieval.memory)
        retrieval.memorize(features, labels, STRIDE)
        known.append(int((patch_class_shares(labels, STRIDE, CLASSES).sum(-1) > 0).sum()))
        assert len(retrieval.memory) - before == min(memory_size // 4, known[-1])
    assert len(retrieval.memory) <= len(rows_of(retrieval.memory)) <= memory_size
    assert retrieval.memory.num_bytes <= memory_size * (6 + CLASSES) * 4
    if memory_size == 1000:
        assert len(retrieval.memory) == sum(known)


def test_memory_grows_linearly(monkeypatch):
    """Free rows are always less than a block, whatever is stored."""
    monkeypatch.setattr(dense_retrieval, 'BLOCK', 8)
    memory = PatchMemory(CLASSES)
    for count in range(1, 60):
        memory.add(torch.randn(5, 6), torch.rand(5, CLASSES))
        assert len(memory) == 5 * count
        assert 5 * count <= len(rows_of(memory)) < 5 * count + 8
        assert memory.num_bytes == len(rows_of(memory)) * (6 + CLASSES) * 4


def test_a_full_memory_refuses_more():
    memory = PatchMemory(CLASSES, max_rows=7)
    memory.add(torch.randn(5, 6), torch.rand(5, CLASSES))
    with pytest.raises(ValueError, match='3 patches more than the 5 stored exceed max_rows=7'):
        memory.add(torch.randn(3, 6), torch.rand(3, CLASSES))
    assert len(memory) == 5


class Largest(TorchDispatchMode):
    """Notes the largest tensor that any operation makes, views left out."""

    def __init__(self):
        super().__init__()
        self.numel = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if not func.is_view:
            for tensor in out if isinstance(out, (tuple, list)) else [out]:
                if isinstance(tensor, torch.Tensor):
                    self.numel = max(self.numel, tensor.numel())
        return out


def test_no_tensor_grows_with_the_memory(monkeypatch):
    """Neither storing nor looking up makes a tensor larger than a tile, a block or an image."""
    monkeypatch.setattr(neighbors, 'find_spec', lambda name: None)
    monkeypatch.setattr(neighbors, 'TILE', (8, 16))
    monkeypatch.setattr(dense_retrieval, 'BLOCK', 32)
    monkeypatch.setattr(dense_retrieval, 'QUERIES', 8)
    peaks = []
    for count in (4, 40):
        retrieval = DenseRetrieval(CLASSES, count, 12 * count, VOID)
        (features, labels), = pictures([(12, 20)])
        with Largest() as largest:
            for _ in range(count):
                retrieval.memorize(features, labels, STRIDE)
            retrieval.segment(features, (12, 20), STRIDE)
        assert len(retrieval.memory) == 12 * count
        peaks.append(largest.numel)
    assert peaks[0] == peaks[1] < 12 * 40 * 6


def test_one_patch_of_each_image_at_least():
    with pytest.raises(ValueError, match='memory_size=3 holds less than one patch of each of 4'):
        DenseRetrieval(CLASSES, 4, memory_size=3)


def test_the_seed_chooses_the_patches():
    def stored(seed):
        retrieval = DenseRetrieval(CLASSES, 4, 20, VOID, seed)
        for features, labels in pictures():
            retrieval.memorize(features, labels, STRIDE)
        return torch.cat(list(retrieval.memory._blocks()))

    assert torch.equal(stored(0), stored(0))
    assert not torch.equal(stored(0), stored(1))


# ---- the choice of patches ----

def test_scores_by_hand(monkeypatch):
    """Class 0 is in 3 patches, class 1 in 2, class 2 in 1; the random factor is fixed."""
    shares = torch.tensor([[1., 0, 0], [.5, .5, 0], [.9, .1, 0], [0, 0, 1.]])
    monkeypatch.setattr(torch, 'rand', lambda n, generator: torch.tensor([.9, .5, .7, .99]))
    # 3 * .9, (3 + 2) * .5, (3 + 2) * .7, 1 * .99
    assert sample_patches(shares, 3, None).tolist() == [3, 1, 0]


def test_rare_classes_are_preferred():
    shares = torch.zeros(40, 2)
    shares[:36, 0] = 1
    shares[36:, 1] = 1
    generator = torch.Generator().manual_seed(0)
    chosen = torch.cat([sample_patches(shares, 4, generator) for _ in range(50)])
    assert (chosen >= 36).double().mean() > .4  # of all patches they are a tenth


def test_fewer_patches_than_asked_for():
    assert sample_patches(torch.eye(3), 5, torch.Generator()).sort().values.tolist() == [0, 1, 2]


# ---- mistakes ----

def test_too_many_neighbours():
    retrieval = DenseRetrieval(CLASSES, 1, ignore_index=VOID)
    (features, labels), = pictures([(8, 8)])
    retrieval.memorize(features, labels, STRIDE)
    with pytest.raises(ValueError, match='k=30 neighbours of 3 stored features'):
        retrieval.segment(features, (8, 8), STRIDE)


def test_features_of_another_image():
    retrieval = DenseRetrieval(CLASSES, 1)
    with pytest.raises(ValueError, match='features of 2 x 3 cells do not cover an image of 8 x 8 '
                                         'pixels at 4 pixels a cell: expected 2 x 2'):
        retrieval.memorize(torch.randn(6, 2, 3), torch.zeros(8, 8, dtype=torch.long), STRIDE)
