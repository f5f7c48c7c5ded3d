"""Responses to changed pictures, against a loop over features."""
import pytest
import torch
from tiny_pictures import picture_model, pictures, tiny_resnet

from locat_mmseg.analysis.feature_hooks import FeatureReader, pool
from locat_mmseg.analysis.feature_layers import feature_layers
from locat_mmseg.analysis.feature_responses import feature_responses
from locat_mmseg.analysis.input_changes import make_change, make_changes


@pytest.mark.parametrize('make, kind', [(lambda: picture_model('vit'), 'hidden'),
                                        (lambda: picture_model('LocAtViT'), 'hidden'),
                                        (tiny_resnet, 'channel')])
@torch.no_grad()
def test_against_a_loop(make, kind):
    model = make()
    x = pictures(model, 5)
    changes = [*make_changes('rotate', [40, 80]), make_change('shift', 3)]
    seen = []
    rows = feature_responses(model, [x[:2], x[2:]], changes, seen.append)
    layers = feature_layers(model, kind)
    assert seen == [2, 5]
    assert [(row['change'], row['layer']) for row in rows] == [
        (name, layer.name) for name in ('rotate', 'shift') for layer in layers]
    reader = FeatureReader(model, layers, reduce=pool)
    plain = reader(x)
    copies = {name: [reader(change.pictures(x)) for change in changes if change.kind == name]
              for name in ('rotate', 'shift')}
    for row in rows:
        number = [layer.name for layer in layers].index(row['layer'])
        befores, afters, ratios = [], [], []
        for feature in range(plain[number].shape[1]):
            scores = [one.item() for one in plain[number][:, feature]]
            best = scores.index(max(scores))
            values = [max(scores), *(copy[number][best, feature].item()
                                     for copy in copies[row['change']])]
            befores.append(values[0])
            afters.append(sum(values) / len(values))
            if values[0] > 0:
                ratios.append(afters[-1] / values[0])
        for name, expected in (('before', befores), ('after', afters), ('ratio', ratios)):
            assert row[name] == pytest.approx(sum(expected) / len(expected), rel=1e-3, abs=1e-5)


def test_an_unchanged_copy_leaves_everything():
    model = picture_model('vit')
    rows = feature_responses(model, [pictures(model, 3)], [make_change('shift', 0)])
    assert all(row['ratio'] == pytest.approx(1, abs=1e-4) for row in rows)


def test_no_pictures():
    with pytest.raises(ValueError, match='no pictures'):
        feature_responses(picture_model('vit'), [], [make_change('shift', 1)])
