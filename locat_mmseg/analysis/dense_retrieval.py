"""Dense retrieval: segmentation of patches by their nearest labelled patches, nothing trained.

The "Hummingbird" evaluation (arXiv 2306.01667) of a frozen backbone, as LocAtViT uses it (arXiv
2603.04892). Void pixels are left out here, of memory and score; the authors' evaluation counts them
as class 0 in the memory.

Shape legend: C channels, h*w patches, n patches in a row, H*W pixels, K classes, Q queries.
"""
import math
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from ..layers import Grid
from .neighbors import nearest_neighbors, vote_weights

BLOCK = 16384  # rows that the memory allocates at a time
QUERIES = 512  # patches that are looked up at a time


class PatchMemory:
    """Features of labelled patches: unit vectors, each with the class shares of its patch.

    Grows block by block, so that nothing is allocated that is not to be filled, and never beyond
    ``max_rows``.

    Args:
        num_classes: K.
        max_rows: the most patches to hold; None: no bound.
    """

    def __init__(self, num_classes: int, max_rows: int | None = None) -> None:
        self.num_classes = num_classes
        self.max_rows = max_rows
        self._keys: list[Tensor] = []
        self._shares: list[Tensor] = []
        self._rows = 0

    def __len__(self) -> int:
        return self._rows

    @property
    def num_bytes(self) -> int:
        """Memory that the stored patches take, free rows of the last block included."""
        return sum(t.numel() * t.element_size() for t in (*self._keys, *self._shares))

    def add(self, features: Tensor, shares: Tensor) -> None:
        """Store features (n, C), normalised here, with class shares (n, K).

        Raises:
            ValueError: if they would exceed the bound.
        """
        if self.max_rows is not None and self._rows + len(features) > self.max_rows:
            raise ValueError(f'{len(features)} patches more than the {self._rows} stored exceed '
                             f'max_rows={self.max_rows}')
        features = F.normalize(features, dim=1)
        while len(features):
            if self._rows == sum(map(len, self._keys)):
                self._allocate(features)
            start = self._rows - sum(map(len, self._keys[:-1]))
            count = min(len(features), len(self._keys[-1]) - start)
            self._keys[-1][start:start + count] = features[:count]
            self._shares[-1][start:start + count] = shares[:count]
            self._rows += count
            features, shares = features[count:], shares[count:]

    def _allocate(self, like: Tensor) -> None:
        rows = BLOCK if self.max_rows is None else min(BLOCK, self.max_rows - self._rows)
        self._keys.append(like.new_empty(rows, like.shape[1]))
        self._shares.append(like.new_empty(rows, self.num_classes))

    def _blocks(self) -> Iterator[Tensor]:
        """The stored keys, without free rows."""
        left = self._rows
        for keys in self._keys:
            yield keys[:left]
            left -= len(keys)

    def lookup(self, features: Tensor, k: int = 30, temperature: float = 0.02) -> Tensor:
        """Class shares (Q, K) of patches by their nearest stored ones.

        Args:
            features: (Q, C).
            k: neighbours, weighted by softmax(cosine / temperature).
            temperature: of the weights.

        Raises:
            ValueError: if fewer than k patches are stored, or the temperature is not positive.
        """
        parts = []
        for queries in F.normalize(features, dim=1).split(QUERIES):
            similarities, positions = nearest_neighbors(queries, self._blocks(), k)
            weights = vote_weights(similarities, temperature)
            parts.append(torch.einsum('qk,qkc->qc', weights, self._shares_at(positions)))
        return torch.cat(parts)

    def _shares_at(self, positions: Tensor) -> Tensor:
        """Shares (Q, k, K) of stored patches by position; all blocks but the last are full."""
        shares = self._shares[0].new_empty(*positions.shape, self.num_classes)
        start = 0
        for block in self._shares:
            here = (start <= positions) & (positions < start + len(block))
            shares[here] = block[positions[here] - start]
            start += len(block)
        return shares


def patch_class_shares(labels: Tensor, stride: int, num_classes: int,
                       ignore_index: int = 255) -> Tensor:
    """Class shares of the labelled pixels of each patch.

    Args:
        labels: (H, W), of any size: patches that reach beyond it are void there.
        stride: side of a patch in pixels.
        num_classes: K.
        ignore_index: label of void pixels.

    Returns:
        (h, w, K); a patch's shares sum to 1, or to 0 if all of it is void.

    Raises:
        ValueError: if a label is neither a class nor void.
    """
    known = labels != ignore_index
    if wrong := labels[known & ((labels < 0) | (labels >= num_classes))].unique().tolist():
        raise ValueError(f'labels {wrong} in a label map: expected 0 to {num_classes - 1} for '
                         f'{num_classes} classes, or {ignore_index} for void')
    height, width = (math.ceil(size / stride) for size in labels.shape)
    rows, columns = (torch.arange(size, device=labels.device) // stride for size in labels.shape)
    patches = rows[:, None] * width + columns
    cells = patches[known] * num_classes + labels[known]
    counts = cells.bincount(minlength=height * width * num_classes)
    counts = counts.view(height, width, num_classes)
    return counts / counts.sum(dim=-1, keepdim=True).clamp(min=1)


def sample_patches(shares: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Indices of at most ``count`` patches of an image, preferring those of its rare classes.

    A patch scores the sum, over the classes present in it, of the number of patches in the image
    with that class, times a random number from 0 to 1; the lowest are taken.

    Args:
        shares: (n, K).
        count: patches to take.
        generator: on the CPU.
    """
    present = (shares > 0).float()
    scores = present @ present.sum(dim=0)
    scores = scores * torch.rand(len(shares), generator=generator).to(scores.device)
    return scores.topk(min(count, len(shares)), largest=False).indices


class DenseRetrieval:
    """Fill a memory from labelled images, then segment others by it.

    Args:
        num_classes: K.
        num_images: images that will be memorised; sets each one's part of a bounded memory.
        memory_size: the most patches to hold; None: all of them.
        ignore_index: label of void pixels.
        seed: of the choice of patches.

    Raises:
        ValueError: if the memory has no room for one patch of each image.
    """

    def __init__(self, num_classes: int, num_images: int, memory_size: int | None = None,
                 ignore_index: int = 255, seed: int = 0) -> None:
        if memory_size is not None and memory_size < num_images:
            raise ValueError(f'memory_size={memory_size} holds less than one patch of each of '
                             f'{num_images} images: raise it, or memorise fewer images')
        self.memory = PatchMemory(num_classes, memory_size)
        self.patches_per_image = None if memory_size is None else memory_size // num_images
        self.ignore_index = ignore_index
        self._generator = torch.Generator().manual_seed(seed)

    def memorize(self, features: Tensor, labels: Tensor, stride: int) -> None:
        """Store patches of one image, but for those that are all void.

        Args:
            features: (C, h, w), of which each cell stands for ``stride`` x ``stride`` pixels.
            labels: (H, W), at the size of the image that the features are of.
            stride: in pixels.

        Raises:
            ValueError: if features and labels do not cover the same image, or a label is unknown.
        """
        grid = tuple(features.shape[1:])
        check_cover(grid, tuple(labels.shape), stride)
        shares = patch_class_shares(labels, stride, self.memory.num_classes, self.ignore_index)
        shares, keys = shares.flatten(0, 1), features.flatten(1).T
        known = shares.sum(dim=1) > 0
        shares, keys = shares[known], keys[known]
        if self.patches_per_image is not None:
            chosen = sample_patches(shares, self.patches_per_image, self._generator)
            shares, keys = shares[chosen], keys[chosen]
        self.memory.add(keys, shares)

    def segment(self, features: Tensor, image_size: Grid, stride: int,
                out_size: Grid | None = None, k: int = 30, temperature: float = 0.02) -> Tensor:
        """The label map of one image: class shares of its patches, enlarged bilinearly, at their
        largest.

        Args:
            features: (C, h, w).
            image_size: (H, W) of the image without the padding to whole patches.
            stride: in pixels.
            out_size: (height, width) of the label map; by default ``image_size``.
            k, temperature: as in `PatchMemory.lookup`.

        Raises:
            ValueError: if the features do not cover such an image, or the memory is too small.
        """
        height, width = features.shape[1:]
        check_cover((height, width), tuple(image_size), stride)
        shares = self.memory.lookup(features.flatten(1).T, k, temperature)
        maps = shares.T.reshape(1, -1, height, width)
        padded = height * stride, width * stride
        if padded != tuple(image_size):
            maps = F.interpolate(maps, size=padded, mode='bilinear')
            maps = maps[..., :image_size[0], :image_size[1]]
        maps = F.interpolate(maps, size=tuple(out_size or image_size), mode='bilinear')
        return maps[0].argmax(dim=0)


def check_cover(grid: Grid, size: Grid, stride: int) -> None:
    """Refuse a grid of patches that does not just cover an image.

    Raises:
        ValueError: naming both.
    """
    expected = tuple(math.ceil(side / stride) for side in size)
    if tuple(grid) != expected:
        raise ValueError(f'features of {grid[0]} x {grid[1]} cells do not cover an image of '
                         f'{size[0]} x {size[1]} pixels at {stride} pixels a cell: expected '
                         f'{expected[0]} x {expected[1]}')
