r"""Parameters and FLOPs of the model of a segmentation or classification config.

    python tools/get_flops.py configs/locat/upernet_vit-t_ade20k.py --shape 512 512

One FLOP is a multiply-add, as in OpenMMLab's tool of this name; unlike there, attention counts
whichever kernel computes it, and so does the Gaussian. Test-time parts only: auxiliary heads have
parameters, but no FLOPs.
"""
import argparse
from collections.abc import Sequence

from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope

from locat_mmseg.analysis.flops import Complexity, count_complexity
from locat_mmseg.openmmlab.errors import UserError, one_sentence_errors
from locat_mmseg.openmmlab.launch import add_config_arguments, read_config


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add_config_arguments(parser)
    parser.add_argument('--shape', nargs='+', type=int, metavar='PIXELS',
                        help='height and width of the image, or one number for a square; by '
                        "default data_preprocessor.size, else the backbone's img_size")
    args = parser.parse_args(argv)
    if args.shape and (len(args.shape) > 2 or min(args.shape) < 1):
        parser.error(f'--shape takes one or two positive numbers, got {args.shape}')
    return args


def shape_of(cfg: Config) -> Sequence[int]:
    """The input size that a config names."""
    model = cfg.model
    size = (model.get('data_preprocessor') or {}).get('size') or \
        (model.get('backbone') or {}).get('img_size')
    if size is None:
        raise UserError('the config names no input size (data_preprocessor.size or '
                        'backbone.img_size): give one with --shape HEIGHT WIDTH')
    return [size] if isinstance(size, int) else size


def complexity_of(cfg: Config, shape: Sequence[int]) -> Complexity:
    """Build the model of a config and count it for one image of a shape (H, W) or (side, )."""
    init_default_scope(cfg.get('default_scope', 'mmengine'))
    model = MODELS.build(cfg.model)
    return count_complexity(model, (1, 3, shape[0], shape[-1]), mode='tensor')


def main(argv: Sequence[str] | None = None) -> None:
    with one_sentence_errors():
        args = parse_args(argv)
        cfg = read_config(args.config, args.cfg_options)
        if 'model' not in cfg:
            raise UserError(f'{args.config} has no model: give the config of a whole segmentor or '
                            'classifier')
        shape = args.shape or shape_of(cfg)
        cost = complexity_of(cfg, shape)
        print(f'Input shape: {shape[0]} x {shape[-1]}')
        print(f'FLOPs (multiply-adds): {cost.flops / 1e9:.3f} G')
        for part, flops in cost.parts.items():
            print(f'    {part}: {flops / 1e9:.3f} G')
        print(f'Parameters: {cost.parameters / 1e6:.3f} M')
        print(f'Operators that count nothing: {", ".join(cost.uncounted)}')


if __name__ == '__main__':
    main()
