r"""Linear-probe accuracy of a frozen backbone on a classification data set.

    python tools/linear_probe.py CONFIG CHECKPOINT
    python tools/linear_probe.py CONFIG --timm NAME --weights FILE

Logistic regression on the pooled features of the training images, without augmentation, solved to
its optimum; of several penalties, the one that is best on a tenth of the training images.
"""
import argparse
from collections.abc import Sequence

from mmengine.config import Config

from locat_mmseg.openmmlab.frozen_classification import evaluate_linear, extract
from locat_mmseg.openmmlab.frozen_data import classification_loaders, with_progress
from locat_mmseg.openmmlab.frozen_tools import (Loaders, load_frozen_backbone,
                                                make_evaluation_parser, run_evaluation)


def evaluate(args: argparse.Namespace, cfg: Config) -> tuple[dict, dict, Loaders]:
    backbone = load_frozen_backbone(args, cfg, with_neck=True)
    loaders = classification_loaders(cfg, args.img_size, (args.num_train, args.num_test),
                                     args.seed, batch_size=args.batch_size,
                                     num_workers=args.workers)
    train, test = (extract(backbone, with_progress(loader, 'reading')) for loader in loaders)
    settings = dict(l2=args.l2, img_size=args.img_size)
    return evaluate_linear(train, test, args.l2, args.seed), settings, loaders


def main(argv: Sequence[str] | None = None) -> None:
    parser = make_evaluation_parser(__doc__)
    parser.add_argument('--img-size', type=int, metavar='N', help='resize images to N x N')
    parser.add_argument('--l2', type=float, nargs='+', default=[1e-4, 1e-3, 1e-2, 1e-1],
                        help='penalties on the squared weights to choose from')
    run_evaluation(parser, __file__, evaluate, argv)


if __name__ == '__main__':
    main()
