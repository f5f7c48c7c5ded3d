"""The training protocols' augmentations of whole batches, or epochs, of images on one device.

They draw for each image what the configs of ``configs/cutmix_locality`` draw for it, but from
torch's generators, so that the distribution is the same and the numbers are not. AutoAugment
(arXiv 1805.09501) applies an operation at once to all images that drew it with the same strength.
"""
import math

import torch
from torch import Tensor
from torchvision.transforms import AutoAugment, AutoAugmentPolicy
from torchvision.transforms.v2 import functional as F

LEVELS = 10  # of strength, as AutoAugment's policies number them
# operation: what it does to images of strength m
OPERATIONS = {
    'ShearX': lambda x, m: F.affine(x, 0., [0, 0], 1., [math.degrees(math.atan(m)), 0.],
                                    center=[0, 0]),
    'ShearY': lambda x, m: F.affine(x, 0., [0, 0], 1., [0., math.degrees(math.atan(m))],
                                    center=[0, 0]),
    'TranslateX': lambda x, m: F.affine(x, 0., [int(m), 0], 1., [0., 0.]),
    'TranslateY': lambda x, m: F.affine(x, 0., [0, int(m)], 1., [0., 0.]),
    'Rotate': F.rotate,
    'Brightness': lambda x, m: F.adjust_brightness(x, 1 + m),
    'Color': lambda x, m: F.adjust_saturation(x, 1 + m),
    'Contrast': lambda x, m: F.adjust_contrast(x, 1 + m),
    'Sharpness': lambda x, m: F.adjust_sharpness(x, 1 + m),
    'Posterize': lambda x, m: F.posterize(x, int(m)),
    'Solarize': F.solarize,
    'AutoContrast': lambda x, m: F.autocontrast(x),
    'Equalize': lambda x, m: F.equalize(x),
    'Invert': lambda x, m: F.invert(x),
}


def strength(name: str, level: int | None, size: int) -> tuple[float, bool]:
    """What a level of an operation means, and whether half of the images draw its negative.

    Args:
        name: of the operation.
        level: 0 to 9; None for operations without a strength.
        size: of the image along the operation's axis, in pixels.
    """
    if level is None:
        return 0., False
    part = level / (LEVELS - 1)
    if name == 'Posterize':
        return 8 - round(4 * part), False
    if name == 'Solarize':
        return 255 * (1 - part), False
    largest = {'Shear': 0.3, 'Translate': 150 / 331 * size, 'Rotate': 30.}
    return part * largest.get(name.rstrip('XY'), 0.9), True


def auto_augment(images: Tensor, policy: str = 'cifar10') -> Tensor:
    """Draw a sub-policy for each image and apply its two operations.

    Args:
        images: (N, 3, H, W), uint8, RGB.
        policy: 'cifar10', 'imagenet' or 'svhn'.

    Returns:
        New images of the same shape and type.
    """
    policies = AutoAugment(AutoAugmentPolicy(policy)).policies
    count = len(images)
    chosen = torch.randint(len(policies), (count, ))
    return apply_policies(images, policies, chosen, torch.rand(count, 2),
                          torch.randint(2, (count, 2)))


def apply_policies(images: Tensor, policies: list[tuple], chosen: Tensor, probs: Tensor,
                   signs: Tensor) -> Tensor:
    """AutoAugment with given draws, those that torchvision's AutoAugment makes for an image.

    Args:
        images: (N, 3, H, W), uint8, RGB.
        policies: pairs of (operation, probability, level).
        chosen: (N,), which of them each image takes.
        probs: (N, 2), numbers in [0, 1]; an operation is applied when its own is at least these.
        signs: (N, 2), 0 for a negative strength.
    """
    images = images.clone()
    height, width = images.shape[-2:]
    for step in range(2):
        groups: dict[tuple[str, float], list[int]] = {}
        for index, (number, prob, sign) in enumerate(zip(
                chosen.tolist(), probs[:, step].tolist(), signs[:, step].tolist())):
            name, limit, level = policies[number][step]
            if prob <= limit:
                value, signed = strength(name, level, width if name[-1] == 'X' else height)
                groups.setdefault((name, -value if signed and not sign else value), []).append(
                    index)
        for (name, value), indices in groups.items():
            where = torch.tensor(indices, device=images.device)
            images[where] = OPERATIONS[name](images[where], value)
    return images


def crop_and_flip(images: Tensor, padding: int) -> Tensor:
    """Pad each image with black, crop it at a random place, flip it half of the time.

    Args:
        images: (N, C, H, W).
        padding: on each side, in pixels.
    """
    count, _, height, width = images.shape
    device = images.device
    padded = torch.nn.functional.pad(images, [padding] * 4)
    top, left = torch.randint(2 * padding + 1, (2, count, 1), device=device)
    rows = top + torch.arange(height, device=device)
    columns = torch.arange(width, device=device).expand(count, -1)
    flip = torch.rand(count, 1, device=device) < 0.5
    columns = left + torch.where(flip, columns.flip(1), columns)
    images_of = torch.arange(count, device=device)[:, None, None]
    # The indices come first in the result: (N, H, W, C).
    return padded[images_of, :, rows[:, :, None], columns[:, None]].permute(0, 3, 1, 2)


def cutmix(images: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """CutMix (arXiv 1905.04899) with alpha 1: one box for the whole batch.

    Args:
        images: (N, C, H, W).
        targets: (N, classes), one-hot or mixed.

    Returns:
        Images into which the box of another was pasted, and targets mixed by the box's area.
    """
    height, width = images.shape[-2:]
    ratio = math.sqrt(torch.rand(()).item())  # 1 - lambda, which Beta(1, 1) draws evenly
    half_height, half_width = int(height * ratio) // 2, int(width * ratio) // 2
    y, x = torch.randint(height, ()).item(), torch.randint(width, ()).item()
    rows = slice(max(y - half_height, 0), y + half_height)
    columns = slice(max(x - half_width, 0), x + half_width)
    order = torch.randperm(len(images), device=images.device)
    images = images.clone()
    images[:, :, rows, columns] = images[order, :, rows, columns]
    area = images[0, 0, rows, columns].numel() / (height * width)
    return images, (1 - area) * targets + area * targets[order]
