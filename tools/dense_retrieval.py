r"""mIoU of dense retrieval ("Hummingbird") with a frozen backbone on a segmentation data set.

    python tools/dense_retrieval.py CONFIG CHECKPOINT
    python tools/dense_retrieval.py CONFIG --timm NAME --weights FILE --memory-size 100000

Patches of the training images are memorised with their labels; those of the test images take the
labels of the nearest. Nothing is trained. A checkpoint of a classifier will do.
"""
import argparse
from collections.abc import Sequence

from mmengine.config import Config
from mmengine.device import get_device

from locat_mmseg.analysis.neighbors import search_backend
from locat_mmseg.openmmlab.errors import UserError
from locat_mmseg.openmmlab.frozen_data import segmentation_loaders
from locat_mmseg.openmmlab.frozen_segmentation import evaluate_dense_retrieval
from locat_mmseg.openmmlab.frozen_tools import (Loaders, load_frozen_backbone,
                                                make_evaluation_parser, run_evaluation)
from locat_mmseg.openmmlab.model_arguments import positive, positive_real


def image_size(values: Sequence[int]) -> tuple[int, int] | None:
    """(height, width) of one or two numbers; None for 0, which leaves images as they are."""
    if len(values) > 2 or min(values) < 0 or (0 in values and len(values) > 1):
        raise UserError(f'--img-size {" ".join(map(str, values))}: expected a side, or height and '
                        'width, in pixels, or 0')
    return None if values[0] == 0 else (values[0], values[-1])


def evaluate(args: argparse.Namespace, cfg: Config) -> tuple[dict, dict, Loaders]:
    size = image_size(args.img_size)
    backbone = load_frozen_backbone(args, cfg, stage=args.stage)
    loaders = segmentation_loaders(cfg, size, (args.num_train, args.num_test), args.seed,
                                   batch_size=args.batch_size, num_workers=args.workers)
    results = evaluate_dense_retrieval(backbone, *loaders, args.memory_size, args.k,
                                       args.temperature, args.seed)
    settings = dict(k=args.k, temperature=args.temperature, memory_size=args.memory_size,
                    img_size=size, stage=args.stage, stride=backbone.stride,
                    search=search_backend(get_device()))
    return results, settings, loaders


def main(argv: Sequence[str] | None = None) -> None:
    parser = make_evaluation_parser(__doc__)
    parser.add_argument('--memory-size', type=positive, metavar='N', help='the most patches to '
                        'hold, chosen in favour of rare classes; by default all')
    parser.add_argument('--img-size', type=int, nargs='+', default=[224], metavar='N',
                        help='side, or height and width, that images are resized to; 0: as they '
                        'are, one by one (default: 224)')
    parser.add_argument('--stage', type=int, metavar='I', help='block or stage whose output is '
                        'read, from 0; by default the last, of a pyramid such as Swin the last '
                        'but one')
    parser.add_argument('-k', type=positive, default=30, help='neighbours')
    parser.add_argument('--temperature', type=positive_real, default=0.02,
                        help='of their weights, softmax(cosine / temperature)')
    run_evaluation(parser, __file__, evaluate, argv)


if __name__ == '__main__':
    main()
