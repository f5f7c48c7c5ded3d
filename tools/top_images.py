r"""The pictures that each feature of a model responds to most, and where in them it is active.

    python tools/top_images.py CONFIG CHECKPOINT --images DIR
    python tools/top_images.py --timm vit_base_patch16_224 --images DIR --masks DIR --void 255

One pass over the pictures finds the best of every feature of every layer (top_images.pt: values,
indices; pictures.txt: the paths that the indices count); interrupted, it goes on where it was
saved.
Then some features of each layer are drawn with their activation masks. With label maps, masks.json
and a table tell how well the masks mark a class.
"""
import argparse
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from tqdm import tqdm

from locat_mmseg.analysis.activation_masks import KINDS_WITH_PLACE, draw_masks
from locat_mmseg.analysis.feature_examples import (FeatureExamples, feature_examples,
                                                   match_rows)
from locat_mmseg.analysis.feature_hooks import check_features
from locat_mmseg.analysis.feature_layers import FeatureLayer, feature_layers, pick_layers
from locat_mmseg.analysis.picture_folder import PictureFolder
from locat_mmseg.analysis.picture_model import PictureModel
from locat_mmseg.analysis.run_record import check_target, write_json
from locat_mmseg.analysis.tables import markdown_table, number
from locat_mmseg.analysis.top_images import StreamingTopK, find_top_images
from locat_mmseg.openmmlab.errors import one_sentence_errors
from locat_mmseg.openmmlab.model_arguments import natural, positive
from locat_mmseg.openmmlab.picture_data import (add_picture_arguments, load_pictures,
                                                picture_settings)
from locat_mmseg.openmmlab.picture_model import add_model_arguments, load_model, model_settings


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add_model_arguments(parser)
    add_picture_arguments(parser)
    parser.add_argument('--kind', choices=KINDS_WITH_PLACE, default='hidden',
                        help='which features; channel for a CNN')
    parser.add_argument('--top', type=positive, default=5, help='pictures kept for each feature')
    parser.add_argument('--layers', nargs='+', default=['all'], metavar='N',
                        help='layers to draw, numbers from 0, or all')
    parser.add_argument('--features', nargs='+', type=natural, default=list(range(8)),
                        metavar='N', help='features to draw of each layer')
    parser.add_argument('--masks', type=Path, metavar='DIR',
                        help='label maps (PNG) under the same paths as the pictures')
    parser.add_argument('--void', type=int, default=255, help='label that does not count')
    parser.add_argument('--out', type=Path, default=Path('work_dirs/top_images'))
    parser.add_argument('--redo', action='store_true',
                        help='start anew where the folder has a pass of other settings')
    return parser.parse_args(argv)


def find(args: argparse.Namespace, model: PictureModel, layers: Sequence[FeatureLayer],
         pictures: PictureFolder) -> list[StreamingTopK]:
    """The pass over all pictures."""
    settings = dict(model_settings(args), kind=args.kind, **picture_settings(args, pictures))
    with tqdm(total=len(pictures), desc='pictures') as bar:
        best = find_top_images(
            model, layers, pictures, args.top, args.batch, args.workers,
            args.out / 'top_images.pt', settings, args.redo,
            report=lambda done: bar.update(done - bar.n))
    names = (path.relative_to(args.images).as_posix() for path in pictures.paths)
    (args.out / 'pictures.txt').write_text('\n'.join(names) + '\n')
    return best


def draw(found: Sequence[FeatureExamples], path: Path) -> None:
    """Draw the examined features of a layer, and how they match the label maps."""
    rows = []
    for one in found:
        title = f'{one.feature}: {one.value:.2f}'
        if one.match is not None:
            title += (f'\nclass {one.match.label}\nIoU {one.match.iou:.2f} '
                      f'(of all {one.match.share:.2f})')
        rows.append((title, one.pictures, one.maps))
    draw_masks(rows, path)


def main(argv: Sequence[str] | None = None) -> None:
    with one_sentence_errors():
        args = parse_args(argv)
        check_target(args.out / 'top_images.pt')
        model = load_model(args)
        layers = feature_layers(model, args.kind)
        numbers = pick_layers(layers, args.layers)
        pictures = load_pictures(args, model, args.masks)
        check_features(model, [layers[n] for n in numbers], args.features, pictures.size)
        best = find(args, model, layers, pictures)
        examples = {}
        for n in tqdm(numbers, desc='drawing'):
            examples[layers[n].name] = found = feature_examples(
                model, layers[n], best[n], args.features, pictures,
                args.void if args.masks else None)
            draw(found, args.out / f'layer{n:02d}.png')
        if args.masks:
            write_json(args.out / 'masks.json', {
                name: {one.feature: one.match and asdict(one.match) for one in found}
                for name, found in examples.items()})
            header, rows = match_rows(examples)
            table = markdown_table(header, [[number(cell) for cell in row] for row in rows])
            (args.out / 'masks.md').write_text(table)
            print(table)
        print(f'{len(numbers)} layers drawn in {args.out}')


if __name__ == '__main__':
    main()
