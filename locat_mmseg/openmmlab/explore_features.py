"""The parts of an exploration that need no labels: what features and attention of a model do.

Each function makes one `Part`; what is computed, and how, is the stand-alone tool's.
"""
from collections.abc import Sequence
from dataclasses import asdict, replace

import numpy as np
from PIL import Image

from ..analysis import measure_locality
from ..analysis.activation_masks import darkened
from ..analysis.capture import capturable_layers, find_backbone
from ..analysis.exploration import Finding, NotApplicable, Part
from ..analysis.feature_examples import FeatureExamples, feature_examples, match_rows
from ..analysis.feature_grid import FeatureGrid, fill_grid
from ..analysis.feature_hooks import check_features
from ..analysis.feature_layers import KINDS, FeatureLayer, feature_layers, pick_layers
from ..analysis.feature_responses import feature_responses
from ..analysis.feature_vis import PRESETS, Recipe
from ..analysis.input_changes import SWEEPS, make_changes
from ..analysis.input_plots import draw_responses
from ..analysis.locality_report import RANGE, definitions, layer_rows, locality_figures
from ..analysis.picture_folder import to_pixels
from ..analysis.report import figures, panel, paragraph, picture_strips, table
from ..analysis.spatial_information import LABELS, draw_curve, spatial_information
from ..analysis.top_images import find_top_images
from .explore_data import FEATURES, Subject
from .input_tools import progress
from .picture_data import size_of
from .picture_model import model_settings, num_classes_of

# How many layers are drawn if none are named: from the first to the last.
SPREAD = 5


def feature_pictures(subject: Subject) -> Part:
    """Activation maximisation, layer by layer."""
    kind = kind_of(subject)
    words = ('--kind', kind, '--layers', 'all', '--features', *range(8), '--preset',
             subject.args.preset)
    return Part(
        'Pictures that maximise features',
        'Each picture began as noise and was changed until a feature of the layer responded to it '
        'most: from edges in early layers to textures and parts in later ones, if the model '
        'learned them.', subject.command('visualize_features', *words, *subject.size_words),
        lambda: draw_features(subject, kind, subject.args.features))


def class_pictures(subject: Subject) -> Part:
    """Activation maximisation of class logits."""
    def look() -> Finding:
        if subject.task == FEATURES:
            raise NotApplicable('the model has no classifier and no decode head, so no class '
                                'logits')
        count, wanted = num_classes_of(subject.model), subject.args.features
        if min(wanted) >= count:
            raise NotApplicable(f'classes {", ".join(map(str, wanted))}: the model has 0 to '
                                f'{count - 1}; give others with --features')
        found = draw_features(subject, 'logit', [number for number in wanted if number < count])
        found.left_out = [f'class {number}: the model has 0 to {count - 1}'
                          for number in wanted if number >= count]
        return found
    words = ('--kind', 'logit', '--features', *range(8), '--preset', subject.args.preset)
    return Part(
        'Pictures that maximise classes',
        'The same for the logits of some classes: what the model takes for the essence of each.',
        subject.command('visualize_features', *words, *subject.size_words), look)


def draw_features(subject: Subject, kind: str, features: Sequence[int]) -> Finding:
    """Pictures of some features of some layers, which are kept in a folder."""
    args, model = subject.args, subject.model
    layers = feature_layers(model, kind)
    numbers = [0] if kind == 'logit' else chosen_layers(subject, layers)
    size, recipe = size_of(args, model), recipe_of(subject)
    grid = FeatureGrid(args.out / f'{kind}_pictures', dict(
        model_settings(args), kind=kind, size=size, seed=args.seed, **asdict(recipe)), args.redo)
    fill_grid(grid, model, layers, numbers, features, recipe, size, args.seed)
    strips, values = [], {}
    for number in numbers:
        records = [grid.record(number, feature) for feature in features]
        values[layers[number].name] = {record['feature']: record['activation']
                                       for record in records}
        strips.append((layers[number].name, [
            (f'{record["feature"]}: {record["start"]:.2f} → {record["activation"]:.2f}',
             [read_pixels(grid, number, record['feature'])]) for record in records]))
    return Finding([paragraph(
        f'Under each picture: the number of the feature, its activation in the initial noise and '
        f'in the picture ({recipe.steps} steps, {recipe.copies} copies, {size[0]} x {size[1]} '
        f'pixels).'), picture_strips(strips)], values)


def recipe_of(subject: Subject) -> Recipe:
    """The preset, with the steps and copies of the command line."""
    args = subject.args
    return replace(PRESETS[args.preset], steps=args.steps, copies=args.copies)


def read_pixels(grid: FeatureGrid, layer: int, feature: int) -> np.ndarray:
    """A picture of a grid."""
    with Image.open(grid.path(layer, feature)) as image:
        return np.array(image)


def top_images(subject: Subject) -> Part:
    """The pictures of the data that features respond to most."""
    masks = ('--masks', subject.args.masks, '--void', subject.void) if subject.args.masks else ()
    return Part(
        'Pictures that features respond to most',
        'Of the data, the pictures with the highest mean of a feature, and beside each the same '
        'darkened where the feature is less active.',
        subject.command('top_images', '--images', subject.folder, *masks, '--kind',
                        kind_of(subject), *subject.size_words), lambda: draw_top(subject))


def draw_top(subject: Subject) -> Finding:
    """The best pictures of some features of some layers."""
    args, model = subject.args, subject.model
    pictures = subject.need_pictures()
    kind = kind_of(subject)
    layers = feature_layers(model, kind)
    numbers = chosen_layers(subject, layers)
    check_features(model, [layers[n] for n in numbers], args.features, size_of(args, model))
    with progress(len(pictures), 'pictures') as report:
        best = find_top_images(
            model, layers, pictures, args.top, args.batch, args.workers, args.out / 'top_images.pt',
            dict(model_settings(args), kind=kind, size=size_of(args, model), data=subject.data),
            args.redo, report=report)
    examples = {layers[n].name: feature_examples(
        model, layers[n], best[n], args.features, pictures,
        subject.void if subject.has_masks else None) for n in numbers}
    body = [picture_strips((f'{name}, feature {one.feature}{match_text(one)}', [
        (f'{place}.', [to_pixels(picture), to_pixels(dark)]) for place, (picture, dark)
        in enumerate(zip(one.pictures, darkened(one.pictures, one.maps)), 1)])
        for name, found in examples.items() for one in found)]
    left_out = []
    if subject.has_masks:
        body.insert(0, table(*match_rows(examples), (
            'How well the features drawn mark a class in their pictures, at the best threshold; '
            'mean over the features of a layer.')))
    else:
        left_out.append('how well features mark classes: the data have no label maps')
    values = {name: [dict(feature=one.feature, activation=one.value,
                          match=one.match and asdict(one.match)) for one in found]
              for name, found in examples.items()}
    return Finding(body, values, left_out)


def match_text(one: FeatureExamples) -> str:
    """Activation, and the class that a feature marks."""
    text = f': {one.value:.2f}'
    return text if one.match is None else (
        f'{text}, class {one.match.label} with IoU {one.match.iou:.2f} '
        f'(of marking everything {one.match.share:.2f})')


def spatial(subject: Subject) -> Part:
    """The spatial-information curve."""
    kinds = ['channel'] if kind_of(subject) == 'channel' else ['hidden', 'block']
    name = subject.probed.name

    def look() -> Finding:
        pictures = subject.need_pictures()
        with progress(len(pictures), 'pictures') as report:
            curves = spatial_information(subject.model, subject.batches(), kinds, report)
        return Finding([figures({
            f'{kind} features, {LABELS[measure].partition(chr(10))[0]}, by layer':
            panel(draw_curve, {name: curves}, kind, measure)
            for kind in kinds for measure in LABELS})], curves)
    return Part(
        'Spatial information by layer',
        'How much the patches of a picture still differ after each layer: where a layer mixes '
        'them, as the last one of a plain class-token ViT does, the deviation falls and the '
        'cosine rises.', subject.command(
            'spatial_information', '--images', subject.folder, '--name', name, '--kinds', *kinds,
            *subject.size_words), look)


def responses(subject: Subject) -> Part:
    """Responses of features to changed copies."""
    probed = subject.probed

    def look() -> Finding:
        pictures = subject.need_pictures()
        kinds = ('rotate', 'shift')
        copies = [change for kind in kinds
                  for change in make_changes(kind, SWEEPS[kind], subject.args.seed)]
        with progress(len(pictures), probed.name) as report:
            rows = [dict(model=probed.name, **row) for row in feature_responses(
                subject.model, subject.batches(), copies, report)]
        return Finding([figures({
            f'Response to copies ({kind}: {", ".join(map(str, SWEEPS[kind]))}) over the response '
            'to the picture, summed over features': panel(draw_responses, rows, kind)
            for kind in kinds})], rows)
    if subject.task == FEATURES:  # the tool that scores needs a classifier
        words = ('explore', '--data', subject.folder, *subject.size_words, '--parts', 'responses',
                 '--limit', 1000)
    else:
        words = ('robustness', *subject.data_words, '--rotate', '--shift', '--responses')
    return Part(
        'Responses to rotated and shifted copies',
        'How much of a feature\'s response to the picture that it likes best is left on average '
        'over copies that are rotated or shifted: 1 is all of it.', subject.command(*words), look)


def locality(subject: Subject) -> Part:
    """Attention distance and its companions."""
    args, model = subject.args, subject.model

    def look() -> Finding:
        network = getattr(model.network, 'backbone', model.network)
        try:
            capturable_layers(find_backbone(network))
        except ValueError as error:
            raise NotApplicable(str(error)) from error
        batches = (model.normalise(batch.to(model.device)) for batch in subject.batches())
        found = measure_locality(network, batches, args.field_images)
        return Finding([figures(locality_figures(found)), table(*layer_rows(found), RANGE),
                        *definitions(found.layers)], found.to_dict())
    words = ['--images', subject.folder] if args.timm else []
    if args.timm and args.size:
        words += ['--img-size', args.size[0]]
    return Part(
        'Locality of attention',
        'How far each head looks and how evenly: a head at the left of the first figure attends '
        'to patches near its own.', subject.command('analyze_attention', *words), look)


def kind_of(subject: Subject) -> str:
    """Features of the feed-forward layers; of a CNN its channels."""
    return 'hidden' if KINDS['hidden'](subject.model) else 'channel'


def chosen_layers(subject: Subject, layers: Sequence[FeatureLayer]) -> list[int]:
    """The layers named, by default some from the first to the last."""
    if subject.args.layers is not None:
        return pick_layers(layers, subject.args.layers)
    return sorted({round(step * (len(layers) - 1) / (SPREAD - 1)) for step in range(SPREAD)})
