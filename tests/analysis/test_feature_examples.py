"""Examples of features: the best pictures, their maps, and what they mark."""
import numpy as np
import pytest
import torch
from PIL import Image
from tiny_pictures import picture_model

from locat_mmseg.analysis.activation_masks import (MaskMatch, activation_maps, darkened,
                                                   match_classes)
from locat_mmseg.analysis.feature_examples import FeatureExamples, feature_examples, match_rows
from locat_mmseg.analysis.feature_layers import feature_layers
from locat_mmseg.analysis.picture_folder import PictureFolder, to_pixels
from locat_mmseg.analysis.top_images import StreamingTopK


def folder_of_noise(folder, count=3, size=(32, 48)):
    """Pictures with label maps of two classes."""
    random = np.random.default_rng(0)
    for kind in ('images', 'masks'):
        (folder / kind).mkdir()
    for number in range(count):
        pixels = random.integers(0, 256, (*size, 3), np.uint8)
        Image.fromarray(pixels).save(folder / f'images/{number}.png')
        Image.fromarray(pixels[..., 0] // 128).save(folder / f'masks/{number}.png')
    return PictureFolder(folder / 'images', size, folder / 'masks')


def test_examples_are_the_best_pictures_with_their_maps(tmp_path):
    pictures, model = folder_of_noise(tmp_path), picture_model('locatvit')
    layer = feature_layers(model)[1]
    best = StreamingTopK(6, 4)  # of 3 pictures: one place stays empty
    scores = torch.rand(3, 6, generator=torch.Generator().manual_seed(0))
    best.update(scores, 0)
    found, = feature_examples(model, layer, best, [5], pictures, void=7)
    order = scores[:, 5].argsort(descending=True).tolist()
    wanted = torch.stack([pictures[i] for i in order])
    assert found.feature == 5 and found.value == scores[:, 5].max().item()
    assert torch.equal(found.pictures, wanted)
    maps = activation_maps(model, layer, wanted)[..., 5]
    assert torch.equal(found.maps, maps) and maps.shape == (3, 2, 3)
    assert found.match == match_classes(maps, torch.stack([pictures.mask(i) for i in order]), 7)
    assert feature_examples(model, layer, best, [5], pictures)[0].match is None


def test_table_has_means_over_the_features_that_mark_something():
    one = [FeatureExamples(number, 0., torch.empty(0), torch.empty(0), match) for number, match in
           enumerate([MaskMatch(1, 0.5, 0., 0.25, 2., 1.), MaskMatch(0, 0.75, 0., 0.75, 4., 0.),
                      None])]
    header, rows = match_rows(dict(first=one, second=one[2:]))
    assert header[:3] == ['layer', 'features', 'best IoU']
    assert rows == [['first', 2, 0.625, 0.5, 3., 0.5], ['second', 0, None, None, None, None]]


def test_pictures_are_darkened_where_the_map_is_low():
    dark = darkened(torch.ones(1, 3, 2, 4), torch.tensor([[[-1., 3.]]]))
    assert dark[0, 1].tolist() == [pytest.approx([0.2, 0.2, 1, 1])] * 2


def test_pixels_are_rounded_and_clipped():
    picture = torch.tensor([-1., 0.5, 2.]).view(3, 1, 1)
    assert to_pixels(picture).tolist() == [[[0, 128, 255]]]
