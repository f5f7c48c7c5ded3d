"""Models side by side on changed pictures, against loops over images."""
import pytest
import torch
from tiny_pictures import picture_model, tiny_resnet
from torch import nn

from locat_mmseg.analysis.input_changes import make_change, make_changes
from locat_mmseg.analysis.picture_model import PictureModel
from locat_mmseg.analysis.robustness import (Probed, confounders, normalise, score_changes,
                                             score_map_parts, score_parts)
from locat_mmseg.analysis.scores import MapScores

RANDOM = torch.Generator().manual_seed(0)
X, Y = torch.rand(5, 3, 64, 64, generator=RANDOM), torch.tensor([0, 1, 2, 5, 6])
BATCHES = [(X[:3], Y[:3]), (X[3:], Y[3:])]


class Colour(nn.Module):
    """Logit maps that say which of three classes the colour of a pixel is."""

    def forward(self, pictures):
        return 10 * pictures


def colours():
    return PictureModel(Colour(), (0, 0, 0), (1, 1, 1))


def top1(model, pictures):
    hits = sum(model(one[None]).argmax().item() == label.item() for one, label in zip(pictures, Y))
    return 100 * hits / len(Y)


@torch.no_grad()
def test_transformers_and_a_cnn_side_by_side():
    models = [Probed('ViT', picture_model('vit')), Probed('LocAtViT', picture_model('locatvit')),
              Probed('ResNet', tiny_resnet())]
    changes = [*make_changes('low_pass', [0.2, 2 ** 0.5]), make_change('shuffle', 16)]
    seen = []
    rows = score_changes(models, BATCHES, changes, report=seen.append)
    assert seen == [3, 5]
    assert [(row['model'], row['change'], row['value']) for row in rows] == [
        (model.name, *change) for model in models for change in (
            ('whole', None), ('low_pass', 0.2), ('low_pass', 2 ** 0.5), ('shuffle', 16))]
    for number, model in enumerate(models):
        whole, low, full, shuffled = rows[4 * number:4 * number + 4]
        assert whole['top1'] == pytest.approx(top1(model.model, X))
        assert full['cross_entropy'] == pytest.approx(whole['cross_entropy'], abs=1e-3)
        assert full['top5'] == whole['top5']
        for row, change in ((low, changes[0]), (shuffled, changes[2])):
            assert row['top1'] == pytest.approx(top1(model.model, change.pictures(X)))
            assert row['cross_entropy'] != pytest.approx(whole['cross_entropy'], abs=1e-4)


@torch.no_grad()
def test_each_model_sees_its_own_size():
    sizes = []
    model = colours()
    model.network.register_forward_hook(lambda *args: sizes.append(tuple(args[1][0].shape[-2:])))
    pictures, labels = X[:1], (X[:1] * 3).long()[:, 0].clamp(max=2)
    score_changes([Probed('a', model), Probed('b', model, (16, 24))], [(pictures, labels)], [],
                  lambda: MapScores(3))
    assert sizes == [(64, 64), (16, 24)]


@pytest.mark.parametrize('kind, value', [('shuffle', 4), ('shift', 5), ('rotate', 90),
                                         ('rotate', 30)])
def test_label_maps_follow_geometric_changes(kind, value):
    """A model that looks at single pixels loses nothing by them."""
    labels = torch.randint(3, (2, 16, 16), generator=torch.Generator().manual_seed(1))
    labels = labels.repeat_interleave(2, 1).repeat_interleave(2, 2)
    labels[0, :6] = 9
    pictures = nn.functional.one_hot(labels.clamp(max=2), 3).movedim(-1, 1).float()
    rows = score_changes([Probed('m', colours())], [(pictures, labels)],
                         [make_change(kind, value)], lambda: MapScores(3, 9), void=9)
    whole, changed = rows
    assert whole['mIoU'] == 100
    if value == 30:  # pixels are mixed at edges
        assert 60 < changed['normalised_mIoU'] < 100
    else:
        assert changed['mIoU'] == changed['normalised_mIoU'] == 100


def test_normalised_by_hand():
    rows = normalise([dict(model='a', change='whole', top1=80., top5=0.),
                      dict(model='a', change='x', top1=20., top5=0.)])
    assert rows[1]['normalised_top1'] == 25 and rows[1]['normalised_top5'] is None
    assert rows[0]['normalised_top1'] == 100


@torch.no_grad()
def test_parts_of_classified_pictures():
    models = [Probed('ViT', picture_model('vit')), Probed('ResNet', tiny_resnet())]
    dark = X.clone()
    dark[..., 20:, :] = 0
    parts = dict(whole=BATCHES, foreground=[(dark, Y)], background=[(X - dark, Y)])
    rows = score_parts(models, parts)
    assert [(row['model'], row['change']) for row in rows] == [
        (name, part) for name in ('ViT', 'ResNet') for part in parts]
    for row, pictures in zip(rows, (X, dark, X - dark) * 2):
        model = next(one.model for one in models if one.name == row['model'])
        assert row['top1'] == pytest.approx(top1(model, pictures))
    with pytest.raises(ValueError, match="the parts have {'whole': 5, 'foreground': 3} pictures"):
        score_parts(models, dict(whole=BATCHES, foreground=BATCHES[:1]))


def test_parts_of_label_maps_by_hand():
    labels = torch.tensor([[[0, 0, 1], [2, 9, 1]]])
    pictures = nn.functional.one_hot(labels.clamp(max=2), 3).movedim(-1, 1).float()
    pictures[0, :, 0, 1] = torch.tensor([0., 1., 0.])  # one pixel of class 0 looks like class 1
    shown = []

    class Neighbours(Colour):
        """Sees 2 where a picture is black, and 1 everywhere if a corner is visible."""

        def forward(self, images):
            shown.append(images.clone())
            logits = super().forward(images)
            logits[:, 2] += 1
            return logits

    model = PictureModel(Neighbours(), (0, 0, 0), (1, 1, 1))
    rows = score_map_parts([Probed('m', model)], [(pictures, labels)], 3, [0], void=9)
    whole, front, back = shown
    assert torch.equal(front, pictures * (labels == 0)) and torch.equal(
        back, pictures * ((labels == 1) | (labels == 2)))
    foreground, background = rows
    # of the two pixels of class 0 one is found; the background's three are all right
    assert foreground == dict(model='m', change='foreground', value=None, mIoU=50, aAcc=50,
                              whole_mIoU=50, whole_aAcc=50, normalised_mIoU=100,
                              normalised_aAcc=100)
    assert background['mIoU'] == background['whole_mIoU'] == 100


def test_errors():
    model = Probed('m', colours())
    for foreground in ([], [0, 1, 2], [3], [-1]):
        with pytest.raises(ValueError, match='of 3 classes: expected some labels from 0 to 2'):
            score_map_parts([model], [], 3, foreground)
    with pytest.raises(ValueError, match=r"models \['m', 'm'\]: expected names and changes that d"):
        score_changes([model, model], BATCHES, [])
    with pytest.raises(ValueError, match='no images'):
        score_changes([model], [], [])


def test_confounders_name_what_differs():
    models = [dict(name='a', weights='w1', parameters=5, size=None),
              dict(name='b', weights='w2', parameters=7, size=(8, 9))]
    text = '\n'.join(confounders(models, 'boxes'))
    assert 'a w1, b w2' in text and 'a 5, b 7' in text and 'a None, b (8, 9)' in text
    assert 'training images, on which' in text and 'masks are exact' not in text
    assert 'masks are exact' in confounders(models, 'masks')[-1]
