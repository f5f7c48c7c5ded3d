"""How local the attention of a trained model is: a table, locality.json and a page.

A mmseg or mmpretrain config with a checkpoint is measured on the images of its test_dataloader;
a timm model (--timm NAME) on those of a folder (--images DIR).
"""
import argparse
from collections.abc import Sequence
from pathlib import Path

from mmengine.config import Config

from locat_mmseg.analysis import Locality, measure_locality
from locat_mmseg.analysis.locality_report import layer_rows, locality_page
from locat_mmseg.analysis.run_record import write_json
from locat_mmseg.analysis.tables import text_table
from locat_mmseg.analysis.timm_images import image_batches
from locat_mmseg.analysis.timm_models import timm_model
from locat_mmseg.openmmlab.errors import one_sentence_errors
from locat_mmseg.openmmlab.launch import (build_runner, check_checkpoint, check_complete,
                                          load_config, make_parser)
from locat_mmseg.openmmlab.locality_hook import part_of_loader
from locat_mmseg.openmmlab.model_arguments import add_timm_arguments, natural, positive


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = make_parser(__doc__, config_needed=False)
    parser.add_argument('checkpoint', nargs='?', help='checkpoint file')
    add_timm_arguments(parser)
    parser.add_argument('--images', metavar='DIR', help='folder of images for it')
    parser.add_argument('--img-size', type=positive, metavar='PIXELS', help='side of its input')
    parser.add_argument('--batch-size', type=positive, default=8, help='of its input (default 8)')
    parser.add_argument('--num-images', type=natural, default=256, metavar='N',
                        help='measure on N images, evenly spaced; 0 for all (default 256)')
    parser.add_argument('--field-images', type=natural, default=8, metavar='N', help='images for '
                        'the receptive field, which takes a backward pass a block (default 8)')
    args = parser.parse_args(argv)
    if bool(args.timm) == bool(args.config):
        parser.error('give a CONFIG and a CHECKPOINT, or --timm NAME and --images DIR')
    missing = 'images' if args.timm else 'checkpoint'
    if getattr(args, missing) is None:
        parser.error(f'{"--images DIR" if args.timm else "a CHECKPOINT"} is missing')
    return args


def measure_config(args: argparse.Namespace, cfg: Config) -> Locality:
    """Measure the backbone of a config's model, with the weights of the checkpoint."""
    check_complete(cfg, ('test_dataloader',))
    cfg.load_from, cfg.resume = check_checkpoint(args.checkpoint), False
    runner = build_runner(cfg, 'none', ('test_dataloader',))
    runner.load_or_resume()
    loader = part_of_loader(runner.build_dataloader(cfg.test_dataloader), args.num_images or None,
                            rank=0, world_size=1)
    model = runner.model.eval()
    batches = (model.data_preprocessor(batch, False)['inputs'] for batch in loader)
    return measure_locality(model.backbone, batches, args.field_images)


def measure_timm(args: argparse.Namespace) -> Locality:
    """Measure a timm model on a folder of images."""
    size = {} if args.img_size is None else {'img_size': args.img_size}
    model = timm_model(args.timm, args.weights, classifier=False, **size)
    batches = image_batches(model, args.images, args.num_images or None, args.batch_size)
    return measure_locality(model, batches, args.field_images)


def main(argv: Sequence[str] | None = None) -> None:
    with one_sentence_errors():
        args = parse_args(argv)
        if args.timm:
            folder = Path(args.work_dir or Path('work_dirs', args.timm))
            facts = {'model': args.timm, 'weights': args.weights, 'images from': args.images}
            locality = measure_timm(args)
        else:
            cfg = load_config(args)
            folder = Path(cfg.work_dir)
            facts = {'config': args.config, 'checkpoint': args.checkpoint}
            locality = measure_config(args, cfg)
        write_json(folder / 'locality.json', {**facts, **locality.to_dict()})
        title = f'Locality of attention: {args.timm or Path(args.config).stem}'
        (folder / 'locality.html').write_text(locality_page(locality, title, facts),
                                              encoding='utf-8')
        print(text_table(*layer_rows(locality)))
        print(f'written: {folder / "locality.json"}, {folder / "locality.html"}')


if __name__ == '__main__':
    main()
