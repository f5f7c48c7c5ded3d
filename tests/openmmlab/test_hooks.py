"""Runs that cannot come out right end before they begin."""
import logging
from types import SimpleNamespace

import cv2
import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.dataset import DefaultSampler, InfiniteSampler
from mmengine.registry import MODELS, init_default_scope
from mmengine.runner import Runner
from mmengine.structures import PixelData
from mmpretrain.structures import DataSample
from mmseg.structures import SegDataSample
from torch import nn
from torch.utils.data import DataLoader
from user_errors import mistake

from locat_mmseg.openmmlab.label_checks import GuardedLoader, check_labels
from locat_mmseg.openmmlab.model_checks import (check_batch, check_batch_norm, check_num_classes,
                                                label_limits, report_batch_size)


# ---- classes ----

def test_number_of_classes_of_each_head(runner_of):
    text = mistake(runner_of(model__decode_head__num_classes=4).train)
    assert 'BaseSegDataset (train_dataloader) has 3 classes, but ' \
           'model.decode_head.num_classes is 4' in text
    assert '--cfg-options model.decode_head.num_classes=3,' in text
    assert 'auxiliary_head' not in text


def test_a_head_with_classes_of_its_own_is_warned_of(recwarn):
    """Such as the boundary heads of STDC: two classes on any data; or a cascade's first head."""
    model = segmentor(3)
    model.auxiliary_head = nn.ModuleList([head(3), head(2)])
    check_num_classes(model, 3, 'A')
    warned = [str(w.message) for w in recwarn if 'classes' in str(w.message)]
    assert warned == ['A has 3 classes, but model.auxiliary_head.1.num_classes is 2: right only if '
                      'this head learns something else']
    model.decode_head = nn.ModuleList([head(2), head(5)])
    assert 'model.decode_head.1.num_classes is 5' in mistake(check_num_classes, model, 3, 'A')
    assert label_limits(model) == (5, 255)


def test_heads_that_predict_no_classes_are_left_alone():
    init_default_scope('mmseg')
    model = nn.Module()
    model.decode_head = MODELS.build(dict(
        type='FCNHead', in_channels=4, channels=4, num_classes=1, out_channels=1, threshold=0.3,
        loss_decode=dict(type='SiLogLoss')))
    check_num_classes(model, 28, 'A')
    model.decode_head.loss_decode = nn.CrossEntropyLoss()
    assert 'A has 28 classes' in mistake(check_num_classes, model, 28, 'A')
    depth = MODELS.build(dict(type='VPDDepthHead', in_channels=[32] * 3, embed_dim=4,
                              num_deconv_layers=1, num_deconv_filters=(16, )))
    model.decode_head = depth
    check_num_classes(model, 28, 'A')


def test_number_of_classes_of_validation_data(runner_of):
    runner = runner_of(val_dataloader__dataset__metainfo__classes=('one', 'two'))
    assert 'BaseSegDataset (val_dataloader) has 2 classes, but model.decode_head.num_classes is ' \
           '3, model.auxiliary_head.num_classes is 3' in mistake(runner.train)


def test_number_of_classes_when_testing(runner_of):
    assert '(test_dataloader) has 3 classes' in mistake(
        runner_of(model__decode_head__num_classes=5).test)


def test_number_of_classes_of_classifier_and_mixup(classification_config, tmp_path):
    cfg = Config.fromfile(classification_config())
    cfg.work_dir = str(tmp_path / 'run')
    cfg.data_preprocessor.num_classes = 10
    text = mistake(Runner.from_cfg(cfg).train)
    assert 'CustomDataset (train_dataloader) has 2 classes, but data_preprocessor.num_classes ' \
           'is 10: set --cfg-options data_preprocessor.num_classes=2' in text


# ---- files ----

@pytest.mark.parametrize('split, run', [('train', Runner.train), ('val', Runner.train),
                                        ('val', Runner.val), ('val', Runner.test)])
def test_label_outside_the_classes_before_the_first_step(runner_of, segmentation_data, split, run):
    path = sorted((segmentation_data / 'annotations' / split).iterdir())[-1]
    labels = cv2.imread(str(path), cv2.IMREAD_UNCHANGED)
    labels[5, 7:9] = 3, 40
    cv2.imwrite(str(path), labels)
    text = mistake(run, runner_of())
    assert text.startswith(f'{path} has label 3, 40, but allowed are the classes 0 to 2 and 255')
    assert 'reduce_zero_label=True' in text


def test_reduced_labels_are_reported_as_such(runner_of, segmentation_data):
    path = segmentation_data / 'annotations/train/0.png'
    cv2.imwrite(str(path), np.full((37, 53), 9, np.uint8))
    text = mistake(runner_of(train_dataloader__dataset__reduce_zero_label=True).train)
    assert f'{path} has, after reduce_zero_label took 1 off, label 8' in text


def test_coloured_label_map(runner_of, segmentation_data):
    path = segmentation_data / 'annotations/train/2.png'
    cv2.imwrite(str(path), np.zeros((32, 32, 3), np.uint8))
    text = mistake(runner_of().train)
    assert text.startswith(f'label map {path} has shape (32, 32, 3), but a label map is')


def test_label_map_of_another_size_than_its_image(runner_of, segmentation_data):
    path = segmentation_data / 'annotations/train/1.png'
    cv2.imwrite(str(path), np.zeros((48, 41), np.uint8))
    assert f'label map {path} is 48 x 41, but its image is 41 x 48' in mistake(runner_of().train)


@pytest.mark.parametrize('kind, loader', [('images', 'LoadImageFromFile'),
                                          ('annotations', 'LoadAnnotations')])
@pytest.mark.parametrize('content', [b'', b'no image', 'half'], ids=['empty', 'text', 'half'])
def test_broken_file_is_named(kind, loader, content, runner_of, segmentation_data):
    path = segmentation_data / kind / 'train/3.png'
    whole = path.read_bytes()
    path.write_bytes(whole[:len(whole) // 2] if content == 'half' else content)
    text = mistake(runner_of(train_cfg__max_iters=8).train)
    assert text.startswith(f'{loader} cannot read {path} (')
    assert 'repair the file' in text


def test_broken_label_map_inside_test_time_augmentation(runner_of, segmentation_data):
    path = segmentation_data / 'annotations/val/5.png'
    path.write_bytes(b'no image')
    runner = runner_of("\ntest_dataloader['dataset']['pipeline'] = tta_pipeline"
                       "\nmodel = dict(type='SegTTAModel', module=model)")
    assert f'LoadAnnotations cannot read {path}' in mistake(runner.test)


def test_a_guard_changes_nothing_else():
    results = dict(img_path='1.png')
    assert GuardedLoader(lambda given: given)(results) is results
    assert GuardedLoader(lambda given: None)(results) is None
    with pytest.raises(ZeroDivisionError):
        GuardedLoader(lambda given: 1 / 0)(results)
    with pytest.raises(AttributeError):
        GuardedLoader(lambda given: given.no_such_method())(results)


def test_a_failure_in_a_transform_of_the_user_names_its_line():
    def transform(results):
        return int(results['img_path'])
    line = transform.__code__.co_firstlineno + 1
    text = mistake(GuardedLoader(transform), dict(img_path='1.png'))
    assert text.startswith("function cannot read 1.png (ValueError: invalid literal")
    assert f' at {__file__}:{line}): repair' in text


# ---- batches ----

def head(num_classes: int, ignore_index: int = 255) -> nn.Module:
    module = nn.Module()
    module.num_classes, module.ignore_index = num_classes, ignore_index
    return module


def segmentor(num_classes: int = 3, ignore_index: int = 255) -> nn.Module:
    model = nn.Module()
    model.decode_head = head(num_classes, ignore_index)
    return model


def pixel_sample(labels: list[list[int]]) -> SegDataSample:
    sample = SegDataSample(metainfo=dict(seg_map_path='a/1.png'))
    return sample.update(SegDataSample(gt_sem_seg=PixelData(data=torch.tensor([labels])))) or sample


def test_batch_with_good_labels_passes():
    batch = dict(data_samples=[pixel_sample([[0, 2, 255]]), [pixel_sample([[1, 1, 1]])]])
    check_batch(segmentor(), batch, True)
    check_batch(segmentor(ignore_index=11), dict(data_samples=[pixel_sample([[0, 2, 11]])]),
                True)


@pytest.mark.parametrize('label', [-1, 3, 254])
def test_batch_with_a_bad_label(label):
    bad = pixel_sample([[0, 255, label]])
    for samples in ([pixel_sample([[0, 0, 0]]), bad], [[bad]]):
        text = mistake(check_batch, segmentor(), dict(data_samples=samples), False)
        assert text.startswith(f'a/1.png has label {label}, but allowed are the classes 0 to 2')


def test_bad_label_of_an_image(classification_config, classification_data, tmp_path):
    (classification_data / 'list.txt').write_text('cat/cat0.png 0\ndog/dog0.png 2\n')
    cfg = Config.fromfile(classification_config())
    cfg.train_dataloader.dataset.update(ann_file='list.txt', metainfo=dict(classes=('a', 'b')))
    cfg.work_dir = str(tmp_path / 'run')
    text = mistake(Runner.from_cfg(cfg).train)
    assert text == f'{classification_data}/train/dog/dog0.png has label 2, but allowed are the ' \
                   'classes 0 to 1: change its label, or raise num_classes of the heads and name ' \
                   'the class in the data set'


def test_labels_of_images_are_classes_in_training_only():
    """In retrieval those of the queries are indices into the gallery."""
    model = nn.Module()
    model.head = head(3)
    batch = dict(data_samples=[DataSample().set_gt_label(255)])
    check_batch(model, batch, training=False)
    assert 'label 255' in mistake(check_batch, model, batch, True)


def test_labels_of_numpy_and_torch_alike():
    for labels in (np.array([0, 9], np.uint8), torch.tensor([0, 9])):
        check_labels(labels, 10, 255, {})
        assert 'a sample has label 9' in mistake(check_labels, labels, 9, 255, {})


# ---- batch norm and batch size ----

def pooling_model(norm: nn.Module, size: int = 1) -> nn.Module:
    model = nn.Module()
    model.ppm = nn.Sequential(nn.AdaptiveAvgPool2d(size), nn.Conv2d(2, 4, 1), norm)
    return model


def loader(images: int, batch_size: int, infinite: bool = False, **kwargs) -> DataLoader:
    data = range(images)
    sampler = InfiniteSampler(data) if infinite else DefaultSampler(data)
    return DataLoader(data, batch_size=batch_size, sampler=sampler, **kwargs)


@pytest.mark.parametrize('data', [loader(4, 1), loader(4, 1, infinite=True), loader(5, 2)])
def test_batch_of_one_image_in_batch_norm_after_pooling(data):
    model = pooling_model(nn.BatchNorm2d(4))
    assert "batch norm of ppm has a single value" in mistake(check_batch_norm, model, data)
    with pytest.raises(ValueError, match='more than 1 value per channel'):
        model.ppm(torch.zeros(1, 2, 5, 7))  # this is what it spares the user


@pytest.mark.parametrize('data', [loader(4, 2), loader(5, 2, infinite=True), loader(5, 3),
                                  loader(5, 2, drop_last=True)])
def test_larger_batches_pass(data):
    check_batch_norm(pooling_model(nn.BatchNorm2d(4)), data)


@pytest.mark.parametrize('model', [pooling_model(nn.GroupNorm(2, 4)),
                                   pooling_model(nn.BatchNorm2d(4), size=2)])
def test_models_that_take_one_image_pass(model):
    check_batch_norm(model, loader(4, 1))
    model.ppm(torch.zeros(1, 2, 5, 7))


@pytest.mark.parametrize('head, fails', [('PSPHead', True), ('UPerHead', True), ('FCNHead', False)])
def test_batch_norm_of_real_heads(head, fails):
    init_default_scope('mmseg')
    many = head == 'UPerHead'
    built = MODELS.build(dict(type=head, in_channels=[4, 4] if many else 4, channels=4,
                              in_index=[0, 1] if many else 0, num_classes=2,
                              norm_cfg=dict(type='BN')))
    if fails:
        assert 'single value' in mistake(check_batch_norm, built, loader(4, 1))
    else:
        check_batch_norm(built, loader(4, 1))


@pytest.mark.parametrize('scale, steps, warned', [
    (None, 1, False), (dict(base_batch_size=2), 1, False), (dict(base_batch_size=16), 1, True),
    (dict(base_batch_size=16, enable=True), 1, False), (dict(base_batch_size=8), 4, False)])
def test_total_batch_size(scale, steps, warned, caplog):
    runner = SimpleNamespace(logger=logging.getLogger('run'), auto_scale_lr=scale,
                             cfg=Config(dict(optim_wrapper=dict(accumulative_counts=steps))))
    with caplog.at_level(logging.INFO):
        report_batch_size(runner, loader(4, 2))
    assert f'total batch size {2 * steps} = 2 images x 1 processes x {steps}' in caplog.text
    assert ('the learning rate is for a total batch size of 16, but this run has 2' in
            caplog.text) == warned
