"""Activation maximisation finds what is known to be best, by seed, for all features at once."""
from dataclasses import replace

import pytest
import torch
from tiny_pictures import picture_model, tiny_resnet
from torch import nn

from locat_mmseg.analysis.feature_hooks import FeatureReader, pool
from locat_mmseg.analysis.feature_layers import feature_layers
from locat_mmseg.analysis.feature_vis import PRESETS, Recipe, initial_pictures, maximize_features
from locat_mmseg.analysis.objectives import total_variation
from locat_mmseg.analysis.picture_model import PictureModel

SIZE = (4, 6)
PLAIN = Recipe(augmentations=(), regularizers=(), copies=1, steps=60)


class Mlp(nn.Module):
    def __init__(self, filters):
        super().__init__()
        self.fc1 = nn.Linear(filters.shape[1], len(filters), bias=False)
        self.fc1.weight.data = filters
        self.fc2 = nn.Linear(len(filters), 2)

    def forward(self, x):
        return self.fc2(self.fc1(x))


class LinearFilters(nn.Module):
    """Feature i of its only layer is the product of the picture with filter i."""

    def __init__(self, filters):
        super().__init__()
        self.mlp = Mlp(filters)

    def forward(self, x):
        return self.mlp(x.flatten(1)[:, None])


@pytest.fixture
def filters():
    return torch.randn(5, 3 * SIZE[0] * SIZE[1], generator=torch.Generator().manual_seed(0))


@pytest.fixture
def linear(filters):
    return PictureModel(LinearFilters(filters), (0., 0., 0.), (1., 1., 1.), size=SIZE)


def maximize(model, features, recipe, size=SIZE, **kwargs):
    return maximize_features(model, feature_layers(model)[0], features, size, recipe, **kwargs)


def test_the_picture_converges_to_a_linear_filter(linear, filters):
    """The maximum of w x - c mean((x - 0.5)^2) over N pixels is 0.5 + w N / (2 c)."""
    weight = 10 * filters.shape[1]
    recipe = replace(PLAIN, regularizers=(('distance_from_grey', float(weight)), ), steps=400,
                     lr=0.03)
    made = maximize(linear, [3, 1], recipe)
    for picture, w in zip(made.pictures, filters[[3, 1]]):
        expected = (0.5 + w / 20).clamp(0, 1).view(3, *SIZE)
        torch.testing.assert_close(picture, expected, atol=2e-3, rtol=0)
    torch.testing.assert_close(made.activations, (made.pictures.flatten(1) *
                                                  filters[[3, 1]]).sum(1))


@pytest.mark.parametrize('preset', PRESETS)
def test_within_bounds_the_best_picture_is_the_sign_of_the_filter(linear, filters, preset):
    """Colour and noise leave the mean of a linear feature's gradient where it was."""
    names = tuple(name for name in PRESETS[preset].augmentations if name != 'jitter')
    assert len(names) == 2
    recipe = replace(PRESETS[preset], augmentations=names, regularizers=(), steps=60)
    made = maximize(linear, [2], recipe)
    assert torch.equal(made.pictures[0], (filters[2] > 0).float().view(3, *SIZE))
    assert made.activations > made.start
    least = maximize(linear, [2], replace(recipe, activation_weight=-1.))
    assert torch.equal(least.pictures[0], (filters[2] < 0).float().view(3, *SIZE))


def test_total_variation_smooths(linear):
    rough, smooth = (
        maximize(linear, [0], replace(PLAIN, steps=30, regularizers=(('total_variation', w), )))
        for w in (0., 20.))
    assert total_variation(smooth.pictures) < 0.5 * total_variation(rough.pictures)


def test_first_step_is_that_of_adam(linear, filters):
    """Adam's first step has the length of the learning rate, along the sign of the gradient."""
    start, _ = initial_pictures([4], SIZE, torch.device('cpu'))
    made = maximize(linear, [4], replace(PLAIN, steps=2, lr=0.01))  # the second has lr 0
    expected = (start[0] + 0.01 * filters[4].sign().view(3, *SIZE)).clamp(0, 1)
    torch.testing.assert_close(made.pictures[0], expected)
    torch.testing.assert_close(made.history[0], made.start)


def test_the_learning_rate_falls_by_a_cosine(linear):
    """Over 401 steps of a constant gradient the step lengths are those of the schedule."""
    seen = []

    def note(step, activations):
        seen.append(activations.item())
    linear.network.mlp.fc1.weight.data.fill_(1e-3)
    start, _ = initial_pictures([0], SIZE, torch.device('cpu'))
    maximize(linear, [0], replace(PLAIN, steps=5, lr=0.004), report=note)
    rates = [0.004 * (1 + torch.cos(torch.tensor(k * torch.pi / 4)).item()) / 2 for k in range(4)]
    expected = start.sum() * 1e-3 + torch.tensor([0, *rates]).cumsum(0) * 72e-3
    torch.testing.assert_close(torch.tensor(seen), expected, rtol=1e-3, atol=0)


@pytest.mark.parametrize('family', ['vit', 'locatvit'])
def test_same_seed_same_picture_alone_or_among_others(family):
    model = picture_model(family)
    recipe = replace(PRESETS['paper'], steps=3, copies=2)
    run = dict(recipe=recipe, size=model.size)
    both = maximize(model, [5, 9], **run)
    for number, feature in enumerate((5, 9)):
        alone = maximize(model, [feature], **run)
        torch.testing.assert_close(alone.pictures[0], both.pictures[number], atol=1e-3, rtol=0)
    again = maximize(model, [5, 9], **run)
    assert torch.equal(again.pictures, both.pictures)
    other = maximize(model, [5, 9], **run, seed=1)
    assert not torch.allclose(other.pictures, both.pictures, atol=0.05)


@pytest.mark.parametrize('family, kind', [
    ('vit', 'hidden'), ('coat', 'hidden'), ('swin', 'keys'), ('pit', 'values'), ('clip', 'head'),
    ('convit', 'attention'), ('twins_svt', 'queries'), ('LocAtViT', 'hidden'),
    ('LocAtSwin', 'hidden'), ('vit', 'logit')])
def test_activation_rises_in_every_family(family, kind):
    model = picture_model(family)
    layer = feature_layers(model, kind)[-1]
    made = maximize_features(model, layer, [0, 1], model.size,
                             replace(PLAIN, steps=12, lr=0.05))
    assert (made.activations > made.start).all()
    assert made.history.shape == (12, 2)
    assert made.pictures.shape == (2, 3, *model.size)
    assert made.pictures.min() >= 0 and made.pictures.max() <= 1


def test_a_cnn_and_a_segmentation_class():
    model = tiny_resnet()
    layer = feature_layers(model, 'channel')[1]
    alive = FeatureReader(model, [layer], reduce=pool)(torch.rand(1, 3, 40, 48))[0].argmax().item()
    made = maximize_features(model, layer, [alive], (40, 48),
                             replace(PLAIN, steps=8, objective='token_norm'))
    assert made.activations > made.start
    segmentor = PictureModel(nn.Conv2d(3, 2, 3), (0.5,) * 3, (0.2,) * 3, bgr=True)
    made = maximize_features(segmentor, feature_layers(segmentor, 'logit')[0], [1], (8, 9), PLAIN)
    weight = segmentor.network.weight[1].sum((1, 2)).flip(0)  # blue comes first
    inner = made.pictures[0, :, 2:-2, 2:-2].mean((1, 2))
    assert torch.equal(inner > 0.5, weight > 0)


def test_extra_augmentations_change_the_size_that_the_model_sees():
    model = picture_model('vit')
    made = maximize(model, [0], replace(PLAIN, steps=2, augmentations=('tile', )), size=(32, 32))
    assert made.pictures.shape == (1, 3, 32, 32)


def test_presets_are_those_of_paper_and_code():
    paper, code = PRESETS['paper'], PRESETS['repository']
    for recipe in (paper, code):
        assert (recipe.steps, recipe.copies, recipe.lr) == (401, 8, 0.1)
    assert paper.augmentations == ('jitter', 'scale_shift', 'pixel_noise')
    assert code.augmentations == ('shift_scale', 'channel_noise', 'jitter')
    assert dict(paper.regularizers) == {'total_variation': 5e-5} and paper.activation_weight == 1
    assert dict(code.regularizers) == {'total_variation': 5e-4}
    assert code.activation_weight == 0.125


@pytest.mark.parametrize('change, message', [
    (dict(objective='mean'), "objective 'mean': expected one of .'token_mean'"),
    (dict(regularizers=(('tv', 1.), )), "regularizer 'tv': expected one of .'total_variation'"),
    (dict(augmentations=('blur', )), "augmentation 'blur'"),
    (dict(steps=0), 'steps=0, copies=1: expected at least 1')])
def test_wrong_recipes(linear, change, message):
    with pytest.raises(ValueError, match=message):
        maximize(linear, [0], replace(PLAIN, **change))


def test_a_feature_that_is_not_there(linear):
    with pytest.raises(ValueError, match='feature 5: layer mlp has features 0 to 4'):
        maximize(linear, [0, 5], PLAIN)
