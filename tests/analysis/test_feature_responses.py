"""Responses to changed pictures, against a loop over features."""
import pytest
import torch
from tiny_pictures import picture_model, pictures, tiny_resnet

from locat_mmseg.analysis.feature_hooks import FeatureReader, pool
from locat_mmseg.analysis.feature_layers import feature_layers
from locat_mmseg.analysis.feature_responses import BestResponses, feature_responses
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
        befores, afters = [], []
        for feature in range(plain[number].shape[1]):
            scores = [one.item() for one in plain[number][:, feature]]
            best = scores.index(max(scores))
            values = [max(scores), *(copy[number][best, feature].item()
                                     for copy in copies[row['change']])]
            befores.append(values[0])
            afters.append(sum(values) / len(values))
        for name, expected in (('before', befores), ('after', afters)):
            assert row[name] == pytest.approx(sum(expected) / len(expected), rel=1e-3, abs=1e-5)
        active = [index for index, before in enumerate(befores) if before > 0]
        ratio = sum(afters[i] for i in active) / sum(befores[i] for i in active)
        assert row['ratio'] == pytest.approx(ratio, rel=1e-3, abs=1e-5)


def test_an_unchanged_copy_leaves_everything():
    model = picture_model('vit')
    rows = feature_responses(model, [pictures(model, 3)], [make_change('shift', 0)])
    assert all(row['ratio'] == pytest.approx(1, abs=1e-4) for row in rows)


def test_features_that_barely_respond_do_not_decide():
    best = BestResponses()
    best.update(torch.tensor([[1., 1e-6, -1.], [0.5, 1e-7, -2.]]),
                torch.tensor([[0.5, -1., -3.], [0.1, 0., 0.]]))
    assert best.result()['ratio'] == pytest.approx((0.5 - 1) / (1 + 1e-6))
    best = BestResponses()
    best.update(torch.tensor([[-1.]]), torch.tensor([[-2.]]))
    assert best.result()['ratio'] is None


def test_no_pictures():
    with pytest.raises(ValueError, match='no pictures'):
        feature_responses(picture_model('vit'), [], [make_change('shift', 1)])
