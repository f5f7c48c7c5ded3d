r"""How much the patches of a layer differ: a curve over the layers, beside those of other models.

    python tools/spatial_information.py CONFIG CHECKPOINT --images DIR --name LocAtViT
    python tools/spatial_information.py --timm vit_base_patch16_224 --images DIR --name ViT \
        --beside work_dirs/spatial_information/LocAtViT.json
"""
import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from torch.utils.data import DataLoader
from tqdm import tqdm

from locat_mmseg.analysis.run_record import check_target, write_json
from locat_mmseg.analysis.spatial_information import draw_curves, spatial_information
from locat_mmseg.openmmlab.errors import UserError, one_sentence_errors
from locat_mmseg.openmmlab.picture_data import (add_picture_arguments, load_pictures,
                                                picture_settings)
from locat_mmseg.openmmlab.picture_model import add_model_arguments, load_model, model_settings


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add_model_arguments(parser)
    add_picture_arguments(parser)
    parser.add_argument('--name', default='model', help='of the curve, and of its files')
    parser.add_argument('--kinds', nargs='+', default=['hidden', 'block'], metavar='KIND',
                        help='which features; channel for a CNN')
    parser.add_argument('--beside', nargs='+', type=Path, default=[], metavar='JSON',
                        help='curves of other models, as this tool wrote them')
    parser.add_argument('--out', type=Path, default=Path('work_dirs/spatial_information'))
    return parser.parse_args(argv)


def read_curves(path: Path, kinds: Sequence[str]) -> dict:
    """Curves that this tool wrote."""
    try:
        curves = json.loads(path.read_text())['curves']
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f'--beside {path} holds no curves of this tool '
                        f'({type(error).__name__})') from error
    lacking = [kind for kind in kinds if kind not in curves]
    if lacking:
        raise UserError(f'--beside {path} has curves of {", ".join(curves)}, none of '
                        f'{", ".join(lacking)}: give the same --kinds')
    return curves


def main(argv: Sequence[str] | None = None) -> None:
    with one_sentence_errors():
        args = parse_args(argv)
        check_target(args.out / f'{args.name}.json')
        models = {path.stem: read_curves(path, args.kinds) for path in args.beside}
        model = load_model(args)
        pictures = load_pictures(args, model)
        loader = DataLoader(pictures, args.batch, num_workers=args.workers)
        with tqdm(total=len(pictures), desc='pictures') as bar:
            curves = spatial_information(model, loader, args.kinds,
                                         lambda done: bar.update(done - bar.n))
        settings = dict(model_settings(args), **picture_settings(args, pictures),
                        pictures=len(pictures))
        path = args.out / f'{args.name}.json'
        write_json(path, dict(settings=settings, curves=curves))
        draw_curves({args.name: curves, **models}, path.with_suffix('.png'))
        for kind in args.kinds:
            for point in curves[kind]:
                print(f'{kind} {point["name"]}: relative std {point["relative_std"]:.3f}, '
                      f'cosine {point["cosine"]:.3f}')
        print(f'curves in {path} and {path.with_suffix(".png")}')


if __name__ == '__main__':
    main()
