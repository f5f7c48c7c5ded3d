"""tools/visualize_features.py, top_images.py and spatial_information.py as a user runs them."""
import json

import pytest
import timm
import torch
from tiny_locat_configs import SEGMENTOR, checkpoint_of
from tiny_runs import load_tool, mistake, run

VISUALIZE, TOP, SPATIAL = (load_tool(name).main for name in (
    'visualize_features', 'top_images', 'spatial_information'))
pytestmark = pytest.mark.usefixtures('clean_process')
QUICK = ('--steps', 2, '--copies', 2, '--device', 'cpu')


@pytest.fixture
def model(segmentation_config):
    """Config and checkpoint of a segmentor with a LocAt backbone."""
    config = segmentation_config(SEGMENTOR)
    return config, checkpoint_of(config)


def times(folder):
    return {path.name: path.stat().st_mtime_ns for path in folder.glob('layer*.png')}


def test_a_grid_is_made_and_continued(model, tmp_path, capsys):
    run(VISUALIZE, *model, *QUICK, '--layers', 0, -1, '--features', 3, 5, '--out', 'out')
    out = tmp_path / 'out'
    assert set(times(out)) == {f'layer{n:02d}_feature0000{f}.png' for n in (0, 1) for f in (3, 5)}
    note = json.loads((out / 'layer01_feature00005.json').read_text())
    assert note['name'] == 'blocks.1.mlp' and note['settings']['size'] == [32, 32]
    assert note['settings']['weights'].startswith(model[1].name)
    assert set(note['curve']) == {'0', '1'}
    assert '4 pictures in out, together in out/sheet.png' in capsys.readouterr().out
    before = times(out)
    run(VISUALIZE, *model, *QUICK, '--layers', 'all', '--features', 3, 5, 6, '--out', 'out')
    after = times(out)
    assert len(after) == 6 and {name: after[name] for name in before} == before
    text = mistake(VISUALIZE, *model, *QUICK, '--layers', 0, '--features', 3, '--lr', 0.5,
                   '--out', 'out')
    assert 'out/layer00_feature00003.json was made with lr 0.1 (now 0.5): give the same' in text
    run(VISUALIZE, *model, *QUICK, '--layers', 0, '--features', 3, '--lr', 0.5, '--out', 'out',
        '--redo')
    assert times(out)['layer00_feature00003.png'] > before['layer00_feature00003.png']


def test_settings_of_the_command_line(model, tmp_path):
    run(VISUALIZE, *model, *QUICK, '--layers', 0, '--features', 3, '--size', 40, 24, '--preset',
        'repository', '--tv', 0.25, '--extra', 'flip', 'center', '--minimize', '--objective',
        'token_max', '--kind', 'keys', '--seed', 4, '--out', 'out')
    settings = json.loads((tmp_path / 'out/layer00_feature00003.json').read_text())['settings']
    assert {key: settings[key] for key in ('kind', 'size', 'seed', 'regularizers', 'copies',
                                           'augmentations', 'activation_weight', 'objective')} == {
        'kind': 'keys', 'size': [40, 24], 'seed': 4, 'regularizers': [['total_variation', 0.25]],
        'copies': 2, 'augmentations': ['flip', 'center', 'shift_scale', 'channel_noise', 'jitter'],
        'activation_weight': -0.125, 'objective': 'token_max'}


def test_classes_of_a_segmentation_model(model, tmp_path):
    run(VISUALIZE, *model, *QUICK, '--kind', 'logit', '--features', 0, 1, 2, '--out', 'out')
    assert len(times(tmp_path / 'out')) == 3


def test_layers_are_listed(model, tmp_path, capsys):
    run(VISUALIZE, *model, '--list', '--kind', 'attention')
    assert '0: blocks.0.attn\n1: blocks.1.attn\n' in capsys.readouterr().out
    assert not (tmp_path / 'work_dirs').exists()


def test_a_model_of_timm(tmp_path):
    torch.save(timm.create_model('resnet18', num_classes=3).state_dict(), tmp_path / 'weights.pth')
    run(VISUALIZE, '--timm', 'resnet18', '--weights', 'weights.pth', *QUICK, '--kind', 'channel',
        '--layers', 0, '--features', 1, '--size', 32, '--out', 'out')
    assert len(times(tmp_path / 'out')) == 1


def test_top_images_with_masks(model, segmentation_data, tmp_path, capsys):
    data = ('--images', segmentation_data / 'images/train', '--workers', 0, '--top', 3)
    masks = ('--masks', segmentation_data / 'annotations/train')
    run(TOP, *model, *data, *masks, '--features', 0, 4, '--out', 'out', '--device', 'cpu')
    out = tmp_path / 'out'
    assert {path.name for path in out.iterdir()} == {
        'layer00.png', 'layer01.png', 'masks.json', 'masks.md', 'pictures.txt', 'top_images.pt'}
    assert (out / 'pictures.txt').read_text().split() == ['0.png', '1.png', '2.png', '3.png']
    saved = torch.load(out / 'top_images.pt')
    assert [v.shape for v in saved['values']] == [(64, 3)] * 2 and saved['done'] == 4
    matches = json.loads((out / 'masks.json').read_text())
    assert set(matches) == {'blocks.0.mlp', 'blocks.1.mlp'}
    for match in matches['blocks.1.mlp'].values():
        assert match['label'] in (0, 1, 2) and match['share'] <= match['iou'] <= 1
    assert '| blocks.1.mlp | 2 |' in capsys.readouterr().out
    to = ('--out', 'out', '--device', 'cpu')
    (out / 'masks.md').unlink()
    assert 'feature 64: layer blocks.0.mlp has features 0 to 63' in mistake(
        TOP, *model, *data, '--features', 64, '--out', 'new', '--device', 'cpu')
    assert not (tmp_path / 'new').exists()  # before any work
    assert 'was made with k 3 (now 2)' in mistake(TOP, *model, *data[:-1], 2, *to)


def test_spatial_information_of_two_models(model, segmentation_data, tmp_path, capsys):
    data = ('--images', segmentation_data / 'images', '--workers', 0, '--device', 'cpu',
            '--out', 'out')
    run(SPATIAL, *model, *data, '--name', 'a')
    run(SPATIAL, *model, *data, '--name', 'b', '--limit', 2, '--beside', 'out/a.json')
    assert {path.name for path in (tmp_path / 'out').iterdir()} == {
        'a.json', 'a.png', 'b.json', 'b.png'}
    a, b = (json.loads((tmp_path / f'out/{name}.json').read_text()) for name in 'ab')
    assert (a['settings']['pictures'], b['settings']['pictures']) == (6, 2)
    assert [p['name'] for p in a['curves']['block']] == ['blocks.0', 'blocks.1']
    assert 'hidden blocks.1.mlp: relative std ' in capsys.readouterr().out
    assert 'none of keys: give the same --kinds' in mistake(
        SPATIAL, *model, *data, '--kinds', 'keys', '--beside', 'out/a.json')
    assert '--beside out/no.json holds no curves' in mistake(
        SPATIAL, *model, *data, '--beside', 'out/no.json')


def test_mistakes_end_in_one_sentence(model, tmp_path):
    assert 'give either CONFIG CHECKPOINT or --timm NAME' in mistake(VISUALIZE)
    assert 'is no model of timm' in mistake(VISUALIZE, '--timm', 'vit_tinny')
    assert 'layer 2: expected numbers from 0 to 1, or all' in mistake(
        VISUALIZE, *model, '--layers', 2)
    assert 'feature 64: layer blocks.0.mlp has features 0 to 63' in mistake(
        VISUALIZE, *model, *QUICK, '--layers', 0, '--features', 64)
    run(VISUALIZE, *model, *QUICK, '--layers', 0, '--features', 3, '--out', 'out')
    assert 'feature 64: ' in mistake(VISUALIZE, *model, *QUICK, '--layers', 0, 1, '--features', 5,
                                     64, '--batch', 1, '--out', 'out')
    assert len(times(tmp_path / 'out')) == 1  # before any work
    assert 'holds no pictures' in mistake(TOP, *model, '--images', tmp_path / 'nowhere')


def test_a_pass_that_cannot_be_continued(model, segmentation_data, tmp_path):
    words = (*model, '--images', segmentation_data / 'images/train', '--workers', 0, '--device',
             'cpu', '--layers', 0, '--features', 0, '--out', 'out')
    (tmp_path / 'out').mkdir()
    (tmp_path / 'out/top_images.pt').write_text('junk')
    assert 'out/top_images.pt is no saved pass over pictures' in mistake(TOP, *words)
    run(TOP, *words, '--redo')
    assert torch.load(tmp_path / 'out/top_images.pt')['done'] == 4


@pytest.mark.parametrize('tool', [TOP, SPATIAL])
def test_a_broken_picture_in_a_worker(model, tmp_path, tool):
    (tmp_path / 'pictures').mkdir()
    (tmp_path / 'pictures/1.png').write_text('no picture')
    text = mistake(tool, *model, '--images', 'pictures', '--workers', 1, '--device', 'cpu',
                   '--out', 'out')
    assert text.endswith('pictures/1.png cannot be read (UnidentifiedImageError): repair the '
                         'file, or take it out of the folder')


@pytest.mark.parametrize('words', [
    ('--batch', 0), ('--steps', 0), ('--copies', 0), ('--lr', 'nan'), ('--tv', 'nan'),
    ('--features', -1), ('--size', 0), ('--size', 1, 2, 3)])
def test_impossible_numbers(words, capsys):
    with pytest.raises(SystemExit):
        run(VISUALIZE, '--timm', 'test_vit', *words)
    assert f'argument {words[0]}: ' in capsys.readouterr().err


@pytest.mark.parametrize('tool, words', [
    (VISUALIZE, ('--layers', 0)), (TOP, ('--images', '.')), (SPATIAL, ('--images', '.'))])
def test_a_folder_that_is_a_file(model, tmp_path, tool, words):
    (tmp_path / 'file').write_text('')
    assert 'file is a file: name another folder' in mistake(tool, *model, *words, '--out', 'file')
