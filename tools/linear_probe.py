r"""Linear-probe accuracy of a frozen backbone on a classification data set.

    python tools/linear_probe.py CONFIG CHECKPOINT
    python tools/linear_probe.py CONFIG --timm NAME --weights FILE --save-model NEW.safetensors

Logistic regression on the pooled features of the training images, without augmentation, solved to
its optimum; of several penalties, the one that is best on a tenth of the training images. With
--save-model, a timm model is written with the probe as its classifier.
"""
import argparse
from collections.abc import Sequence

from mmengine.config import Config

from locat_mmseg.analysis.timm_models import with_classifier
from locat_mmseg.openmmlab.checkpoint_export import check_suffix, write_timm
from locat_mmseg.openmmlab.errors import UserError
from locat_mmseg.openmmlab.frozen_classification import evaluate_linear, extract
from locat_mmseg.openmmlab.frozen_data import classification_loaders, with_progress
from locat_mmseg.openmmlab.frozen_tools import (Loaders, load_frozen_backbone,
                                                make_evaluation_parser, run_evaluation)
from locat_mmseg.openmmlab.model_arguments import positive, positive_real


def evaluate(args: argparse.Namespace, cfg: Config) -> tuple[dict, dict, Loaders]:
    check_target(args)
    backbone = load_frozen_backbone(args, cfg, with_neck=True)
    loaders = classification_loaders(cfg, args.img_size, (args.num_train, args.num_test),
                                     args.seed, batch_size=args.batch_size,
                                     num_workers=args.workers)
    train, test = (extract(backbone, with_progress(loader, 'reading')) for loader in loaders)
    results, probe = evaluate_linear(train, test, args.l2, args.seed)
    if args.save_model is not None:
        weights = with_classifier(args.timm, backbone.timm_model, *probe.on_raw_features())
        write_timm(weights, args.save_model)
        print(f'model with the probe as its classifier written to {args.save_model}')
    settings = dict(l2=args.l2, img_size=args.img_size, save_model=args.save_model)
    return results, settings, loaders


def check_target(args: argparse.Namespace) -> None:
    """Refuse a --save-model that cannot be written, before the features are read."""
    if args.save_model is None:
        return
    if args.timm is None:
        raise UserError('--save-model belongs to --timm NAME: a model of a config is trained with '
                        'its classifier by tools/train.py')
    check_suffix(args.save_model, '.safetensors')


def main(argv: Sequence[str] | None = None) -> None:
    parser = make_evaluation_parser(__doc__)
    parser.add_argument('--img-size', type=positive, metavar='N', help='resize images to N x N')
    parser.add_argument('--l2', type=positive_real, nargs='+', default=[1e-4, 1e-3, 1e-2, 1e-1],
                        help='penalties on the squared weights to choose from')
    parser.add_argument('--save-model', metavar='FILE', help='write the timm model with the probe '
                        'as its classifier (.safetensors): --weights FILE of other tools')
    run_evaluation(parser, __file__, evaluate, argv)


if __name__ == '__main__':
    main()
