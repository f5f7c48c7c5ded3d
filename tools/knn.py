r"""Weighted k-nearest-neighbour accuracy of a frozen backbone on a classification data set.

    python tools/knn.py CONFIG CHECKPOINT
    python tools/knn.py CONFIG --timm NAME --weights FILE

The training images are memorised, the test images classified by cosine among them.
"""
import argparse
from collections.abc import Sequence

from mmengine.config import Config

from locat_mmseg.analysis.neighbors import check_neighbors
from locat_mmseg.openmmlab.frozen_classification import evaluate_knn, extract
from locat_mmseg.openmmlab.frozen_data import classification_loaders, with_progress
from locat_mmseg.openmmlab.frozen_tools import (Loaders, load_frozen_backbone,
                                                make_evaluation_parser, run_evaluation)
from locat_mmseg.openmmlab.model_arguments import positive, positive_real


def evaluate(args: argparse.Namespace, cfg: Config) -> tuple[dict, dict, Loaders]:
    backbone = load_frozen_backbone(args, cfg, with_neck=True)
    loaders = classification_loaders(cfg, args.img_size, (args.num_train, args.num_test),
                                     args.seed, batch_size=args.batch_size,
                                     num_workers=args.workers)
    check_neighbors(max(args.k), len(loaders[0].dataset))  # before the features are read
    train, test = (extract(backbone, with_progress(loader, 'reading')) for loader in loaders)
    settings = dict(k=args.k, temperature=args.temperature, img_size=args.img_size)
    return evaluate_knn(train, test, args.k, args.temperature), settings, loaders


def main(argv: Sequence[str] | None = None) -> None:
    parser = make_evaluation_parser(__doc__)
    parser.add_argument('--img-size', type=positive, metavar='N', help='resize images to N x N')
    parser.add_argument('-k', type=positive, nargs='+', default=[20],
                        help='neighbours; several values are all scored')
    parser.add_argument('--temperature', type=positive_real, default=0.07,
                        help='of the votes, exp(cosine / temperature)')
    run_evaluation(parser, __file__, evaluate, argv)


if __name__ == '__main__':
    main()
