"""tools/analyze_attention.py as a user runs it."""
import json

import pytest
import timm
import torch
from safetensors.torch import save_file
from tiny_locat_configs import BACKBONE, CLASSIFIER
from tiny_runs import load_tool, mistake, run

TOOL = load_tool('analyze_attention').main
TRAIN = load_tool('train').main
pytestmark = pytest.mark.usefixtures('clean_process')


def outputs(folder) -> tuple[dict, str]:
    return (json.loads((folder / 'locality.json').read_text()),
            (folder / 'locality.html').read_text(encoding='utf-8'))


def test_classifier(classification_config, tmp_path, capsys):
    config = classification_config(CLASSIFIER)
    run(TRAIN, config, '--work-dir', 'run')
    run(TOOL, config, 'run/epoch_2.pth', '--num-images', 3, '--work-dir', 'out')
    values, page = outputs(tmp_path / 'out')
    assert values['num_images'] == 3 and values['checkpoint'] == 'run/epoch_2.pth'
    assert [layer['name'] for layer in values['layers']] == ['blocks.0.attn', 'blocks.1.attn']
    assert values['layers'][0]['grids'] == [[4, 4]]
    assert len(values['receptive_area']) == 2
    assert '<td>run/epoch_2.pth</td>' in page
    printed = capsys.readouterr().out
    assert f'{sum(values["layers"][1]["entropy"]) / 2:.3f}' in printed


def test_segmentor_without_receptive_field(segmentation_config, tmp_path):
    config = segmentation_config(BACKBONE.format(out_indices=(0, ), extra=''))
    run(TRAIN, config, '--work-dir', 'run')
    run(TOOL, config, 'run/iter_2.pth', '--num-images', 0, '--field-images', 0, '--work-dir', 'out')
    values, _ = outputs(tmp_path / 'out')
    assert values['num_images'] == 2 and values['receptive_area'] is None
    assert len(values['layers']) == 1  # the second block is not part of the segmentor


def test_timm_model(segmentation_data, tmp_path):
    torch.manual_seed(0)
    save_file(timm.create_model('test_vit').state_dict(), tmp_path / 'a.safetensors')
    run(TOOL, '--timm', 'test_vit', '--weights', 'a.safetensors', '--img-size', 64,
        '--images', segmentation_data / 'images')
    values, page = outputs(tmp_path / 'work_dirs/test_vit')
    assert values['model'] == 'test_vit' and values['num_images'] == 6
    assert values['layers'][0]['distance_pixels'][0] == pytest.approx(
        16 * values['layers'][0]['distance_patches'][0], rel=1e-4)
    assert '<h1>Locality of attention: test_vit</h1>' in page


def test_mistakes(classification_config, tmp_path):
    plain = classification_config()  # mmpretrain's own ViT
    assert 'checkpoint none.pth does not exist' in mistake(TOOL, plain, 'none.pth')
    run(TRAIN, plain, '--work-dir', 'run')
    assert 'MultiheadAttention; supported: timm' in mistake(TOOL, plain, 'run/epoch_2.pth')
    assert "'none' is no model of timm" in mistake(TOOL, '--timm', 'none', '--images', '.')


@pytest.mark.parametrize('argv, message', [
    ((), 'give a CONFIG and a CHECKPOINT, or --timm NAME'),
    (('a.py', '--timm', 'test_vit'), 'give a CONFIG and a CHECKPOINT, or --timm NAME'),
    (('a.py', ), 'a CHECKPOINT is missing'),
    (('--timm', 'test_vit'), '--images DIR is missing'),
])
def test_command_lines_refused(argv, message, capsys):
    with pytest.raises(SystemExit):
        run(TOOL, *argv)
    assert message in capsys.readouterr().err


@pytest.mark.parametrize('words', [('--batch-size', 0), ('--num-images', -3), ('--img-size', 0),
                                   ('--field-images', -1)])
def test_impossible_numbers(words, capsys):
    with pytest.raises(SystemExit):
        load_tool('analyze_attention').main(['--timm', 'test_vit', '--images', '.',
                                             *map(str, words)])
    assert f'argument {words[0]}: ' in capsys.readouterr().err
