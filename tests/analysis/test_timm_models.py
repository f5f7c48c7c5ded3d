"""timm models by name: their normalisation, their weights, GAug if the weights have it."""
import pytest
import safetensors.torch
import timm
import torch
from tiny_timm import TINY_SEQUENCE, tiny_vit

from locat_mmseg.addon import add_gaug
from locat_mmseg.analysis.feature_hooks import FeatureReader
from locat_mmseg.analysis.feature_layers import feature_layers
from locat_mmseg.analysis.features import pooled_features
from locat_mmseg.analysis.timm_models import load_timm, timm_model, with_classifier

NAME = 'vit_tiny_patch16_224'


@pytest.mark.parametrize('suffix', ['.safetensors', '.pth'])
@pytest.mark.parametrize('gaug', [False, True])
def test_weights_of_a_file(tmp_path, suffix, gaug):
    model = add_gaug(tiny_vit()) if gaug else tiny_vit()
    path = tmp_path / f'weights{suffix}'
    save = safetensors.torch.save_file if suffix == '.safetensors' else torch.save
    save(model.state_dict(), path)
    sizes = {key: value for key, value in TINY_SEQUENCE.items() if key != 'num_classes'}
    loaded = load_timm(NAME, str(path), **sizes)
    x = torch.rand(2, 3, 48, 80)
    with torch.no_grad():
        torch.testing.assert_close(loaded(x), model.eval()((x - 0.5) / 0.5))
    assert not loaded.training and not any(p.requires_grad for p in loaded.parameters())


@pytest.mark.parametrize('gaug', [False, True])
@pytest.mark.parametrize('num_classes', [0, 7])
def test_weights_of_a_file_without_the_classifier(tmp_path, num_classes, gaug):
    model = timm.create_model('test_vit', num_classes=num_classes)
    model = (add_gaug(model) if gaug else model).eval()
    torch.save(dict(state_dict=model.state_dict()), tmp_path / 'a.pth')
    loaded = timm_model('test_vit', str(tmp_path / 'a.pth'), classifier=False)
    image = torch.randn(1, 3, 160, 160)
    assert loaded.num_classes == 0 and not loaded.training
    torch.testing.assert_close(loaded.forward_features(image), model.forward_features(image))


@pytest.mark.parametrize('name, sizes', [
    ('deit_tiny_distilled_patch16_224', dict(depth=1)), ('twins_svt_small', dict(
        embed_dims=(16, 16, 16, 16), depths=(1, 2, 1, 1), num_heads=(1, 2, 2, 2)))])
def test_other_families_without_the_classifier(tmp_path, name, sizes):
    """Two classifiers, or blocks inside blocks."""
    model = timm.create_model(name, num_classes=5, **sizes).eval()
    torch.save(model.state_dict(), tmp_path / 'a.pth')
    loaded = timm_model(name, str(tmp_path / 'a.pth'), classifier=False, **sizes)
    image = torch.randn(1, 3, 224, 224)
    with torch.no_grad():
        torch.testing.assert_close(loaded.forward_features(image), model.forward_features(image))


@pytest.mark.parametrize('name, sizes', [
    ('test_vit', {}), ('test_resnet', {}), ('swin_tiny_patch4_window7_224', dict(
        embed_dim=12, depths=(1, 1), num_heads=(2, 2)))])
@pytest.mark.parametrize('num_classes', [0, 7])
def test_another_classifier(tmp_path, name, sizes, num_classes):
    model = timm.create_model(name, num_classes=num_classes, **sizes).eval()
    image = torch.randn(2, 3, *model.default_cfg['input_size'][1:])
    with torch.no_grad():
        features = pooled_features(model, image)
        weight, bias = torch.randn(5, features.shape[1]), torch.randn(5)
        safetensors.torch.save_file(with_classifier(name, model, weight, bias),
                                    tmp_path / 'a.safetensors')
        loaded = timm_model(name, str(tmp_path / 'a.safetensors'), **sizes)
        torch.testing.assert_close(loaded(image), features @ weight.T + bias)


def test_another_classifier_in_the_place_of_two():
    name = 'deit_tiny_distilled_patch16_224'
    with pytest.raises(ValueError, match=rf'{name} has 2 classifiers \(head, head_dist\)'):
        with_classifier(name, timm.create_model(name, depth=1), torch.zeros(3, 192),
                        torch.zeros(3))


def test_another_size(tmp_path):
    torch.save(timm.create_model('test_vit').state_dict(), tmp_path / 'a.pth')
    model = timm_model('test_vit', str(tmp_path / 'a.pth'), img_size=64)
    assert model.patch_embed.grid_size == (4, 4)


def test_weights_that_cannot_be_fetched(monkeypatch):
    def fail(*args, **kwargs):
        raise OSError('no network')
    monkeypatch.setattr('timm.create_model', fail)
    with pytest.raises(ValueError, match=r'weights of timm model test_vit cannot be had \(no netw'
                                         r"ork\): give weights as a file, or 'random'"):
        timm_model('test_vit')


def test_normalisation_and_size_are_those_of_timm():
    model = load_timm('vit_base_patch32_clip_quickgelu_224', 'random', **TINY_SEQUENCE)
    assert model.mean.flatten().tolist() == pytest.approx([.48145466, .4578275, .40821073])
    assert model.std.flatten().tolist() == pytest.approx([.26862954, .26130258, .27577711])
    assert load_timm('resnet18', 'random').size == (224, 224)


def test_a_file_without_classifier_or_of_a_family_with_a_fixed_size(tmp_path):
    torch.save(tiny_vit(num_classes=0).state_dict(), tmp_path / 'vit.pth')
    sizes = {key: value for key, value in TINY_SEQUENCE.items() if key != 'num_classes'}
    assert load_timm(NAME, str(tmp_path / 'vit.pth'), **sizes).core.num_classes == 0
    pit = dict(img_size=64, base_dims=(8, 8, 8), depth=(1, 1, 1))
    torch.save(load_timm('pit_ti_224', 'random', **pit, num_classes=5).network.state_dict(),
               tmp_path / 'pit.pth')
    model = load_timm('pit_ti_224', str(tmp_path / 'pit.pth'), **pit)
    assert model(torch.rand(1, 3, 64, 64)).shape == (1, 5)


def test_swin_takes_other_sizes():
    model = load_timm('swin_tiny_patch4_window7_224', 'random', embed_dim=12, depths=(1, 1),
                      num_heads=(2, 2))
    found = FeatureReader(model, feature_layers(model))(torch.rand(1, 3, 60, 90))
    assert [f.shape[1] for f in found] == [15 * 23, 8 * 12]


class Program:
    """What unpickling would run."""


@pytest.mark.parametrize('build', [load_timm, timm_model])
def test_mistakes(tmp_path, build):
    with pytest.raises(ValueError, match="'vit_tinny_patch16_224' is no model of timm .*vit_tiny_"):
        build('vit_tinny_patch16_224')
    with pytest.raises(ValueError, match='weights nowhere.pth cannot be read .*; expected a file'):
        build(NAME, 'nowhere.pth')
    (tmp_path / 'broken.safetensors').write_text('x')
    with pytest.raises(ValueError, match='broken.safetensors cannot be read'):
        build(NAME, str(tmp_path / 'broken.safetensors'))
    torch.save({'state_dict': {}, 'args': Program()}, tmp_path / 'program.pth')
    with pytest.raises(ValueError, match='program.pth is refused: reading it would run code'):
        build(NAME, str(tmp_path / 'program.pth'))
    torch.save({'a': torch.zeros(1)}, tmp_path / 'other.pth')
    for name in (NAME, 'pit_ti_224', 'resnet10t'):
        with pytest.raises(ValueError, match='other.pth: these weights are not of this'):
            build(name, str(tmp_path / 'other.pth'))
