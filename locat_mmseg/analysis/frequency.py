"""Pictures without their high or their low spatial frequencies.

After "What do Vision Transformers Learn?" (arXiv 2212.06727), which shows that ViTs need high
frequencies less than CNNs do. Frequencies are measured along each axis in units of the highest
that the pixels can carry (half a cycle a pixel), so a disc is the same for all shapes of pictures.
"""
import math

import torch
from torch import Tensor

ALL = math.sqrt(2)  # radius of a disc that holds every frequency, those of the corners included
RADII = (0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1., ALL)


def frequency_disc(height: int, width: int, radius: float) -> Tensor:
    """Which frequencies of `torch.fft.rfft2` lie in the disc: boolean (height, width // 2 + 1).

    Raises:
        ValueError: if the radius is negative or not a number.
    """
    if not radius >= 0:
        raise ValueError(f'radius {radius}: expected 0 (the mean colour alone) to sqrt(2) (every '
                         'frequency)')
    rows = 2 * torch.fft.fftfreq(height, dtype=torch.float64)
    columns = 2 * torch.fft.rfftfreq(width, dtype=torch.float64)
    return rows[:, None].square() + columns.square() <= radius ** 2 + 1e-9


def low_pass(pictures: Tensor, radius: float) -> Tensor:
    """Keep the frequencies in a disc around 0.

    Args:
        pictures: (..., H, W) in [0, 1].
        radius: of the disc: 0 keeps the mean alone, 1 all that each axis has, sqrt(2) everything.

    Returns:
        The same shape, clipped to [0, 1].
    """
    return _filter(pictures, radius).clamp(0, 1)


def high_pass(pictures: Tensor, radius: float) -> Tensor:
    """Keep the frequencies outside of a disc, and the mean colour of each channel.

    Without its mean half of a picture would be below 0 and lost by clipping. Radius 0 keeps
    everything, sqrt(2) the mean alone. Arguments and result as in `low_pass`.
    """
    mean = pictures.mean((-2, -1), keepdim=True)
    return (pictures - _filter(pictures, radius) + mean).clamp(0, 1)


def _filter(pictures: Tensor, radius: float) -> Tensor:
    size = pictures.shape[-2:]
    disc = frequency_disc(*size, radius).to(pictures.device)
    return torch.fft.irfft2(torch.fft.rfft2(pictures) * disc, s=size)
