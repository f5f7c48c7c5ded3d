"""tools/knn.py, tools/linear_probe.py and tools/dense_retrieval.py as a user runs them."""
import json

import cv2
import numpy as np
import pytest
import timm
import torch
from tiny_locat_configs import BACKBONE, CLASSIFIER
from tiny_runs import load_tool, mistake, run

from locat_mmseg.analysis.timm_models import load_timm
from locat_mmseg.openmmlab.backbones import LocAtViT

KNN, LINEAR, DENSE = (load_tool(name).main for name in ('knn', 'linear_probe', 'dense_retrieval'))
pytestmark = pytest.mark.usefixtures('clean_process')
FAST = ['--workers', 0]


@pytest.fixture
def classifier(classification_config):
    return classification_config(CLASSIFIER)


@pytest.fixture
def segmentor(segmentation_config):
    return segmentation_config(BACKBONE.format(out_indices='-1', extra=''))


def result(path):
    return json.loads(path.read_text())


def test_knn(classifier, tmp_path):
    with pytest.warns(UserWarning, match='random weights'):
        run(KNN, classifier, '-k', 1, 3, *FAST, '--num-train', 6, '--seed', 4)
    found = result(tmp_path / 'work_dirs' / classifier.stem / 'knn.json')
    assert set(found['results']) == {f'knn{k}/top{n}' for k in (1, 3) for n in (1, 5)}
    assert found['command'] == f'python tools/knn.py {classifier} -k 1 3 --workers 0 ' \
                               '--num-train 6 --seed 4'
    assert found['seed'] == 4 and found['seconds'] >= 0
    assert found['settings'] == dict(k=[1, 3], temperature=.07, img_size=None)
    assert found['model'] == dict(config=str(classifier), checkpoint=None)
    assert found['data']['train'] == dict(
        dataset='CustomDataset', root=str(tmp_path / 'cls_data'), images=6, of=8)
    assert found['data']['test']['images'] == 4


def test_progress_is_shown(classifier, capsys):
    with pytest.warns(UserWarning, match='random weights'):
        run(KNN, classifier, '-k', 1, *FAST)
    shown = capsys.readouterr().out
    assert 'reading 8 images' in shown and '8/8' in shown and 'knn1/top1: ' in shown


def test_linear_probe_of_a_timm_model(classifier, tmp_path):
    run(LINEAR, classifier, '--timm', 'resnet10t', '--weights', 'random', '--l2', .1, *FAST,
        '--img-size', 40, '--out', 'new/probe.json')
    found = result(tmp_path / 'new/probe.json')
    assert found['model'] == dict(timm='resnet10t', weights='random')
    assert found['results']['linear/top1'] == 100.  # plain grey against plain grey
    assert found['results']['linear/l2'] == .1


def test_a_timm_model_with_the_probe_as_its_classifier(classifier, tmp_path):
    weights = timm.create_model('test_vit', num_classes=0).state_dict()
    torch.save(weights, tmp_path / 'features.pth')
    run(LINEAR, classifier, '--timm', 'test_vit', '--weights', 'features.pth', '--l2', .1, *FAST,
        '--img-size', 160, '--save-model', 'probed.safetensors', '--out', 'probe.json')
    assert result(tmp_path / 'probe.json')['settings']['save_model'] == 'probed.safetensors'
    model = load_timm('test_vit', str(tmp_path / 'probed.safetensors'))
    assert all(torch.equal(model.core.state_dict()[name], weight)
               for name, weight in weights.items())
    grey = torch.tensor([60, 180])[:, None, None, None].expand(-1, 3, 160, 160) / 255
    with torch.no_grad():
        assert model(grey).argmax(dim=1).tolist() == [0, 1]


@pytest.mark.parametrize('size, sides', [([32], [32, 32]), ([24, 40], [24, 40]), ([0], None)],
                         ids=str)
def test_dense_retrieval(segmentor, tmp_path, size, sides):
    with pytest.warns(UserWarning, match='random weights'):
        run(DENSE, segmentor, '--img-size', *size, '--memory-size', 20, '-k', 5, *FAST,
            '--out', 'dense.json')
    found = result(tmp_path / 'dense.json')
    assert found['results']['patches_stored'] == 20
    assert set(found['results']['IoU']) == {'left', 'right', 'low'}
    assert found['settings'] == dict(k=5, temperature=.02, memory_size=20, img_size=sides,
                                     stage=None, stride=8, search='faiss')


def test_dense_retrieval_of_a_checkpoint_of_another_backbone(trained, tmp_path):
    """mmseg's own ViT, trained; the same again gives the same."""
    config, work_dir = trained
    for name in ('a', 'b'):
        run(DENSE, config, work_dir / 'iter_2.pth', '--img-size', 32, '-k', 4, *FAST,
            '--out', name)
    a, b = result(tmp_path / 'a'), result(tmp_path / 'b')
    assert a['results'] == b['results'] and a['model']['checkpoint'].endswith('iter_2.pth')


@pytest.mark.parametrize('argv, reason', [
    (['a.pth'], 'checkpoint a.pth does not exist'),
    (['--weights', 'a.pth'], '--weights belongs to --timm NAME'),
    (['a.pth', '--timm', 'resnet10t'], '--timm resnet10t takes its weights from --weights FILE'),
    (['--timm', 'resnet1', '--weights', 'random'], "'resnet1' is no model of timm"),
    (['--timm', 'resnet10t', '--weights', 'a.pth'], 'weights a.pth cannot be read'),
    (['.'], 'checkpoint . is a folder: give the path of a file in it'),
    (['--num-train', '9'], '9 images of 8: expected from 1 to 8'),
    (['-k', '9'], 'k=9 neighbours of 8 stored features: k must be from 1 to 8'),
    (['--cfg-options', 'train_dataloader.dataset.data_root=gone'],
     'train_dataloader.dataset.data_root is gone, which does not exist'),
])
@pytest.mark.filterwarnings('ignore:neither a checkpoint')
def test_mistakes_with_classifiers(classifier, argv, reason):
    assert reason in mistake(KNN, classifier, *argv, *FAST)


@pytest.mark.parametrize('argv, reason', [
    (['--save-model', 'a.safetensors'], '--save-model belongs to --timm NAME'),
    (['--timm', 'test_vit', '--save-model', 'a.pth'], 'a name ending in .safetensors'),
    (['--timm', 'test_vit', '--save-model', 'no/a.safetensors'], 'no/a.safetensors does not exist'),
])
def test_models_that_are_not_saved(classifier, argv, reason):
    assert reason in mistake(LINEAR, classifier, *argv)


@pytest.mark.parametrize('argv, reason', [
    (['--memory-size', '3'], 'memory_size=3 holds less than one patch of each of 4 images'),
    (['--img-size', '8', '8', '8'], '--img-size 8 8 8: expected a side, or height and width'),
    (['--img-size', '0', '8'], '--img-size 0 8: expected a side, or height and width'),
    (['--stage', '2'], 'stage 2 of a VisionTransformer of 2 blocks or stages: expected -2 to 1'),
    (['--img-size', '16', '-k', '30'], 'k=30 neighbours of 16 stored features'),
    (['--cfg-options', 'model.backbone.type=LocAtVit'], "asks for type='LocAtVit'"),
    (['--cfg-options', "model.backbone=None"], 'has no model with a backbone'),
])
@pytest.mark.filterwarnings('ignore:neither a checkpoint')
def test_mistakes_with_segmentors(segmentor, argv, reason):
    assert reason in mistake(DENSE, segmentor, *FAST, *argv)


@pytest.mark.parametrize('tool, argv, reason', [
    (KNN, ['-k', '3', '-3'], 'argument -k: -3: expected a whole number from 1'),
    (KNN, ['--img-size', '0'], 'argument --img-size: 0: expected a whole number from 1'),
    (KNN, ['--temperature', 'nan'], 'argument --temperature: nan: expected a finite number'),
    (LINEAR, ['--batch-size', '0'], 'argument --batch-size: 0: expected a whole number from 1'),
    (LINEAR, ['--l2', '0.1', 'inf'], 'argument --l2: inf: expected a finite number'),
    (LINEAR, ['--workers', '-1'], 'argument --workers: -1: expected a whole number from 0'),
    (DENSE, ['--num-train', '0'], 'argument --num-train: 0: expected a whole number from 1'),
    (DENSE, ['--memory-size', '1.5'], 'argument --memory-size: 1.5: expected a whole number'),
    (DENSE, ['--temperature', '0'], 'argument --temperature: 0: expected a number above 0')])
def test_numbers_that_mean_nothing(tool, argv, reason, capsys):
    with pytest.raises(SystemExit, match='2'):
        run(tool, 'a.py', *argv)
    assert reason in capsys.readouterr().err


def test_results_that_could_not_be_written(classifier, tmp_path):
    assert 'is a folder: give the name of a file' in mistake(KNN, classifier, '--out', tmp_path)
    (tmp_path / 'a').touch()
    assert 'a/b.json cannot be written, a is' in mistake(KNN, classifier, '--out', 'a/b.json')


@pytest.mark.filterwarnings('ignore:neither a checkpoint')
def test_features_of_a_training_that_diverged(classifier, segmentor, monkeypatch):
    monkeypatch.setattr(LocAtViT, 'init_weights', lambda self: [
        torch.nn.init.constant_(p, float('nan')) for p in self.parameters()])
    for argv in ((KNN, classifier, '-k', 3), (LINEAR, classifier), (DENSE, segmentor)):
        assert 'numbers that are not finite' in mistake(*argv, *FAST)


@pytest.mark.parametrize('split', ['train', 'val'])
@pytest.mark.filterwarnings('ignore:neither a checkpoint')
def test_label_maps_and_images_that_are_wrong(segmentor, segmentation_data, split):
    label = next((segmentation_data / 'annotations' / split).iterdir())
    image = next((segmentation_data / 'images' / split).iterdir())
    whole, size = label.read_bytes(), cv2.imread(str(label)).shape[:2]
    for content, reason in ((np.full(size, 7, np.uint8), 'has label 7, but allowed are the clas'),
                            (np.zeros((*size, 3), np.uint8), f'has shape {(*size, 3)}'),
                            (np.zeros((9, 8), np.uint8), 'is 9 x 8, but its image is')):
        cv2.imwrite(str(label), content)
        text = mistake(DENSE, segmentor, *FAST, '-k', 3)
        assert str(label) in text and reason in text
    label.write_bytes(whole)
    image.write_bytes(b'broken')
    assert f'cannot read {image}' in mistake(DENSE, segmentor, *FAST, '-k', 3)


@pytest.mark.filterwarnings('ignore:neither a checkpoint')
def test_the_wrong_kind_of_config(classifier, segmentor):
    assert 'dense retrieval takes images with label maps' in mistake(DENSE, classifier, *FAST)
    assert 'take a classification config with one label an image' in mistake(
        LINEAR, segmentor, *FAST, '--batch-size', 1)
