r"""Where a patch attends to, and which patches have similar features: pictures per layer and head.

    python tools/visualize_patch.py CONFIG CHECKPOINT --image FILE --beside CONFIG CHECKPOINT

Two models, such as LocAt and its plain twin, are drawn side by side and in the same colours.
Attention is that from the chosen patch; similarity is the cosine of block outputs, in all channels
and in the share of each head.
"""
import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from locat_mmseg.analysis.patch_attention import attention_maps
from locat_mmseg.analysis.patch_pictures import save_patch_picture
from locat_mmseg.analysis.patch_similarity import similarity_maps
from locat_mmseg.analysis.run_record import check_target
from locat_mmseg.openmmlab.errors import UserError, one_sentence_errors
from locat_mmseg.openmmlab.frozen_tools import load_frozen_backbone, make_backbone_parser
from locat_mmseg.openmmlab.launch import load_config
from locat_mmseg.openmmlab.patch_images import num_heads_of, read_image

ATTENTION, SIMILARITY = 'attention', 'similarity'
TITLES = {ATTENTION: 'attention of the patch (colours from 0 to the largest of a layer)',
          SIMILARITY: 'similarity to the patch (colours from cosine -1 to 1)'}


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = make_backbone_parser(__doc__)
    parser.add_argument('--image', required=True, metavar='FILE')
    parser.add_argument('--beside', nargs='+', metavar=('CONFIG', 'CHECKPOINT'),
                        help='another model, to compare')
    parser.add_argument('--patch', type=int, nargs=2, metavar=('ROW', 'COLUMN'),
                        help='in patches, from 0; by default in the middle')
    parser.add_argument('--img-size', type=int, nargs='+', default=[224], metavar='N',
                        help='side, or height and width, that the image is resized to')
    parser.add_argument('--maps', nargs='+', choices=list(TITLES), default=list(TITLES))
    parser.add_argument('--out-dir', metavar='DIR', help='for attention.png and similarity.png; by '
                        'default the work dir')
    args = parser.parse_args(argv)
    if len(args.img_size) > 2 or min(args.img_size) < 1:
        parser.error('--img-size takes a side, or height and width, in pixels')
    if args.beside and len(args.beside) > 2:
        parser.error('--beside takes a config and a checkpoint')
    return args


def model_lines(args: argparse.Namespace) -> list[argparse.Namespace]:
    """The command line, and the same for the model beside."""
    if not args.beside:
        return [args]
    config, checkpoint = (*args.beside, None)[:2]
    return [args, argparse.Namespace(**{
        **vars(args), 'config': config, 'checkpoint': checkpoint, 'cfg_options': {}, 'timm': None})]


def names_of(lines: Sequence[argparse.Namespace]) -> list[str]:
    """Names of the models in the pictures; twins in other folders have configs of the same name,
    and one config may have two checkpoints."""
    names = [line.timm or '/'.join(Path(line.config).with_suffix('').parts[-2:]) for line in lines]
    if len(set(names)) == len(names):
        return names
    return [f'{name} {Path(line.checkpoint or "").name or "init_cfg"}, {place}'
            for name, line, place in zip(names, lines, ('left', 'right'))]


def maps_of(args: argparse.Namespace, wanted: Sequence[str]
            ) -> tuple[dict[str, list[Tensor]], np.ndarray, tuple[int, int]]:
    """Maps of each kind, the image as it is shown, and the patch."""
    cfg = load_config(args)
    backbone = load_frozen_backbone(args, cfg)
    model = backbone.timm_model
    if model is None:
        raise UserError(f'{args.config} has the backbone {type(backbone.backbone).__name__}: '
                        'pictures take a backbone of this package, or --timm NAME')
    size = args.img_size[0], args.img_size[-1]
    image, shown = read_image(backbone, cfg, args.image, size)
    image = image.to(backbone.device)
    patch = tuple(args.patch or (-(-side // backbone.stride) // 2 for side in size))
    maps = {}
    if ATTENTION in wanted:
        maps[ATTENTION] = attention_maps(model, image, patch)
    if SIMILARITY in wanted:
        pairs = zip(similarity_maps(model, image, patch),
                    similarity_maps(model, image, patch, num_heads_of(model)))
        maps[SIMILARITY] = [torch.cat(pair) for pair in pairs]
    return maps, shown, patch


def draw(args: argparse.Namespace) -> None:
    """Write the pictures of one or two models."""
    folder = Path(args.out_dir or load_config(args).work_dir)
    check_target(folder / f'{ATTENTION}.png')
    lines = model_lines(args)
    models = {name: maps_of(line, args.maps) for name, line in zip(names_of(lines), lines)}
    _, shown, patch = next(iter(models.values()))
    for kind in args.maps:
        maps = {name: found[kind] for name, (found, _, _) in models.items()}
        heads = next(iter(maps.values()))[0].shape[0]
        columns = ['all', *map(str, range(heads - 1))] if kind == SIMILARITY else \
            list(map(str, range(heads)))
        path = folder / f'{kind}.png'
        save_patch_picture(path, shown, patch, maps, columns, TITLES[kind],
                           (-1., 1.) if kind == SIMILARITY else None)
        print(f'written to {path}')


def main(argv: Sequence[str] | None = None) -> None:
    with one_sentence_errors():
        draw(parse_args(sys.argv[1:] if argv is None else argv))


if __name__ == '__main__':
    main()
