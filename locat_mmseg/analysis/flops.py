"""Parameters and FLOPs of a model, fused attention and the Gaussian of GAug included.

A fused attention kernel is one operator that most counters do not know. The count must not depend
on the kernel, so the model runs on the meta device (shapes only, nothing is computed), where torch
writes its attention out, with the explicit back end of `attend`.

What one FLOP is, as in the papers of this field and in fvcore and mmengine: one multiply-add of a
convolution or a matrix product. Norms and bilinear resizing count as they do there; activations,
softmax and sums of branches are free. Of the Gaussian each elementwise operation counts, too: what
GAug predicts, an exponent and a power for each number of the two factors, and for each pair of
patches one operation to multiply the factors and one to add the product to the logit.
"""
import copy
from collections import Counter
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry
from torch.utils.module_tracker import ModuleTracker

from ..layers import Gaussian, GaussianAugment
from ..layers.attention import attention_backend

aten = torch.ops.aten

# Operations for each element of the input (without an affine map) and the affine map's own.
NORMS = {
    aten.native_layer_norm: (4, 1),
    aten.native_group_norm: (4, 1),
    aten.native_batch_norm: (1, 1),
    aten._native_batch_norm_legit: (1, 1),
    aten._native_batch_norm_legit_no_training: (1, 1),
    aten.cudnn_batch_norm: (1, 1),
}
# Where those take the affine weight.
WEIGHT = {aten.native_layer_norm: 2}
RESIZE = {aten.upsample_bilinear2d: 4}  # operations for each element of the output
REDUCTIONS = {aten.sum, aten.prod}


@dataclass
class Complexity:
    """What a model costs.

    Attributes:
        parameters: all of the model, also parts that did not run.
        flops: multiply-adds of one forward pass of the whole batch.
        parts: FLOPs of each direct child that has any.
        uncounted: names of operators that ran and count nothing; views are left out.
    """
    parameters: int
    flops: int
    parts: dict[str, int]
    uncounted: list[str]


def count_complexity(model: nn.Module, shape: tuple[int, ...], **kwargs: Any) -> Complexity:
    """Count parameters and FLOPs of a model, in eval mode; the model itself is not run or changed.

    Args:
        model: takes one batch of images.
        shape: (B, 3, H, W) of the batch.
        **kwargs: further arguments of the model's forward.

    Raises:
        ValueError: if the model does not take such an input.
    """
    model = copy.deepcopy(model).to('meta').eval()
    counter = OperationCounter()
    for module in model.modules():
        if isinstance(module, GaussianAugment):
            module.register_forward_hook(counter.add_pairs)
    try:
        with torch.no_grad(), attention_backend('explicit'), counter.tracker, counter:
            model(torch.empty(shape, device='meta'), **kwargs)
    except (RuntimeError, NotImplementedError, AssertionError) as error:
        raise ValueError(f'{type(model).__name__} does not take a batch of shape {tuple(shape)}: '
                         f'{error}; give a size that it takes') from error
    parts = {name: counter.flops_within(f'{type(model).__name__}.{name}', child)
             for name, child in model.named_children()}
    return Complexity(sum(p.numel() for p in model.parameters()), counter.flops['Global'],
                      {name: flops for name, flops in parts.items() if flops},
                      sorted(counter.uncounted))


class OperationCounter(TorchDispatchMode):
    """Adds up the FLOPs of each operator, by module; torch's own formulas for the products.

    Attributes:
        flops: by the name of each module that was running, 'Global' for all.
        uncounted: names of operators that ran and count nothing; views are left out.
    """

    def __init__(self) -> None:
        super().__init__()
        self.tracker = ModuleTracker()
        self.flops: Counter[str] = Counter()
        self.uncounted: set[str] = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        flops = self._flops_of(func, args, kwargs or {}, out)
        if flops:
            self._add(flops)
        elif isinstance(out, Tensor) and not func.is_view:
            self.uncounted.add(func._overloadpacket.__name__)
        return out

    def add_pairs(self, module: nn.Module, args: tuple, gaussian: Gaussian | Tensor) -> None:
        """Forward hook of GAug: what attention does with the Gaussian. Two operations for each of
        the h + w numbers of a query's factors, two for each pair of patches."""
        if isinstance(gaussian, Gaussian):
            numbers = sum(gaussian.grid) + gaussian.num_patches
            self._add(2 * gaussian.strength.numel() * numbers)
        else:
            self._add(gaussian.numel())

    def flops_within(self, name: str, module: nn.Module) -> int:
        """FLOPs of a module, of its children where its own forward was called past its hooks."""
        if name in self.flops:
            return self.flops[name]
        return sum(self.flops_within(f'{name}.{child_name}', child)
                   for child_name, child in module.named_children())

    def _add(self, flops: int) -> None:
        for module in self.tracker.parents:
            self.flops[module] += flops

    def _flops_of(self, func, args: tuple, kwargs: dict, out: Any) -> int:
        operator = func._overloadpacket
        if operator in flop_registry:  # torch counts multiplications and additions
            return flop_registry[operator](*args, **kwargs, out_val=out) // 2
        if operator in NORMS:
            plain, affine = NORMS[operator]
            has_weight = args[WEIGHT.get(operator, 1)] is not None
            return args[0].numel() * (plain + affine * has_weight)
        if operator in RESIZE:
            return out.numel() * RESIZE[operator]
        if any(module.endswith('.gaug') for module in self.tracker.parents):
            if operator in REDUCTIONS:
                return args[0].numel()
            if torch.Tag.pointwise in func.tags:
                return out.numel()
        return 0
