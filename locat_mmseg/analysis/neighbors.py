"""Exact nearest neighbours by inner product, by faiss where it is installed, else by torch.

Shape legend: Q queries, M stored keys, C channels, k neighbours.
"""
from collections.abc import Iterable
from importlib.util import find_spec

import torch
from torch import Tensor

TILE = 1024, 16384  # queries, keys: what one product holds at a time


def search_backend(device: torch.device | str) -> str:
    """'faiss' for tensors on the CPU if faiss is installed, else 'torch'."""
    on_cpu = torch.device(device).type == 'cpu'
    return 'faiss' if on_cpu and find_spec('faiss') is not None else 'torch'


def nearest_neighbors(queries: Tensor, blocks: Iterable[Tensor], k: int) -> tuple[Tensor, Tensor]:
    """The k keys of largest inner product with each query, best first.

    Args:
        queries: (Q, C).
        blocks: the keys (M, C), cut into consecutive blocks, which are neither joined nor copied.
        k: at most M.

    Returns:
        Similarities and positions among all keys, both (Q, k).

    Raises:
        ValueError: if there are fewer than k keys.
    """
    blocks = list(blocks)
    stored = sum(map(len, blocks))
    check_neighbors(k, stored)
    search = {'faiss': search_faiss, 'torch': search_torch}[search_backend(queries.device)]
    best = queries.new_empty(len(queries), 0)
    positions = torch.empty(len(queries), 0, dtype=torch.long, device=queries.device)
    start = 0
    for block in blocks:
        found, where = search(queries, block, min(k, len(block)))
        best, positions = keep_best(torch.cat([best, found.to(best)], dim=1),
                                    torch.cat([positions, where + start], dim=1), k)
        start += len(block)
    return best, positions


def check_neighbors(k: int, stored: int) -> None:
    """Refuse a number of neighbours that is not to be had.

    Raises:
        ValueError: naming how many features are stored.
    """
    if not stored:
        raise ValueError('no features are stored: give images with labels that are not all void')
    if not 1 <= k <= stored:
        raise ValueError(f'k={k} neighbours of {stored} stored features: k must be from 1 to '
                         f'{stored}; lower it, or store more')


def vote_weights(similarities: Tensor, temperature: float) -> Tensor:
    """Weights (Q, k) of neighbours, softmax(similarity / temperature).

    Raises:
        ValueError: if the temperature is not positive.
    """
    if not temperature > 0:  # nan is not, either
        raise ValueError(f'temperature={temperature}: expected a positive number')
    return (similarities / temperature).softmax(dim=1)


def search_faiss(queries: Tensor, keys: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """As `nearest_neighbors`, in one block, by faiss, which needs no index and no copy for it."""
    import faiss  # optional: pip install faiss-cpu
    similarities, positions = faiss.knn(queries.float().numpy(), keys.float().numpy(), k,
                                        metric=faiss.METRIC_INNER_PRODUCT)
    return torch.from_numpy(similarities), torch.from_numpy(positions)


def search_torch(queries: Tensor, keys: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """As `nearest_neighbors`, in one block, tile by tile: no (Q, M) matrix."""
    rows = [search_tiles(part, keys, k) for part in queries.split(TILE[0])]
    return torch.cat([row[0] for row in rows]), torch.cat([row[1] for row in rows])


def search_tiles(queries: Tensor, keys: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The best of the keys, a tile of them at a time."""
    best = queries.new_empty(len(queries), 0)
    positions = torch.empty(len(queries), 0, dtype=torch.long, device=queries.device)
    for number, tile in enumerate(keys.split(TILE[1])):
        where = torch.arange(len(tile), device=keys.device) + number * TILE[1]
        best, positions = keep_best(torch.cat([best, queries @ tile.T], dim=1),
                                    torch.cat([positions, where.expand(len(queries), -1)], dim=1),
                                    k)
    return best, positions


def keep_best(similarities: Tensor, positions: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest of each row, or all if there are fewer, with their positions."""
    best, columns = similarities.topk(min(k, similarities.shape[1]), dim=1)
    return best, positions.gather(1, columns)
