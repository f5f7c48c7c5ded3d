"""The table of the class-token experiments, against loops over images and tokens."""
import pytest
import timm
import torch
from tiny_backbones import vit
from tiny_models import JUMBO as TINY_JUMBO
from tiny_models import VIT as TINY_VIT
from tiny_models import build, classifier
from tiny_pictures import picture_model, pictures, tiny_resnet
from tiny_timm import randomize, tiny_jumbo, tiny_vit
from torch import nn

from locat_mmseg.addon import add_gaug
from locat_mmseg.analysis.class_token_scores import score_class_token, score_isolated_maps
from locat_mmseg.analysis.picture_model import PictureModel
from locat_mmseg.analysis.scores import ClassScores
from locat_mmseg.layers import refine

MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.25, 0.3)
RANDOM = torch.Generator().manual_seed(0)
X, Y = torch.rand(6, 3, 48, 80, generator=RANDOM), torch.tensor([0, 1, 2, 3, 4, 6])


def wrapped(model):
    return PictureModel(randomize(model), MEAN, STD)


def shell(backbone, **neck):
    """An mmpretrain classifier of three blocks with a neck that refines, as a tool wraps it."""
    model = randomize(build('mmpretrain', classifier(backbone, **neck)))
    return PictureModel(model, MEAN, STD, core=model.backbone.model)


def by_name(table):
    return {(row['experiment'], row['layer']): {name: row[name] for name in (
        'top1', 'top5', 'cross_entropy')} for row in table.rows}


def scored(logits, labels=Y):
    scores = ClassScores()
    scores.update(logits, labels)
    return pytest.approx(scores.result(), abs=1e-3)


@torch.no_grad()
def test_readouts_of_a_plain_vit():
    model = wrapped(tiny_vit())
    table = score_class_token(model, [(X[:4], Y[:4]), (X[4:], Y[4:])], patch=(2, 1))
    rows, core = by_name(table), model.core
    tokens = core.forward_features((X - model.mean) / model.std)
    assert table.images == 6 and not table.left_out
    assert rows['plain', None] == scored(core.head(tokens[:, 0]))
    assert rows['mean of patches', None] == scored(core.head(tokens[:, 1:].mean(1)))
    assert rows['mean of patches and class token', None] == scored(core.head(tokens.mean(1)))
    assert rows['patch 2, 1 alone', None] == scored(core.head(tokens[:, 1 + 2 * 5 + 1]))
    each = [by_name(score_class_token(model, [(X, Y)], [], (row, column)))[
        f'patch {row}, {column} alone', None] for row in range(3) for column in range(5)]
    for name in ('top1', 'top5', 'cross_entropy'):
        values = torch.tensor([one[name] for one in each])
        torch.testing.assert_close(table.heat_maps[name].float(), values.view(3, 5), atol=1e-4,
                                   rtol=1e-5)
        best = values.min() if name == 'cross_entropy' else values.max()
        assert rows['each patch alone, average', None][name] == pytest.approx(
            values.mean().item(), abs=1e-3)
        assert rows['each patch alone, best position', None][name] == pytest.approx(
            best.item(), abs=1e-3)


CLASSIFIERS = {
    'vit': lambda: wrapped(tiny_vit()), 'locatvit': lambda: wrapped(add_gaug(tiny_vit())),
    'deit': lambda: picture_model('deit'), 'jumbo': lambda: wrapped(tiny_jumbo()),
    'prr': lambda: shell(TINY_VIT), 'plain neck': lambda: shell(TINY_VIT, refine=False),
    'registers': lambda: shell(dict(TINY_VIT, num_registers=4), num_prefix_tokens=5),
    'jumbo with prr': lambda: shell(TINY_JUMBO, num_prefix_tokens=2, num_class_tokens=2),
}


@pytest.mark.parametrize('make', CLASSIFIERS.values(), ids=CLASSIFIERS.keys())
@torch.no_grad()
def test_layer_0_is_plain_and_the_last_is_constant(make):
    model = make()
    x = X if model.size == (224, 224) else pictures(model, 6)
    labels = Y % 3
    rows = by_name(score_class_token(model, [(x, labels)]))
    last = max(layer for _, layer in rows if layer is not None)
    plain = pytest.approx(rows['plain', None], abs=1e-3)
    assert rows['isolated class token', 0] == plain
    assert rows['class token only', last] == plain
    assert rows['class token only', 0] == pytest.approx(rows['isolated class token', last],
                                                        abs=1e-3)
    # A constant prediction finds every image of its class and no other.
    shares = {100 * (labels == label).float().mean().item() for label in range(7)}
    assert rows['class token only', 0]['top1'] in [pytest.approx(share) for share in shares]
    entropies = [rows[name, layer]['cross_entropy'] for name, layer in rows if layer == 1]
    assert all(abs(one - rows['plain', None]['cross_entropy']) > 1e-4 for one in entropies)


def test_refinement_is_a_layer():
    depth = len(shell(TINY_VIT).core.blocks)
    layers = {refined: {layer for _, layer in by_name(score_class_token(
        shell(TINY_VIT, refine=refined), [(X, Y % 3)]))} - {None} for refined in (True, False)}
    assert layers == {True: set(range(depth + 2)), False: set(range(depth + 1))}


@torch.no_grad()
def test_patches_are_read_after_the_refinement():
    model = shell(dict(TINY_VIT, num_registers=4), num_prefix_tokens=5)
    rows = by_name(score_class_token(model, [(X, Y % 3)]))
    tokens = refine(model.network.backbone((X - model.mean) / model.std)[-1], 3)
    fc = model.network.head.fc
    assert rows['mean of patches', None] == scored(fc(tokens[:, 5:].mean(1)), Y % 3)
    assert rows['mean of registers', None] == scored(fc(tokens[:, 1:5].mean(1)), Y % 3)
    without = torch.cat([tokens[:, :1], tokens[:, 5:]], 1)
    assert rows['mean of patches and class token', None] == scored(fc(without.mean(1)), Y % 3)


def test_what_does_not_apply_is_said():
    jumbo = score_class_token(wrapped(tiny_jumbo()), [(X, Y)])
    assert jumbo.left_out == ['means and single patches: the classifier reads 3 tokens joined to '
                              'one vector']
    assert not jumbo.heat_maps
    average = wrapped(tiny_vit(global_pool='avg'))
    table = score_class_token(average, [(X, Y)])
    assert table.left_out == ['isolated class token, class token only: the classifier pools '
                              'patches, no class token']
    rows = by_name(table)
    assert rows['mean of patches', None] == pytest.approx(rows['plain', None], abs=1e-3)
    assert {layer for _, layer in rows} == {None}


class LinearProbe(nn.Module):
    """A registered backbone, and a linear classifier of its patches."""

    def __init__(self):
        super().__init__()
        self.backbone = randomize(vit())
        self.classify = nn.Conv2d(24, 3, 1, bias=False)

    def forward(self, images):
        return self.classify(self.backbone(images)[0])


@torch.no_grad()
def test_isolation_by_miou():
    torch.manual_seed(0)
    probe = LinearProbe()
    model = PictureModel(probe, MEAN, STD, core=probe.backbone.model)
    x, labels = torch.rand(3, 3, 32, 48), torch.randint(3, (3, 32, 48))
    seen = []
    table = score_isolated_maps(model, [(x[:2], labels[:2]), (x[2:], labels[2:])], 3,
                                report=seen.append)
    rows = {(row['experiment'], row['layer']): row['aAcc'] for row in table.rows}
    assert seen == [2, 3] and table.images == 3
    assert set(rows) == {('plain', None)} | {('isolated class token', n) for n in range(4)}
    assert rows['isolated class token', 0] == rows['plain', None]
    found = nn.functional.interpolate(model(x), (32, 48), mode='bilinear').argmax(1)
    assert rows['plain', None] == pytest.approx(100 * (found == labels).float().mean().item())
    model.core.cls_token.zero_()  # isolated in all blocks, it has no effect on the maps
    again = score_isolated_maps(model, [(x, labels)], 3, layers=[3])
    assert again.rows[1]['aAcc'] == rows['isolated class token', 3] != rows['plain', None]


def test_errors():
    vit = wrapped(tiny_vit())
    with pytest.raises(ValueError, match='layer 3: expected 0 to 2, for 2 layers'):
        score_class_token(vit, [(X, Y)], [0, 3])
    with pytest.raises(ValueError, match=r'patch \(3, 0\): expected a row and a column of the '
                                         r'grid \(3, 5\)'):
        score_class_token(vit, [(X, Y)], [], (3, 0))
    with pytest.raises(ValueError, match=r'pictures of \(3, 5\) and of \(5, 3\) patches'):
        score_class_token(vit, [(X, Y), (X.mT, Y)], [])
    with pytest.raises(ValueError, match='no pictures'):
        score_class_token(vit, [])
    with pytest.raises(ValueError, match='ResNet has no sequence of tokens: take a ViT'):
        score_class_token(tiny_resnet(), [(X, Y)])
    bare = timm.create_model('vit_tiny_patch16_224', depth=1, num_classes=0)
    with pytest.raises(ValueError, match='the model has no classifier'):
        score_class_token(PictureModel(bare, MEAN, STD), [(X, Y)])
