"""How much work an attention does, read off the kernels that run."""
from torch.utils._python_dispatch import TorchDispatchMode


class AttentionRows(TorchDispatchMode):
    """Notes how many queries each attention kernel, forward or backward, works on."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if 'attention' in func.name():
            self.rows.append(args[0].shape[-2])  # the queries, or the gradient of their output
        return func(*args, **(kwargs or {}))
