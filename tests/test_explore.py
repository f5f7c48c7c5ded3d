"""tools/explore.py as a user runs it."""
import base64
import io
import json
import re
import shlex

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from tiny_locat_configs import SEGMENTOR
from tiny_runs import load_tool, mistake, run

TOOL = load_tool('explore')
PARTS = tuple(TOOL.PARTS)
QUICK = ('--steps', 2, '--copies', 1, '--features', 0, 1, '--top', 2, '--batch', 2, '--device',
         'cpu', '--out', 'out')
pytestmark = pytest.mark.usefixtures('clean_process')


@pytest.fixture
def features(tmp_path):
    """Arguments for a small timm ViT without a classifier."""
    torch.manual_seed(0)
    torch.save(timm.create_model('test_vit', num_classes=0).state_dict(), tmp_path / 'vit.pth')
    return '--timm', 'test_vit', '--weights', 'vit.pth', '--size', 32


def written(folder):
    """The page, and the parts of the JSON beside it."""
    text = (folder / 'out/explore.html').read_text(encoding='utf-8')
    assert not re.search(r'(src|href)="(?!data:|#)', text)
    assert 'url(' not in text and '@import' not in text and '<script' not in text
    return text, json.loads((folder / 'out/explore.json').read_text())['parts']


def commands_parse(parts):
    """Whether the tools of all commands take them."""
    for part in parts.values():
        _, tool, *words = shlex.split(part['command'])
        load_tool(tool.removeprefix('tools/').removesuffix('.py')).parse_args(words)


def states(parts):
    return {name: part['state'] for name, part in parts.items()}


def test_a_classifier_on_its_own_data(classifier, tmp_path, capsys):
    run(TOOL.main, *classifier, *QUICK)
    text, parts = written(tmp_path)
    assert states(parts) == {name: 'not run' if name == 'foreground' else 'done' for name in PARTS}
    assert 'give --boxes DIR' in parts['foreground']['reason'] and 'give --boxes DIR' in text
    assert parts['top_images']['left_out'] == [
        'how well features mark classes: the data have no label maps']
    rows = parts['class_token']['values']
    assert [row['layer'] for row in rows if row['experiment'] == 'isolated class token'] == [
        0, 1, 2, 3]  # two blocks and the refinement
    assert 'each patch alone, best position' in text
    assert {row['change'] for row in parts['changes']['values']} == {
        'whole', 'low_pass', 'high_pass', 'shuffle', 'rotate', 'shift'}
    assert [layer['depth'] for layer in parts['locality']['values']['layers']] == [0, 1]
    assert set(parts['features']['values']) == {'blocks.0.mlp', 'blocks.1.mlp'}
    assert '--preset paper' in parts['features']['command']
    commands_parse(parts)
    for name in PARTS:
        assert f'<h2 id="{name}">' in text
    assert f'--images {tmp_path}/cls_data/val' in parts['spatial']['command']
    assert 'written: out/explore.html' in capsys.readouterr().out


def test_numbers_are_those_of_the_tools(classifier, tmp_path):
    run(TOOL.main, *classifier, *QUICK, '--parts', 'class_token', 'changes')
    _, parts = written(tmp_path)
    common = (*classifier, '--workers', 0, '--batch', 2, '--device', 'cpu', '--out', 'alone')
    run(load_tool('class_token').main, *common)
    run(load_tool('robustness').main, *common, '--shift', 4, 8, 12)
    alone = [json.loads((tmp_path / f'alone/{name}.json').read_text())['rows']
             for name in ('class_token', 'changes')]
    assert [dict(row, model=classifier[0].stem) for row in parts['class_token']['values']] == \
        alone[0]
    shifts = [row for row in parts['changes']['values'] if row['change'] == 'shift']
    assert shifts == [row for row in alone[1] if row['change'] == 'shift']


def test_pictures_on_the_page_are_those_of_the_folder(classifier, tmp_path):
    run(TOOL.main, *classifier, *QUICK, '--parts', 'features', '--layers', 1)
    text, _ = written(tmp_path)
    shown = [np.array(Image.open(io.BytesIO(base64.b64decode(data)))).astype(float)
             for data in re.findall('image/jpeg;base64,([^"]+)"', text)]
    files = sorted((tmp_path / 'out/hidden_pictures').glob('*.png'))
    assert len(shown) == len(files) == 2 and shown[0].shape == (96, 96, 3)
    for picture, path in zip(shown, files):
        wanted = np.array(Image.open(path)).astype(float).repeat(3, 0).repeat(3, 1)
        assert abs(picture - wanted).mean() < 8  # what JPEG takes


def test_started_again_it_goes_on(classifier, tmp_path):
    chosen = ('--parts', 'features', 'top_images', '--layers', 0)
    run(TOOL.main, *classifier, *QUICK, *chosen)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / 'out').glob('*/*.png')}
    run(TOOL.main, *classifier, *QUICK, *chosen, '--features', 0, 1, 2)
    after = {path: path.stat().st_mtime_ns for path in (tmp_path / 'out').glob('*/*.png')}
    assert len(after) == 3 and {path: after[path] for path in before} == before


def test_a_segmentor_on_its_own_data(segmentor, tmp_path):
    run(TOOL.main, *segmentor, *QUICK, '--foreground', 'left')
    text, parts = written(tmp_path)
    assert states(parts) == dict.fromkeys(PARTS, 'done')
    commands_parse(parts)
    assert 'IoU of marking everything' in text and 'mIoU [%]' not in text  # figures are images
    assert 'the decode head reads patches, it has no top-1' in text
    assert all('mIoU' in row for row in parts['changes']['values'])
    assert [row['change'] for row in parts['foreground']['values']] == ['foreground', 'background']
    assert parts['top_images']['values']['blocks.0.mlp'][0]['match']['label'] in (0, 1, 2)


def test_a_segmentor_on_a_folder_with_masks(segmentor, segmentation_data, tmp_path):
    folder = ('--data', segmentation_data / 'images/train')
    some = ('--parts', 'class_token', 'changes', 'foreground')
    run(TOOL.main, *segmentor, *QUICK, *folder, *some)
    _, parts = written(tmp_path)
    assert 'the pictures have no label maps: give --masks DIR' in parts['changes']['reason']
    run(TOOL.main, *segmentor, *QUICK, *folder, *some, '--masks',
        segmentation_data / 'annotations/train')
    _, parts = written(tmp_path)
    assert states(parts)['class_token'] == states(parts)['changes'] == 'done'
    assert 'give --foreground CLASS' in parts['foreground']['reason']


def test_features_without_classifier(features, segmentation_data, tmp_path):
    run(TOOL.main, *features, *QUICK, '--data', segmentation_data / 'images/val', '--masks',
        segmentation_data / 'annotations/val')
    text, parts = written(tmp_path)
    done = ('features', 'top_images', 'spatial', 'locality', 'responses')
    assert states(parts) == {name: 'done' if name in done else 'not run' for name in PARTS}
    for name in ('class_token', 'changes', 'foreground'):
        assert parts[name]['reason'] == (
            'nothing to score: the model has no classifier and no decode head')
    commands_parse(parts)
    assert 'no class logits' in text and '--masks' in parts['top_images']['command']


def test_a_cnn_on_class_folders(classification_data, tmp_path):
    torch.save(timm.create_model('resnet18', num_classes=2).state_dict(), tmp_path / 'cnn.pth')
    run(TOOL.main, '--timm', 'resnet18', '--weights', 'cnn.pth', '--size', 32, *QUICK, '--data',
        classification_data / 'val', '--layers', 0)
    _, parts = written(tmp_path)
    assert [name for name in PARTS if parts[name]['state'] == 'not run'] == [
        'locality', 'class_token', 'foreground']
    assert 'expected a ViT, EVA or Swin' in parts['locality']['reason']
    assert 'ResNet has no sequence of tokens' in parts['class_token']['reason']
    assert '--images' in parts['changes']['command']


def test_without_data_what_needs_none_is_done(features, tmp_path):
    run(TOOL.main, *features, *QUICK)
    _, parts = written(tmp_path)
    assert [name for name in PARTS if parts[name]['state'] == 'done'] == ['features']
    assert parts['spatial']['reason'] == (
        'no pictures were given: --data takes a folder, or a config')
    assert '--images DIR' in parts['spatial']['command']


def test_labels_that_do_not_fit(classifier, segmentation_config, classification_data, tmp_path):
    other = segmentation_config(SEGMENTOR)
    run(TOOL.main, *classifier, *QUICK, '--data', other, '--parts', 'spatial', 'changes')
    _, parts = written(tmp_path)
    assert parts['spatial']['state'] == 'done'
    assert 'the labels are those of a segmentor, the model: classifier' in \
        parts['changes']['reason']
    run(TOOL.main, *classifier, *QUICK, '--data', classification_data / 'val/cat', '--parts',
        'changes')
    _, parts = written(tmp_path)
    assert 'expected a folder for each class, found 0' in parts['changes']['reason']


def test_a_failed_part_is_told_and_the_others_are_kept(classifier, tmp_path):
    text = mistake(TOOL.main, *classifier, *QUICK, '--features', 64, '--parts', 'features',
                   'spatial')
    assert text.startswith('1 of 9 parts failed: features; out/explore.html tells why')
    page, parts = written(tmp_path)
    assert states(parts)['spatial'] == 'done'
    assert 'Failed: ValueError: feature 64: layer blocks.0.mlp has features 0 to 63' in page


def test_classes_that_the_model_lacks_are_told(classifier, tmp_path):
    run(TOOL.main, *classifier, *QUICK, '--features', 1, 9, '--parts', 'classes')
    _, parts = written(tmp_path)
    assert parts['classes']['left_out'] == ['class 9: the model has 0 to 1']
    assert list(parts['classes']['values']['logits']) == ['1']
    run(TOOL.main, *classifier, *QUICK, '--features', 9, '--parts', 'classes')
    _, parts = written(tmp_path)
    assert parts['classes']['reason'] == (
        'classes 9: the model has 0 to 1; give others with --features')


def test_mistakes_end_in_one_sentence(classifier):
    assert 'give either CONFIG CHECKPOINT or --timm NAME' in mistake(TOOL.main)
    assert '--masks DIR belongs to pictures in a folder' in mistake(
        TOOL.main, *classifier, '--masks', 'm')
    assert 'config nowhere does not exist' in mistake(
        TOOL.main, *classifier, '--data', 'nowhere')
