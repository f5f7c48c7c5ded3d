"""A frozen network that takes RGB pictures in [0, 1], whatever it was trained with."""
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ..addon.convert import class_path


class PictureModel(nn.Module):
    """Normalises pictures and runs a network in evaluation mode, its parameters without gradients.

    Args:
        network: takes normalised images (B, 3, H, W); returns class logits (B, K), logit maps
            (B, K, h, w), or features, if nobody asks for logits.
        mean, std: of the normalisation, for pixels in [0, 1], in the network's order of channels.
        core: the timm model inside ``network`` whose layers are looked at; by default
            ``network`` itself.
        size: (height, width) of the pictures that the network was trained with, in pixels.
        bgr: whether the network takes blue first.
    """

    def __init__(self, network: nn.Module, mean: Sequence[float], std: Sequence[float],
                 core: nn.Module | None = None, size: tuple[int, int] = (224, 224),
                 bgr: bool = False) -> None:
        super().__init__()
        self.network = network.requires_grad_(False)
        self.size = size
        self.bgr = bgr
        self._core = [core if core is not None else network]  # a list: no second child
        for name, values in (('mean', mean), ('std', std)):
            self.register_buffer(name, torch.tensor(values, dtype=torch.float32).view(-1, 1, 1))
        self.eval()

    @property
    def core(self) -> nn.Module:
        """The timm model whose layers are looked at."""
        return self._core[0]

    @property
    def is_timm(self) -> bool:
        """Whether the network is the timm model, or a wrapper that adds nothing to its ``model``
        (mmpretrain's TimmClassifier)."""
        return self.core in (self.network, getattr(self.network, 'model', None))

    @property
    def device(self) -> torch.device:
        return self.mean.device

    def forward(self, pictures: Tensor) -> Tensor:
        """Run the network on RGB pictures (B, 3, H, W) in [0, 1].

        Raises:
            ValueError: if it does not take pictures of this size.
        """
        try:
            return self.network(self.normalise(pictures))
        except (AssertionError, RuntimeError) as error:
            # Families with a fixed grid fail somewhere inside, each in its own words.
            size = tuple(pictures.shape[-2:])
            if size == tuple(self.size) or 'memory' in str(error):
                raise
            raise ValueError(
                f'{class_path(self.core)} failed on pictures of {size} pixels '
                f'({(str(error).splitlines() or [type(error).__name__])[0]}); it was built for '
                f'{tuple(self.size)}: give pictures of that size') from error

    def normalise(self, pictures: Tensor) -> Tensor:
        """What the network takes, of RGB pictures (B, 3, H, W) in [0, 1]."""
        if self.bgr:
            pictures = pictures.flip(1)
        return (pictures - self.mean) / self.std
