"""Command-line arguments for a folder of pictures, which the tools for visualisation share."""
import argparse
from pathlib import Path

from ..analysis.picture_folder import PictureFolder
from ..analysis.picture_model import PictureModel
from ..analysis.run_settings import Settings
from .model_arguments import add_reading_arguments, add_size_argument


def add_picture_arguments(parser: argparse.ArgumentParser) -> None:
    """Which pictures, of which size, and how many at once."""
    parser.add_argument('--images', type=Path, required=True, metavar='DIR',
                        help='pictures, in this folder and below it')
    add_size_argument(parser, 'that pictures are scaled and cropped to; by default the size that '
                      'the model was trained with')
    add_reading_arguments(parser)


def load_pictures(args: argparse.Namespace, model: PictureModel,
                  masks: Path | None = None) -> PictureFolder:
    """The pictures of a command line."""
    return PictureFolder(args.images, size_of(args, model), masks, args.limit)


def size_of(args: argparse.Namespace, model: PictureModel) -> tuple[int, int]:
    """(height, width) of the pictures."""
    size = args.size or model.size
    return int(size[0]), int(size[-1])


def picture_settings(args: argparse.Namespace, pictures: PictureFolder) -> Settings:
    """What identifies the pictures in the settings of a run."""
    return dict(images=args.images.name, size=pictures.size, limit=args.limit,
                first=pictures.paths[0].name, last=pictures.paths[-1].name)
