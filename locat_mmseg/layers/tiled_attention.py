"""Attention with a Gaussian on the CPU, a tile of the attention matrix at a time.

The N x N logits of a batch do not fit the processor's cache, those of a few heads do. Each tile is
computed, made a softmax, used and thrown away; the backward pass computes it again and reduces it
straight to the gradients of q, k, v and of the Gaussian's numbers. Exact, no approximation.

Three choices make it fast. A tile is stored keys first, so that the factors, which differ from
query to query, meet it along contiguous memory. Its numbers are logarithms to base 2, since torch
evaluates `exp2` in a third of the time of `exp`. And it is a custom operator, which `torch.compile`
takes whole instead of unrolling its loop.

Shape legend: B batch, H heads, N = P + n tokens, P prefix tokens, n = h*w patches, d head width,
G = B * H; a tile has g of the G heads and r of the N queries, r' of which are patches.
"""
import itertools
import math
from collections.abc import Iterator
from functools import lru_cache

import torch
from torch import Tensor
from torch.autograd import forward_ad

from .gaussian import LOG2_E, Gaussian, Grid, squared_offsets

# Of a block of queries, for each thread: 1 MiB of float32, about a second-level cache.
ELEMENTS_PER_THREAD = 2 ** 18
# Rows of a tile whose length is a multiple of this keep the matrix products at full speed.
ALIGNMENT = 32

Tile = tuple[slice, slice]


def tiled_attention(q: Tensor, k: Tensor, v: Tensor, gaussian: Gaussian,
                    mask: Tensor | None = None) -> Tensor:
    """``softmax(q k^T / sqrt(d) + S + mask) v``.

    Args:
        q, k, v: (B, H, N, d).
        gaussian: S, of the last n tokens.
        mask: broadcastable to (B, H, N, N); boolean (True keeps) or additive. It gets no gradient.

    Returns:
        (B, H, N, d).
    """
    if torch.is_autocast_enabled(q.device.type):  # as torch's own attention does
        q, k, v = (t.to(torch.get_autocast_dtype(q.device.type)) for t in (q, k, v))
    strength, precision, grid, max_offset = gaussian
    return _forward(q, k, v, strength, precision, *grid, max_offset, mask)[0]


def reason_against_tiled(q: Tensor, mask: Tensor | None, dropout_p: float) -> str | None:
    """Why `tiled_attention` cannot serve this input, or None if it can."""
    if is_forward_mode(q):
        return 'it has no forward-mode derivative'
    if dropout_p:
        return 'it computes each weight twice and has no dropout'
    if mask is not None and mask.requires_grad:
        return 'it gives a mask no gradient'
    return None


def is_forward_mode(q: Tensor) -> bool:
    """Whether a derivative is being computed along with the values."""
    return not torch.compiler.is_compiling() and forward_ad.unpack_dual(q).tangent is not None


def tiles(num_heads: int, num_tokens: int) -> Iterator[Tile]:
    """Cut (G, N, N) logits into (heads, queries): whole heads, at least one for each thread; where
    these are too large, a block of the queries of one head for each thread."""
    threads = torch.get_num_threads()
    elements, head = ELEMENTS_PER_THREAD * threads, num_tokens ** 2
    if threads * head <= 2 * elements:  # one whole head for each thread is worth twice the cache
        whole_heads = elements // 2 // head  # the backward pass holds three tiles at once
        heads = even_size(num_heads, whole_heads // threads * threads, threads)
        queries = num_tokens
    else:
        heads = min(num_heads, threads)
        queries = even_size(num_tokens, elements // (heads * num_tokens), ALIGNMENT)
    return itertools.product(parts(num_heads, heads), parts(num_tokens, queries))


def even_size(total: int, limit: int, multiple: int) -> int:
    """Size of equal parts of ``total``, about ``limit`` at most, rounded up to a multiple."""
    count = max(1, math.ceil(total / max(1, limit)))
    return max(1, min(total, multiple * math.ceil(total / count / multiple)))


def parts(total: int, size: int) -> list[slice]:
    """Cut range(total) into slices of a size, the last perhaps shorter."""
    return [slice(start, min(start + size, total)) for start in range(0, total, size)]


class TiledLogits:
    """The logits, as logarithms to base 2 of what the softmax sums; computed by the tile.

    Args:
        q, k: (B, H, N, d).
        gaussian: of the last n tokens.
        mask: broadcastable to (B, H, N, N), or None.
    """

    def __init__(self, q: Tensor, k: Tensor, gaussian: Gaussian, mask: Tensor | None) -> None:
        self.num_heads, self.num_tokens = q.shape[1:3]
        self.num_prefix_tokens = self.num_tokens - gaussian.num_patches
        self.scale = q.shape[3] ** -0.5
        self.q, self.k = q.flatten(0, 1), k.flatten(0, 1)
        self.mask = None if mask is None else mask.expand(*q.shape[:3], self.num_tokens)
        self.row_offsets, self.col_offsets = offsets_of_queries(
            gaussian.grid, gaussian.max_offset, gaussian.precision.dtype)
        strength, row_precision, col_precision = (
            t.flatten(0, 1).transpose(1, 2)
            for t in (gaussian.strength, *gaussian.precision.split(1, dim=-1)))
        # The factors of all queries, (G, h, n) and (G, w, n).
        self.rows = (strength - self.row_offsets * row_precision).exp2_()
        self.cols = (self.col_offsets * col_precision).neg_().exp2_()

    def tile(self, tile: Tile) -> Tensor:
        """A tile (g, N, r)."""
        logits = scaled_product(self.k[tile[0]], self.q[tile].transpose(1, 2), self.scale * LOG2_E)
        logits = logits.to(self.rows.dtype)
        rows, cols = self.factors(tile)
        between_patches(logits, rows, cols).addcmul_(rows, cols, value=LOG2_E)
        if self.mask is not None:
            self.add_mask(logits, tile)
        return logits

    def patch_queries(self, tile: Tile) -> slice:
        """The queries of a tile that are patches, counted in patches."""
        return slice(*(max(0, bound - self.num_prefix_tokens)
                       for bound in (tile[1].start, tile[1].stop)))

    def factors(self, tile: Tile) -> tuple[Tensor, Tensor]:
        """The factors of a tile, (g, h, 1, r') and (g, 1, w, r')."""
        patches = self.patch_queries(tile)
        return self.rows[tile[0], :, None, patches], self.cols[tile[0], None, :, patches]

    def factor_gradients(self, change: Tensor, tile: Tile, by_row: Tensor,
                         by_col: Tensor) -> None:
        """Write the gradients of a tile's factors, from those of its logits (g, N, r), into those
        of all factors, (G, h, n) and (G, w, n)."""
        rows, cols = self.factors(tile)
        between, patches = between_patches(change, rows, cols), self.patch_queries(tile)
        torch.sum(between * cols, 2, out=by_row[tile[0], :, patches])
        torch.sum(between * rows, 1, out=by_col[tile[0], :, patches])

    def gaussian_gradients(self, by_row: Tensor, by_col: Tensor) -> tuple[Tensor, Tensor]:
        """Gradients of the strength (G, n, 1) and of the precision (G, n, 2) from those of the
        factors, which are overwritten."""
        # What the exponents get.
        by_row.mul_(self.rows).mul_(math.log(2))
        by_col.mul_(self.cols).mul_(math.log(2))
        strength = by_row.sum(1)
        along_rows = by_row.mul_(self.row_offsets).sum(1)
        along_cols = by_col.mul_(self.col_offsets).sum(1)
        return strength[..., None], -torch.stack([along_rows, along_cols], dim=-1)

    def add_mask(self, logits: Tensor, tile: Tile) -> None:
        """Apply the mask to a tile, in place."""
        head = torch.arange(tile[0].start, tile[0].stop)
        mask = self.mask[head // self.num_heads, head % self.num_heads, tile[1]].transpose(1, 2)
        if mask.dtype == torch.bool:
            logits.masked_fill_(~mask, -torch.inf)
        else:
            # The lowest finite number stays one.
            lowest = torch.finfo(logits.dtype).min
            scaled = (mask.to(logits.dtype) * LOG2_E).clamp_(min=lowest)
            logits.add_(scaled.masked_fill_(mask == -torch.inf, -torch.inf))


@lru_cache(maxsize=16)
def offsets_of_queries(grid: Grid, max_offset: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """From each row (column) of keys to that of each query, (h, n) and (w, n); the same in all
    layers and steps."""
    rows, cols = (squared_offsets(side, max_offset, torch.empty(0, dtype=dtype)) for side in grid)
    return rows.repeat_interleave(grid[1], dim=1), cols.repeat(1, grid[0])


def between_patches(tile: Tensor, rows: Tensor, cols: Tensor) -> Tensor:
    """The part (g, h, w, r') of a tile (g, N, r) that has a Gaussian."""
    height, width, num_queries = rows.shape[1], *cols.shape[2:]
    return tile[:, tile.shape[1] - height * width:,
                tile.shape[2] - num_queries:].unflatten(1, (height, width))


def scaled_product(a: Tensor, b: Tensor, scale: float) -> Tensor:
    """Batched ``scale * a @ b``, the factor applied inside the product."""
    return torch.baddbmm(a.new_empty(1), a, b, beta=0, alpha=scale)


@torch.library.custom_op('locat_mmseg::tiled_attention', mutates_args=())
def _forward(q: Tensor, k: Tensor, v: Tensor, strength: Tensor, precision: Tensor, height: int,
             width: int, max_offset: float,
             mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Attention (B, H, N, d); per query the largest logit (G, 1, N) and the softmax's sum with it
    subtracted. Not one logarithm of the sum: beside a large logit it would be rounded away."""
    # What stays is allocated before what is freed, or the heap keeps a hole below it.
    out, largest, sums = _outputs(q, k, v, strength, precision, height, width, max_offset, mask)
    gaussian = Gaussian(strength, precision, (height, width), max_offset)
    logits, values = TiledLogits(q, k, gaussian, mask), v.flatten(0, 1)
    flat_out = torch.empty_like(values)
    finfo = torch.finfo(sums.dtype)
    for tile in tiles(*values.shape[:2]):
        heads, queries = tile
        weights, shift = logits.tile(tile), largest[heads, :, queries]
        torch.amax(weights, 1, keepdim=True, out=shift)
        weights.sub_(shift.clamp_(min=finfo.min)).exp2_()
        torch.sum(weights, 1, keepdim=True, out=sums[heads, :, queries])
        flat_out[tile] = torch.bmm(weights.to(v.dtype).transpose(1, 2), values[heads])
    # A query whose keys are all masked gets weights of 0, not 0 / 0.
    sums.clamp_(min=finfo.tiny)
    torch.div(flat_out.view(v.shape), sums.view(*v.shape[:3], 1), out=out)
    return out, largest, sums


@_forward.register_fake
def _outputs(q, k, v, strength, precision, height, width, max_offset, mask):
    batch, num_heads, num_tokens = v.shape[:3]
    # Tokens before heads in memory: to concatenate the heads later moves nothing.
    out = torch.empty_permuted(v.shape, (0, 2, 1, 3), dtype=v.dtype, device=v.device)
    return out, *(strength.new_empty(batch * num_heads, 1, num_tokens) for _ in range(2))


@torch.library.custom_op('locat_mmseg::tiled_attention_backward', mutates_args=())
def _backward(grad: Tensor, q: Tensor, k: Tensor, v: Tensor, strength: Tensor, precision: Tensor,
              height: int, width: int, max_offset: float, mask: Tensor | None, out: Tensor,
              largest: Tensor, sums: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of q, k, v, strength and precision."""
    gradients = _gradients(grad, q, k, v, strength, precision, height, width, max_offset, mask,
                           out, largest, sums)
    logits = TiledLogits(q, k, Gaussian(strength, precision, (height, width), max_offset), mask)
    # The softmax's division by the sums, done once for each query.
    grad_out, values = (grad.flatten(0, 1) / sums.transpose(1, 2)).to(v.dtype), v.flatten(0, 1)
    grad_q, grad_k, grad_v = (t.flatten(0, 1) for t in gradients[:3])
    # Per query, the mean of the weights' gradient under the weights.
    mean = (grad * out).sum(-1, dtype=strength.dtype).view_as(sums) / sums
    by_row, by_col = torch.empty_like(logits.rows), torch.empty_like(logits.cols)
    for tile in tiles(*values.shape[:2]):
        heads, queries = tile
        # Sums over the queries: a head's first block overwrites what was in memory.
        beta = 0 if queries.start == 0 else 1
        weights = logits.tile(tile).sub_(largest[heads, :, queries]).exp2_()
        grad_v[heads].baddbmm_(weights.to(v.dtype), grad_out[tile], beta=beta)
        change = torch.bmm(values[heads], grad_out[tile].transpose(1, 2)).to(strength.dtype)
        change.sub_(mean[heads, :, queries]).mul_(weights)
        del weights  # as large as a tile
        logits.factor_gradients(change, tile, by_row, by_col)
        change = change.to(q.dtype)
        grad_q[tile] = scaled_product(change.transpose(1, 2), logits.k[heads], logits.scale)
        grad_k[heads].baddbmm_(change, logits.q[tile], beta=beta, alpha=logits.scale)
    for gradient, value in zip(gradients[3:], logits.gaussian_gradients(by_row, by_col)):
        gradient.copy_(value.view_as(gradient))
    return gradients


@_backward.register_fake
def _gradients(grad, q, k, v, strength, precision, height, width, max_offset, mask, out, largest,
               sums):
    return tuple(torch.empty_like(t, memory_format=torch.contiguous_format)
                 for t in (q, k, v, strength, precision))


def _setup_context(ctx, inputs, output):
    *tensors, height, width, max_offset, mask = inputs
    ctx.numbers = height, width, max_offset
    ctx.save_for_backward(*tensors, mask, *output)


def _autograd(ctx, grad, *_):
    *tensors, mask, out, largest, sums = ctx.saved_tensors
    gradients = _backward(grad, *tensors, *ctx.numbers, mask, out, largest, sums)
    return *gradients, None, None, None, None


_forward.register_autograd(_autograd, setup_context=_setup_context)
