r"""Pictures that the features of a model respond to most, layer by layer.

    python tools/visualize_features.py CONFIG CHECKPOINT --layers 0 3 6 9 11 --features 0 1 2 3
    python tools/visualize_features.py --timm vit_base_patch16_224 --layers 0 11 --features 7

Each picture is written as a PNG with a JSON of its settings and activations; started again, the
tool goes on with what is missing. A contact sheet shows all pictures, a row for each layer.
"""
import argparse
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from locat_mmseg.analysis.augmentation_ensemble import AUGMENTATIONS
from locat_mmseg.analysis.feature_grid import FeatureGrid, fill_grid
from locat_mmseg.analysis.feature_layers import KINDS, feature_layers, pick_layers
from locat_mmseg.analysis.feature_vis import PRESETS, Recipe
from locat_mmseg.analysis.objectives import OBJECTIVES
from locat_mmseg.openmmlab.errors import one_sentence_errors
from locat_mmseg.openmmlab.model_arguments import (add_size_argument, natural, positive,
                                                   positive_real, real)
from locat_mmseg.openmmlab.picture_data import size_of
from locat_mmseg.openmmlab.picture_model import (add_model_arguments, load_model, model_settings)


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add_model_arguments(parser)
    parser.add_argument('--kind', choices=KINDS, default='hidden',
                        help='which features: by default those of the feed-forward networks; '
                        'channel for a CNN; logit for classes')
    parser.add_argument('--layers', nargs='+', default=['all'], metavar='N',
                        help='numbers from 0 (negative: from the last), or all')
    parser.add_argument('--features', nargs='+', type=natural, default=[0, 1, 2, 3], metavar='N')
    parser.add_argument('--list', action='store_true', help='name the layers and stop')
    add_size_argument(parser, 'of the pictures; by default the size that the model was trained '
                      'with')
    parser.add_argument('--preset', choices=PRESETS, default='paper')
    parser.add_argument('--steps', type=positive, help='default: 401')
    parser.add_argument('--lr', type=positive_real,
                        help='default: 0.1; the paper takes 1.0 for CLIP')
    parser.add_argument('--copies', type=positive, help='augmented copies in each step, '
                        'default: 8')
    parser.add_argument('--tv', type=real, help='weight of the total variation')
    parser.add_argument('--objective', choices=OBJECTIVES, default='token_mean')
    parser.add_argument('--minimize', action='store_true',
                        help='what the feature responds to least')
    parser.add_argument('--extra', nargs='+', choices=AUGMENTATIONS, default=[],
                        help='augmentations before those of the preset: flip, center, tile ...')
    parser.add_argument('--batch', type=positive, default=4, help='features optimised at once')
    parser.add_argument('--seed', type=int, default=0, help='added to the number of the feature')
    parser.add_argument('--out', type=Path, default=Path('work_dirs/feature_vis'))
    parser.add_argument('--redo', action='store_true',
                        help='make anew what the folder has with other settings')
    return parser.parse_args(argv)


def recipe_of(args: argparse.Namespace) -> Recipe:
    """The preset with the changes of the command line."""
    recipe = PRESETS[args.preset]
    given = {name: getattr(args, name) for name in ('steps', 'lr', 'copies')
             if getattr(args, name) is not None}
    if args.tv is not None:
        given['regularizers'] = (('total_variation', args.tv), )
    if args.minimize:
        given['activation_weight'] = -recipe.activation_weight
    return replace(recipe, objective=args.objective,
                   augmentations=(*args.extra, *recipe.augmentations), **given)


def main(argv: Sequence[str] | None = None) -> None:
    with one_sentence_errors():
        args = parse_args(argv)
        model = load_model(args)
        layers = feature_layers(model, args.kind)
        if args.list:
            print('\n'.join(f'{number}: {layer.name}' for number, layer in enumerate(layers)))
            return
        numbers = pick_layers(layers, args.layers)
        recipe, size = recipe_of(args), size_of(args, model)
        grid = FeatureGrid(args.out, dict(model_settings(args), kind=args.kind, size=size,
                                          seed=args.seed, **asdict(recipe)), args.redo)
        fill_grid(grid, model, layers, numbers, args.features, recipe, size, args.seed, args.batch)
        sheet = args.out / 'sheet.png'
        grid.draw_sheet(numbers, args.features, [layers[n].name for n in numbers], sheet)
        print(f'{len(numbers) * len(args.features)} pictures in {args.out}, together in {sheet}')


if __name__ == '__main__':
    main()
