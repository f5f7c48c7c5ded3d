"""Checkpoints in timm's names and back, exactly; and stripped, with a hash."""
import hashlib
from pathlib import Path

import pytest
import timm
import torch
from golden import load_golden, relative_error
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from tiny_models import SWIN, VIT, build, classifier, segmentor
from tiny_runs import load_tool, mistake, run
from tiny_timm import randomize
from torch import nn

from locat_mmseg.addon import add_gaug, load_weights
from locat_mmseg.openmmlab.checkpoint_export import in_own_names, in_timm_names

CONVERT, PUBLISH = load_tool('convert_weights').main, load_tool('publish_model').main
AVERAGE = dict(VIT, class_token=False, final_norm=False)
MODELS_HERE = {
    'vit': (VIT, {}), 'regvit': (dict(VIT, num_registers=4), dict(num_prefix_tokens=5)),
    'ropevit': (dict(VIT, rope=True), {}), 'plain': (dict(VIT, gaug=False), {}), 'swin': (SWIN, {}),
    'average': (AVERAGE, dict(pool='avg', num_prefix_tokens=0, norm=True)),
}


def save(model: nn.Module, path: Path, **more) -> Path:
    torch.save(dict(meta={}, state_dict=model.state_dict(), **more), path)
    return path


@pytest.mark.parametrize('name', MODELS_HERE)
def test_round_trip_is_exact(name: str, tmp_path: Path, capsys: pytest.CaptureFixture):
    backbone, neck = MODELS_HERE[name]
    model = randomize(build('mmpretrain', classifier(backbone, **neck)))
    source = save(model, tmp_path / 'ours.pth')
    run(CONVERT, source, tmp_path / 'timm.safetensors', '--to', 'timm')
    run(CONVERT, tmp_path / 'timm.safetensors', tmp_path / 'again.pth', '--to', 'locat')
    assert capsys.readouterr().out.count('without a place in it: nothing') == 2
    again = torch.load(tmp_path / 'again.pth')['state_dict']
    assert again.keys() == model.state_dict().keys()
    assert all(torch.equal(weight, again[key]) for key, weight in model.state_dict().items())
    run(CONVERT, tmp_path / 'again.pth', tmp_path / 'twice.safetensors', '--to', 'timm')
    assert (tmp_path / 'twice.safetensors').read_bytes() \
        == (tmp_path / 'timm.safetensors').read_bytes()


def test_timm_computes_the_same_from_it(tmp_path: Path):
    """Plain, in timm alone; with GAug, in timm with the add-on. Without PRR, which timm's pooling
    has not."""
    for gaug in (False, True):
        model = randomize(build('mmpretrain', classifier(dict(VIT, gaug=gaug), refine=False)))
        run(CONVERT, save(model, tmp_path / 'a.pth'), tmp_path / 'a.safetensors', '--to', 'timm')
        with safe_open(tmp_path / 'a.safetensors', 'pt') as file:
            assert file.metadata() == dict(format='pt')
        target = timm.create_model('vit_tiny_patch16_224', img_size=32, patch_size=8, embed_dim=24,
                                   depth=3, num_heads=3, mlp_ratio=2, num_classes=3)
        if gaug:
            target = add_gaug(target)
        target.load_state_dict(load_file(tmp_path / 'a.safetensors'))  # strict
        x = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
        torch.testing.assert_close(target.eval()(x), model.eval()(x))


@pytest.mark.parametrize('name', ['vit', 'vit_avgpool', 'regvit', 'ropevit', 'swin'])
def test_the_reference_there_and_back(name: str, tmp_path: Path):
    """Its names are those of timm: nothing changes on the way, and nothing is lost."""
    state = load_golden(name).state
    save_file(state, tmp_path / 'reference.safetensors')
    run(CONVERT, tmp_path / 'reference.safetensors', tmp_path / 'ours.pth', '--to', 'locat')
    run(CONVERT, tmp_path / 'ours.pth', tmp_path / 'again.safetensors', '--to', 'timm')
    again = load_file(tmp_path / 'again.safetensors')
    assert again.keys() == state.keys()
    assert all(torch.equal(weight, again[key]) for key, weight in state.items())
    ours = torch.load(tmp_path / 'ours.pth')['state_dict']
    assert {key.partition('.')[0] for key in ours} == {'backbone', 'head'} | (
        {'neck'} if name == 'vit_avgpool' else set())


def test_a_converted_classifier_gives_the_reference_logits(tmp_path: Path):
    golden = load_golden('vit')
    save_file(golden.state, tmp_path / 'reference.safetensors')
    run(CONVERT, tmp_path / 'reference.safetensors', tmp_path / 'ours.pth', '--to', 'locat')
    meta = golden.meta
    state = torch.load(tmp_path / 'ours.pth')['state_dict']
    model = classifier(dict(type='LocAtViT', img_size=meta['img_size'],
                            patch_size=meta['patch_size'], arch=dict(
                                embed_dims=48, num_layers=meta['depth'], num_heads=3)))
    model['neck'].update(embed_dims=48)
    model['head'].update(in_channels=48, num_classes=len(state['head.fc.bias']))
    model = build('mmpretrain', model)
    model.load_state_dict(state)
    image, x = next(iter(golden.inputs.items()))
    logits = model.eval()(x)
    assert relative_error(logits, golden.outputs[image.replace('image', 'logits')]) < 1e-5


@pytest.mark.parametrize('backbone', [VIT, SWIN], ids=['vit', 'swin'])
def test_what_has_no_place_in_timm_is_said(backbone: dict, tmp_path: Path,
                                           capsys: pytest.CaptureFixture):
    model = build('mmseg', segmentor(backbone))
    run(CONVERT, save(model, tmp_path / 'a.pth'), tmp_path / 'a.safetensors', '--to', 'timm')
    left = capsys.readouterr().out.strip().split('without a place in it: ')[1].split(', ')
    weights = load_file(tmp_path / 'a.safetensors')
    assert {name.partition('.')[0] for name in left} == {'decode_head', 'auxiliary_head'} | (
        {'neck'} if backbone is VIT else {'out_norms'})
    assert len(left) + len(weights) == len(model.state_dict())
    report = load_weights(model.backbone.model, weights)
    assert report.loaded == len(weights) and not report.missing


def test_names_of_a_mmpretrain_classifier():
    state = {'backbone.patch_embed.projection.weight': torch.ones(2, 3, 4, 4),
             'backbone.ln1.bias': torch.ones(2), 'head.layers.head.weight': torch.ones(3, 2)}
    weights, left = in_timm_names(state)
    assert list(weights) == ['patch_embed.proj.weight', 'norm.bias', 'patch_embed.proj.bias',
                             'head.weight'] and not left
    assert list(in_own_names(weights)) == [
        'backbone.model.patch_embed.proj.weight', 'backbone.model.norm.bias',
        'backbone.model.patch_embed.proj.bias', 'head.fc.weight']


@pytest.mark.parametrize('target, to, sentence', [
    ('a.pth', 'timm', 'a.pth would be written as .safetensors: give it a name ending in .safet'),
    ('a.safetensors', 'locat', 'a.safetensors would be written as .pth'),
    ('d.pth', 'locat', 'd.pth is a folder: give the name of a file'),
    ('no/a.pth', 'locat', 'no/a.pth does not exist: make it first')])
def test_mistakes_of_a_conversion(target: str, to: str, sentence: str, tmp_path: Path):
    save(build('mmpretrain', classifier(VIT)), tmp_path / 'ours.pth')
    (tmp_path / 'd.pth').mkdir()
    assert sentence in mistake(CONVERT, tmp_path / 'ours.pth', tmp_path / target, '--to', to)
    assert 'cannot be read' in mistake(CONVERT, tmp_path / 'none.pth', tmp_path / target, '--to',
                                       to)


def test_publish(trained, tmp_path: Path, capsys: pytest.CaptureFixture):
    work_dir = trained[1]
    run(PUBLISH, work_dir / 'iter_2.pth', tmp_path / 'model.pth')
    file, = tmp_path.iterdir()
    assert capsys.readouterr().out.strip().splitlines()[-1] == str(file)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    assert file.name == f'model-{digest[:8]}.pth'
    source = torch.load(work_dir / 'iter_2.pth', weights_only=False)
    content = torch.load(file, weights_only=True)  # without any class of mmengine
    assert content.keys() == {'meta', 'state_dict'}
    assert content['meta'].keys() == {'dataset_meta', 'epoch', 'iter', 'mmengine_version'}
    assert content['meta']['dataset_meta']['classes'] == ('left', 'right', 'low')
    assert content['state_dict'].keys() == source['state_dict'].keys()
    assert all(torch.equal(w, source['state_dict'][n]) for n, w in content['state_dict'].items())
    assert file.stat().st_size < 0.5 * (work_dir / 'iter_2.pth').stat().st_size
    run(load_tool('test').main, trained[0], file, '--work-dir', tmp_path / 'run')  # and it works
    assert 'give it a name ending in .pth' in mistake(PUBLISH, file, tmp_path / 'a.bin')
