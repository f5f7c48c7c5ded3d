"""Test a segmentation or classification model: metrics, predictions, pictures."""
import argparse
import os.path as osp
from collections.abc import Sequence

from mmengine.config import Config, ConfigDict

from locat_mmseg.openmmlab.distributed import end_launch
from locat_mmseg.openmmlab.errors import UserError, one_sentence_errors, warn
from locat_mmseg.openmmlab.launch import (build_runner, check_checkpoint, check_complete,
                                          load_config, make_parser)
from locat_mmseg.openmmlab.preflight import leaves

SEGMENTATION, CLASSIFICATION = 'mmseg', 'mmpretrain'


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = make_parser(__doc__)
    parser.add_argument('checkpoint', help='checkpoint file')
    parser.add_argument('--out', metavar='DIR',
                        help='folder for predictions: segmentation writes label maps as PNG, in '
                        "the data set's numbers; classification writes predictions.pkl")
    parser.add_argument('--show-dir', metavar='DIR', help='folder for pictures of the results; '
                        'of several processes, only the first draws its share of the images')
    parser.add_argument('--tta', action='store_true',
                        help='test-time augmentation by tta_pipeline and tta_model of the config')
    return parser.parse_args(argv)


def scope_of(cfg: Config) -> str:
    """The project that a config is for, 'mmseg' or 'mmpretrain'; UserError if it is another."""
    scope = cfg.get('default_scope')
    if scope not in (SEGMENTATION, CLASSIFICATION):
        raise UserError(f"--out and --show-dir need default_scope='{SEGMENTATION}' or "
                        f"'{CLASSIFICATION}', the config has {scope!r}: leave them out")
    return scope


def add_output(cfg: Config, folder: str) -> None:
    """Have an evaluator write the predictions, too."""
    evaluator = cfg.test_evaluator
    evaluators = list(evaluator) if isinstance(evaluator, (list, tuple)) else [evaluator]
    if scope_of(cfg) == CLASSIFICATION:
        evaluators.append(dict(type='DumpResults',
                               out_file_path=osp.join(folder, 'predictions.pkl')))
    else:
        writers = [e for e in evaluators
                   if getattr(e.type, '__name__', e.type).endswith('IoUMetric')]
        if not writers:
            raise UserError('--out needs an IoUMetric in test_evaluator, which writes the label '
                            "maps: add dict(type='IoUMetric')")
        writers[0].output_dir = folder
    cfg.test_evaluator = evaluators


def add_pictures(cfg: Config, folder: str, tta: bool) -> None:
    """Switch the visualization hook on for every sample."""
    hooks = cfg.setdefault('default_hooks', ConfigDict())
    if scope_of(cfg) == CLASSIFICATION:
        if tta:
            raise UserError('mmpretrain draws no pictures under test-time augmentation: leave out '
                            '--show-dir or --tta')
        hooks.visualization = dict(type='FileVisualizationHook', enable=True, interval=1,
                                   out_dir=folder)
    else:
        hooks.visualization = dict(type='SegVisualizationHook', draw=True, interval=1)
        cfg.visualizer.vis_backends = [
            dict(type='LocalVisBackend', save_dir=folder, img_save_dir='')]


def use_tta(cfg: Config) -> None:
    """Wrap the model for test-time augmentation and give its pipeline to every data set.

    Raises:
        UserError: The config lacks one of the two.
    """
    missing = [key for key in ('tta_model', 'tta_pipeline') if key not in cfg]
    if missing:
        raise UserError(f'--tta needs {" and ".join(missing)} in the config: add it, or leave '
                        'out --tta')
    cfg.model = ConfigDict(**cfg.tta_model, module=cfg.model)
    for _, dataset in leaves('test_dataloader.dataset', cfg.test_dataloader.dataset):
        dataset.pipeline = cfg.tta_pipeline


def main(argv: Sequence[str] | None = None) -> None:
    with one_sentence_errors():
        args = parse_args(argv)
        cfg = load_config(args)
        check_complete(cfg, ('test_dataloader',))
        cfg.load_from, cfg.resume = check_checkpoint(args.checkpoint), False
        if args.out:
            add_output(cfg, args.out)
        if args.show_dir:
            add_pictures(cfg, args.show_dir, args.tta)
            if args.launcher != 'none':
                warn('--show-dir: only the first process draws, its share of the images; for all '
                     'of them run tools/test.py in one process')
        if args.tta:
            use_tta(cfg)
        build_runner(cfg, args.launcher, ('test_dataloader',)).test()
        end_launch()


if __name__ == '__main__':
    main()
