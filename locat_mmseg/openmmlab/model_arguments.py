"""Arguments that mean the same in every tool that has them: a timm model, its device, images."""
import argparse

import torch

from ..analysis.timm_models import PRETRAINED, RANDOM


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
    parser.add_argument('--limit', type=int, metavar='N', help='at most N images, evenly spaced')
    parser.add_argument('--batch', type=int, default=32, metavar='N', help='images at once')
    parser.add_argument('--workers', type=int, default=2, metavar='N',
                        help='processes that read images')
