"""Loading a state dict into a timm model, converted or not, without losing a tensor in silence."""
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field
from math import isqrt

from timm.layers import resample_abs_pos_embed, resize_rel_pos_bias_table
from timm.models import adapt_input_conv
from torch import Tensor, nn

from ..layers import GaussianAugment, Grid
from .foreign_weights import StateDict
from .jumbo import merge_wide_mlp

# What files hold beside weights: indices that follow from the sizes, the token of masked training.
NO_WEIGHTS = ('relative_position_index', 'attn_mask', 'mask_token')
PATCH_EMBED = 'patch_embed.proj.weight'
COUNTER = 'num_batches_tracked'  # of BatchNorm, which evaluation does not read; old files lack it


@dataclass
class LoadReport:
    """What became of each tensor of a file and of each parameter of a model."""
    loaded: int = 0
    resampled: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    unused: list[str] = field(default_factory=list)
    note: str = ''

    def __str__(self) -> str:
        resampled, missing, unexpected, unused = (
            ', '.join(items) or 'none'
            for items in (self.resampled, self.missing, self.unexpected, self.unused))
        return (f'loaded: {self.loaded} tensors; resampled: {resampled}; '
                f'missing (allowed, stay as initialised): {missing}; unexpected: {unexpected}; '
                f'not used: {unused}{"; " + self.note if self.note else ""}')


def load_weights(model: nn.Module, state_dict: StateDict, may_leave: Container[str] = (),
                 strict: bool = True) -> LoadReport:
    """Load ``state_dict`` (timm's parameter names, GAug's as ``...attn.gaug.*``) into ``model``.

    Only this may differ: GAug parameters may be missing if the file has none at all (a plain
    model's weights); position embeddings and relative-position tables of another size are
    resampled, unless the file holds GAug parameters, whose meaning depends on the grid; and a patch
    embedding for three channels is adapted to another number.

    Args:
        model: of timm; resampled are those of a ViT, Eva or Swin.
        state_dict: its weights; not modified.
        may_leave: names that the file may hold without a place in the model.
        strict: False lets any tensor be missing or unexpected, as long as one fits.

    Returns:
        What was loaded, resampled, missing and left.

    Raises:
        ValueError: if a tensor is missing, unexpected or of another shape, or if GAug's parameters
            come from another grid.
    """
    target = model.state_dict()
    state_dict = merge_wide_mlp(state_dict)
    has_gaug = any('.gaug.' in name for name in state_dict)
    left = sorted(state_dict.keys() - target.keys())
    report = LoadReport(missing=sorted(target.keys() - state_dict.keys()),
                        unused=[n for n in left if n in may_leave or n.endswith(NO_WEIGHTS)])
    report.unexpected = [name for name in left if name not in report.unused]
    lacking = [name for name in report.missing if not name.endswith(COUNTER)
               and (has_gaug or '.gaug.' not in name)]
    if strict and (report.unexpected or lacking) or not target.keys() & state_dict.keys():
        raise ValueError(
            f'these weights are not of this {type(model).__name__}. '
            f'In the file but not in the model: {names(report.unexpected)}. '
            f'In the model but not in the file: {names(lacking)}. Build the model with the options '
            'that the weights were trained with, name another file, or load what fits on purpose '
            'with strict=False')
    weights = {name: state_dict[name] for name in target.keys() & state_dict.keys()}
    check_patch_size(target, weights)
    if has_gaug and any(isinstance(module, GaussianAugment) for module in model.modules()):
        report.note = check_gaug_grid(model, state_dict)
    for name in sorted(weights):
        if weights[name].shape != target[name].shape:
            if has_gaug and 'relative_position_bias_table' in name:
                raise ValueError(f'{name} is of another window: the file has '
                                 f'{len(weights[name])} offsets, the model {len(target[name])}; '
                                 'weights with GAug fit only the window they were trained with')
            before = tuple(weights[name].shape)
            weights[name] = resample(model, name, weights[name], target[name])
            report.resampled.append(f'{name} {before} -> {tuple(target[name].shape)}')
    model.load_state_dict(weights, strict=False)
    report.loaded = len(weights)
    return report


def resample(model: nn.Module, name: str, source: Tensor, target: Tensor) -> Tensor:
    """Resample a position embedding, relative-position table or the channels of a patch embedding
    to the shape of ``target``.

    Raises:
        ValueError: if ``name`` is none of them, or the shapes differ in more than that.
    """
    if name == 'pos_embed' and source.shape[-1] == target.shape[-1] and \
            hasattr(model, 'no_embed_class'):
        prefix = num_embedded_prefix_tokens(model)
        return resample_abs_pos_embed(source, new_size=model.patch_embed.grid_size,
                                      old_size=square_grid(source, prefix),
                                      num_prefix_tokens=prefix)
    if name.endswith('relative_position_bias_table') and source.shape[1] == target.shape[1]:
        layer = model.get_submodule(name.rpartition('.')[0])
        return resize_rel_pos_bias_table(source, new_window_size=layer.window_size,
                                         new_bias_shape=tuple(target.shape))
    if name == PATCH_EMBED and len(source) == len(target):
        if source.shape[1] == 3:
            return adapt_input_conv(target.shape[1], source)
        raise ValueError(f'the weights are for images of {source.shape[1]} channels, the model '
                         f'takes {target.shape[1]}: only those for 3 are adapted to another '
                         'number; set in_channels as in the pre-training, or name another file')
    raise ValueError(f'{name} has shape {tuple(source.shape)} in the file and '
                     f'{tuple(target.shape)} in the model: the weights are of another size of '
                     'model; set arch (or its widths) as in the pre-training')


def check_patch_size(target: StateDict, weights: StateDict) -> None:
    """Refuse weights of another patch size.

    Raises:
        ValueError: naming both sizes.
    """
    if PATCH_EMBED not in weights:
        return
    expected, got = (grid_text(part[PATCH_EMBED].shape[-2:]) for part in (target, weights))
    if got != expected:
        raise ValueError(f'the weights are for patches of {got} pixels, the model has patches of '
                         f'{expected}: weights fit only models of the same patch size (and, for '
                         'Swin, window); set patch_size, or name another file')


def check_gaug_grid(model: nn.Module, state_dict: StateDict) -> str:
    """Refuse GAug parameters that were trained on another grid than the model's ``gaug_grid``.

    Returns:
        What could not be checked, for a report: the position embedding alone tells the grid (for
        Swin the relative-position tables tell the window).

    Raises:
        ValueError: naming both grids.
    """
    expected = next(module.grid for module in model.modules()
                    if isinstance(module, GaussianAugment))
    pos_embed = state_dict.get('pos_embed')
    if pos_embed is None or getattr(model, 'pos_embed', None) is None:
        has_window = any('relative_position_bias_table' in name for name in state_dict)
        return '' if has_window else (
            f'nothing in the file tells the grid of its GAug parameters, which are read for '
            f'{grid_text(expected)} patches: img_size must be that of the pre-training')
    prefix = num_embedded_prefix_tokens(model)
    if pos_embed.shape[1] - prefix == expected[0] * expected[1]:
        return ''
    raise ValueError(
        f'the weights hold GAug parameters of a {grid_text(square_grid(pos_embed, prefix))} grid, '
        f'the model reads them for a {grid_text(expected)} grid, where they mean something else. '
        'Set img_size to the size of the pre-training (the input may have any size), or gaug_grid '
        "to the weights' grid")


def num_embedded_prefix_tokens(model: nn.Module) -> int:
    """Prefix tokens that the position embedding covers."""
    return 0 if model.no_embed_class else model.num_prefix_tokens


def square_grid(pos_embed: Tensor, num_prefix_tokens: int) -> Grid:
    """The square grid of a position embedding (1, P + n, C).

    Raises:
        ValueError: if n is not a square.
    """
    num_patches = pos_embed.shape[1] - num_prefix_tokens
    side = isqrt(max(num_patches, 0))
    if side * side != num_patches or not side:
        raise ValueError(f'a position embedding of {pos_embed.shape[1]} entries, '
                         f'{num_prefix_tokens} of them for prefix tokens, does not cover a square '
                         'grid, so it cannot be resampled; set num_registers, class_token and '
                         'img_size as in the pre-training')
    return side, side


def grid_text(grid: Sequence[int]) -> str:
    """Rows and columns, for a message."""
    return f'{grid[0]} x {grid[1]}'


def names(items: Iterable[str], most: int = 6) -> str:
    """A short list for a message: the first few, and how many there are."""
    items = list(items)
    if not items:
        return 'none'
    more = f' ... ({len(items)} in all)' if len(items) > most else ''
    return ', '.join(items[:most]) + more
