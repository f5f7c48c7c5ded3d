"""Arguments that mean the same in every tool that has them: a timm model, its device, images."""
import argparse
import math
from collections.abc import Sequence

import torch

from ..analysis.timm_models import PRETRAINED, RANDOM


def positive(text: str) -> int:
    """Type of an argument that is a whole number from 1."""
    return whole_number(text, 1)


def natural(text: str) -> int:
    """Type of an argument that is a whole number from 0."""
    return whole_number(text, 0)


def positive_real(text: str) -> float:
    """Type of an argument that is a finite number above 0.

    Raises:
        argparse.ArgumentTypeError: if it is none.
    """
    number = real(text)
    if number <= 0:
        raise argparse.ArgumentTypeError(f'{text}: expected a number above 0')
    return number


def real(text: str) -> float:
    """Type of an argument that is a finite number.

    Raises:
        argparse.ArgumentTypeError: if it is none.
    """
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise argparse.ArgumentTypeError(f'{text}: expected a finite number')
    return number


class HeightWidth(argparse.Action):
    """Takes a side, or height and width."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace,
                 values: Sequence[int], option_string: str | None = None) -> None:
        if len(values) > 2:
            raise argparse.ArgumentError(
                self, f'{len(values)} numbers: expected a side, or height and width')
        setattr(namespace, self.dest, values)


def add_size_argument(parser: argparse.ArgumentParser, meaning: str) -> None:
    """A side, or height and width, of pictures.

    Args:
        parser: to add it to.
        meaning: for the help, after 'side, or height and width, '.
    """
    parser.add_argument('--size', nargs='+', type=positive, metavar='PIXELS', action=HeightWidth,
                        help=f'side, or height and width, {meaning}')


def whole_number(text: str, least: int) -> int:
    """A number of a command line.

    Raises:
        argparse.ArgumentTypeError: if it is none, or smaller than ``least``.
    """
    try:
        number = int(text)
    except ValueError:
        number = least - 1
    if number < least:
        raise argparse.ArgumentTypeError(f'{text}: expected a whole number from {least}')
    return number


def add_timm_arguments(parser: argparse.ArgumentParser, several: bool = False) -> None:
    """A model by its name in timm, for `timm_models.timm_model`; or several."""
    many = dict(nargs='+', default=[]) if several else {}
    parser.add_argument('--timm', metavar='NAME', **many, help='models of timm, instead of that of '
                        'a config or beside it' if several else
                        "a model of timm instead of the config's")
    parser.add_argument('--weights', metavar='FILE', **(many or dict(default=PRETRAINED)), help=(
        'their weights, one for each' if several else 'its weights') + ": a file in timm's names, "
        f'with or without GAug; {PRETRAINED} (the default, a download) or {RANDOM}')


def add_device_argument(parser: argparse.ArgumentParser) -> None:
    """Where models run."""
    parser.add_argument('--device', default='cuda' if torch.cuda.is_available() else 'cpu',
                        help='where models run; by default the GPU if there is one')


def add_reading_arguments(parser: argparse.ArgumentParser) -> None:
    """How many images are read, and how many at once."""
    parser.add_argument('--limit', type=positive, metavar='N',
                        help='at most N images, evenly spaced')
    parser.add_argument('--batch', type=positive, default=32, metavar='N', help='images at once')
    parser.add_argument('--workers', type=natural, default=2, metavar='N',
                        help='processes that read images')
