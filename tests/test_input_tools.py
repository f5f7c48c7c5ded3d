"""tools/class_token.py and tools/robustness.py as a user runs them."""
import csv
import json

import cv2
import numpy as np
import pytest
import timm
import torch
from mmengine.config import Config
from mmengine.runner import Runner
from tiny_locat_configs import CLASSIFIER, checkpoint_of
from tiny_runs import load_tool, mistake, run

from locat_mmseg.openmmlab.input_tools import load_models, make_input_parser
from locat_mmseg.openmmlab.labelled_pictures import LabelledPictures

CLASS_TOKEN, ROBUSTNESS = load_tool('class_token').main, load_tool('robustness').main
QUICK = ('--workers', 0, '--device', 'cpu', '--out', 'out')
pytestmark = pytest.mark.usefixtures('clean_process')


@pytest.fixture
def resnet(tmp_path):
    """Arguments for a small timm CNN of two classes with a file of weights."""
    torch.save(timm.create_model('resnet18', num_classes=2).state_dict(), tmp_path / 'cnn.pth')
    return '--timm', 'resnet18', '--weights', 'cnn.pth'


def written(folder, name):
    """Rows of a result, whose CSV holds the same, and the other facts."""
    record = json.loads((folder / f'out/{name}.json').read_text())
    rows = record.pop('rows')
    with open(folder / f'out/{name}.csv', newline='') as file:
        table = list(csv.DictReader(file))
    assert len(table) == len(rows) and all(
        str('' if value is None else value) == line[key]
        for line, row in zip(table, rows) for key, value in row.items())
    return rows, record


def test_class_token_of_two_classifiers(classifier, classification_config, tmp_path, capsys):
    plain = classification_config(CLASSIFIER + "\nmodel['backbone'].update(gaug=False)"
                                  "\nmodel['neck'].update(refine=False)")
    run(CLASS_TOKEN, *classifier, '--beside', plain, checkpoint_of(plain), '--names', 'LocAt',
        'ViT', '--seed', 3, *QUICK)
    rows, record = written(tmp_path, 'class_token')
    assert [row['layer'] for row in rows if (row['model'], row['experiment']) == (
        'LocAt', 'isolated class token')] == [0, 1, 2, 3]  # two blocks and the refinement
    assert [row['layer'] for row in rows if (row['model'], row['experiment']) == (
        'ViT', 'class token only')] == [0, 1, 2]
    assert record['command'].startswith('python tools/class_token.py ')
    assert record['seed'] == 3 and record['seconds'] >= 0
    assert record['data'] == dict(dataset='CustomDataset', images=4, of=4, without_foreground=0,
                                  root=record['data']['root'])
    assert [model['name'] for model in record['models']] == ['LocAt', 'ViT']
    assert len(record['top1_by_position']['ViT']) == 4
    for name in ('class_token.png', 'heat_map.png'):
        assert (tmp_path / 'out' / name).stat().st_size > 1000
    assert 'class token only' in capsys.readouterr().out


def test_class_token_of_a_segmentor(segmentor, tmp_path):
    run(CLASS_TOKEN, *segmentor, '--layers', 0, 2, '--insert', 'raw', *QUICK)
    rows, record = written(tmp_path, 'class_token')
    assert [(row['experiment'], row['layer']) for row in rows] == [
        ('plain', None), ('isolated class token', 0), ('isolated class token', 2)]
    assert rows[0]['mIoU'] == rows[1]['mIoU'] and record['settings']['insert'] == 'raw'
    assert not (tmp_path / 'out/heat_map.png').exists()


def test_the_plain_row_is_what_the_model_scores(segmentor, classifier):
    """The same logits as OpenMMLab's own way from the file to the model."""
    for pair in (segmentor, classifier):
        args = make_input_parser('', 'out').parse_args([*map(str, pair), '--device', 'cpu'])
        (probed, ), _ = load_models(args)
        cfg = Config.fromfile(pair[0])
        pictures, _ = LabelledPictures(cfg)[0]
        cfg.work_dir, cfg.load_from = 'run', str(pair[1])
        runner = Runner.from_cfg(cfg)
        runner.load_or_resume()
        batch = next(iter(runner.build_dataloader(cfg.test_dataloader)))
        data = runner.model.eval().data_preprocessor(batch, False)
        with torch.no_grad():
            expected = runner.model(data['inputs'][:1], mode='tensor')
            found = probed.model(pictures[None])
        if found.ndim == 4:
            expected = torch.nn.functional.interpolate(expected, found.shape[-2:], mode='bilinear')
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


def test_a_transformer_and_a_cnn_on_changed_pictures(classifier, resnet, tmp_path):
    run(ROBUSTNESS, *classifier, *resnet, '--size', 32, '--low-pass', 0.1, 1.4143, '--high-pass',
        '--shuffle', 8, '--rotate', '--shift', 3, '--responses', *QUICK)
    responses, _ = written(tmp_path, 'responses')
    assert {(row['model'], row['change']) for row in responses} == {
        (model, kind) for model in (classifier[0].stem, 'resnet18')
        for kind in ('low_pass', 'high_pass', 'shuffle', 'rotate', 'shift')}
    assert (tmp_path / 'out/responses.png').stat().st_size > 1000
    rows, record = written(tmp_path, 'changes')
    changes = [(row['change'], row['value']) for row in rows if row['model'] == 'resnet18']
    assert changes[:3] == [('whole', None), ('low_pass', 0.1), ('low_pass', 1.4143)]
    assert changes[-1] == ('shift', 3) and len(changes) == 1 + 2 + 9 + 1 + 6 + 1
    assert len(rows) == 2 * len(changes) and rows[2]['top1'] == rows[0]['top1']
    assert record['models'][1]['timm'] == 'resnet18' and record['models'][0]['parameters'] > 0
    assert (tmp_path / 'out/changes.png').stat().st_size > 1000


def test_changed_label_maps(segmentor, tmp_path):
    run(ROBUSTNESS, *segmentor, '--low-pass', 0.2, '--shift', 4, *QUICK)
    rows, _ = written(tmp_path, 'changes')
    assert [row['change'] for row in rows] == ['whole', 'low_pass', 'shift']
    assert all(0 <= row['mIoU'] <= 100 for row in rows)


def test_foreground_and_background_by_masks(resnet, classification_data, tmp_path, capsys):
    (tmp_path / 'masks').mkdir()
    for path in (classification_data / 'val').glob('*/*0.png'):
        mask = np.zeros(cv2.imread(str(path)).shape[:2], np.uint8)
        mask[5:20, 5:20] = 255
        cv2.imwrite(str(tmp_path / 'masks' / path.name), mask)
    run(ROBUSTNESS, *resnet, '--images', classification_data / 'val', '--masks',
        tmp_path / 'masks', '--size', 32, *QUICK)
    rows, record = written(tmp_path, 'parts')
    assert [row['change'] for row in rows] == ['whole', 'foreground', 'background']
    assert record['data']['images'] == 2 and record['data']['without_foreground'] == 2
    assert record['divided_by'] == 'masks'
    assert any('black areas' in note for note in record['confounders'])
    assert '- input size' in capsys.readouterr().out


def test_foreground_and_background_by_classes(segmentor, tmp_path):
    run(ROBUSTNESS, *segmentor, '--foreground', 'left', 2, *QUICK)
    rows, record = written(tmp_path, 'parts')
    assert [row['change'] for row in rows] == ['foreground', 'background']
    assert record['foreground'] == ['left', '2'] and 'whole_mIoU' in rows[0]


def test_mistakes_end_in_one_sentence(classifier, segmentor, resnet, tmp_path):
    config, checkpoint = classifier
    assert 'needs its CHECKPOINT' in mistake(CLASS_TOKEN, config)
    assert 'no model: give CONFIG CHECKPOINT or --timm NAME' in mistake(CLASS_TOKEN)
    assert '1 --weights for 2 --timm models' in mistake(
        CLASS_TOKEN, '--timm', 'resnet18', 'resnet34', '--weights', 'random')
    assert 'give --names, a different one for each' in mistake(
        CLASS_TOKEN, config, checkpoint, '--beside', config, checkpoint)
    assert 'no images: give --data CONFIG' in mistake(CLASS_TOKEN, *resnet)
    torch.save(timm.create_model('vit_tiny_patch16_224', num_classes=0).state_dict(),
               tmp_path / 'headless.pth')
    assert 'vit_tiny_patch16_224: the model has no classifier' in mistake(
        CLASS_TOKEN, *classifier, '--timm', 'vit_tiny_patch16_224', '--weights', 'headless.pth',
        *QUICK)
    assert not (tmp_path / 'out').exists()
    assert 'ResNet has no sequence of tokens' in mistake(CLASS_TOKEN, *resnet, '--data', config,
                                                         *QUICK)
    assert 'nothing to measure: give some of --low-pass, ' in mistake(ROBUSTNESS, *classifier)
    assert '--responses is about changes' in mistake(
        ROBUSTNESS, *segmentor, '--responses', '--foreground', 'left')
    assert '--foreground divides images with label maps' in mistake(
        ROBUSTNESS, *classifier, '--foreground', 'cat', *QUICK)
    assert '--foreground sky: expected one of left, right, low' in mistake(
        ROBUSTNESS, *segmentor, '--foreground', 'sky', *QUICK)
    assert 'no .xml files below' in mistake(ROBUSTNESS, *classifier, '--boxes', tmp_path, *QUICK)
    (tmp_path / 'file').write_text('')
    for tool, words in ((CLASS_TOKEN, ()), (ROBUSTNESS, ('--shift', ))):
        assert 'file is a file: name another folder' in mistake(tool, *classifier, *words, '--out',
                                                                'file')


def test_a_size_that_a_family_does_not_take():
    words = ('--timm', 'pit_ti_224', '--weights', 'random')
    with pytest.raises(ValueError, match=r'failed on pictures of \(64, 64\) pixels .* it was built '
                                         r'for \(224, 224\): give pictures of that size'):
        load_models(make_input_parser('', 'out').parse_args(words))[0][0].model(
            torch.zeros(1, 3, 64, 64))


def test_labels_that_mean_something_else(classifier, segmentor, resnet, classification_data):
    other = ('--timm', 'resnet18', '--weights', 'random', '--images', classification_data / 'val')
    assert 'the data have 2 classes, but resnet18 tells 1000 apart' in mistake(
        ROBUSTNESS, *other, '--shift', *QUICK)
    assert 'one class an image, for a classifier, but' in mistake(
        ROBUSTNESS, *segmentor, '--data', classifier[0], '--shift', *QUICK)
    assert 'label maps, for a segmentor, but resnet18 is for one class an image' in mistake(
        ROBUSTNESS, *segmentor, *resnet, '--shift', *QUICK)


@pytest.mark.parametrize('workers', [0, 1])
def test_a_broken_image(resnet, classification_data, workers):
    (classification_data / 'val/cat/zz.png').write_text('no image')
    assert 'LoadImageFromFile cannot read' in mistake(
        ROBUSTNESS, *resnet, '--images', classification_data / 'val', '--size', 32, '--shift',
        '--device', 'cpu', '--out', 'out', '--workers', workers)
    (classification_data / 'masks').mkdir()
    cv2.imwrite(str(classification_data / 'masks/zz.png'), np.ones((4, 4)))
    assert 'zz.png cannot be read' in mistake(
        ROBUSTNESS, *resnet, '--images', classification_data / 'val', '--size', 32, '--masks',
        classification_data / 'masks', *QUICK)
