"""Missing and misnamed data, before anything is built."""
import re

import pytest
import user_errors
from mmengine.config import Config
from mmengine.dataset import BaseDataset
from mmengine.registry import DATASETS

from locat_mmseg.openmmlab.preflight import check_data

CIFAR = dict(type='CIFAR100', split='train', download=False)


def segmentation(data, **changes) -> Config:
    dataset = dict(type='BaseSegDataset', data_root=str(data), img_suffix='.png',
                   data_prefix=dict(img_path='images/train', seg_map_path='annotations/train'),
                   metainfo=dict(classes=('left', 'right', 'low')), pipeline=[])
    return Config(dict(default_scope='mmseg', train_dataloader=dict(dataset={**dataset,
                                                                              **changes})))


def classification(data, **changes) -> Config:
    dataset = dict(type='CustomDataset', data_root=str(data), data_prefix='train', pipeline=[])
    return Config(dict(default_scope='mmpretrain', train_dataloader=dict(dataset={**dataset,
                                                                                   **changes})))


def mistake(cfg: Config) -> str:
    return user_errors.mistake(check_data, cfg, ('train_dataloader', 'val_dataloader'))


def test_data_in_place_passes(segmentation_data, classification_data):
    check_data(segmentation(segmentation_data), ('train_dataloader', 'val_dataloader'))
    check_data(classification(classification_data), ('train_dataloader',))


def test_only_the_named_loaders_are_looked_at(tmp_path):
    check_data(segmentation(tmp_path / 'nowhere'), ('test_dataloader',))


def test_missing_data_root(tmp_path):
    text = mistake(segmentation(tmp_path / 'nowhere'))
    assert text.startswith(f'train_dataloader.dataset.data_root is {tmp_path}/nowhere, which does '
                           'not exist')
    assert '--cfg-options train_dataloader.dataset.data_root=FOLDER' in text


def test_missing_annotation_folder(segmentation_data):
    text = mistake(segmentation(segmentation_data, data_prefix=dict(
        img_path='images/train', seg_map_path='labels/train')))
    assert text.startswith("train_dataloader.dataset.data_prefix.seg_map_path is 'labels/train'")
    assert f'{segmentation_data}/labels/train does not exist' in text


def test_missing_annotation_file(segmentation_data):
    text = mistake(segmentation(segmentation_data, ann_file='train.txt'))
    assert "train_dataloader.dataset.ann_file is 'train.txt'" in text
    assert f'{segmentation_data}/train.txt does not exist' in text


def test_data_set_inside_wrappers(tmp_path, segmentation_data):
    good = segmentation(segmentation_data).train_dataloader.dataset
    bad = segmentation(tmp_path / 'nowhere').train_dataloader.dataset
    both = dict(type='ConcatDataset', datasets=[good, dict(type='RepeatDataset', times=2,
                                                           dataset=bad)])
    cfg = Config(dict(default_scope='mmseg', train_dataloader=dict(dataset=both)))
    assert mistake(cfg).startswith('train_dataloader.dataset.datasets.1.dataset.data_root is')


def test_wrong_image_suffix_tells_what_there_is(segmentation_data):
    text = mistake(segmentation(segmentation_data, img_suffix='.jpg'))
    assert 'images/train has no *.jpg; it has 4 x .png' in text
    assert 'train_dataloader.dataset.img_suffix' in text


def test_wrong_label_suffix(segmentation_data):
    text = mistake(segmentation(segmentation_data, seg_map_suffix='_labelTrainIds.png'))
    assert re.search(r'annotations/train has no \d_labelTrainIds\.png; it has 4 x \.png', text)
    assert 'train_dataloader.dataset.seg_map_suffix' in text


def test_empty_folder(segmentation_data):
    (segmentation_data / 'images/empty').mkdir()
    text = mistake(segmentation(segmentation_data, data_prefix=dict(
        img_path='images/empty', seg_map_path='annotations/train')))
    assert 'images/empty has no *.png; it has no file at all' in text


def test_list_of_images_that_are_not_there(segmentation_data):
    (segmentation_data / 'train.txt').write_text('17\n')
    text = mistake(segmentation(segmentation_data, ann_file='train.txt'))
    assert 'images/train has no 17.png' in text
    (segmentation_data / 'train.txt').write_text('')
    assert 'train.txt is empty' in mistake(segmentation(segmentation_data, ann_file='train.txt'))


def test_what_the_class_itself_refuses(segmentation_data):
    text = mistake(segmentation(segmentation_data, metainfo=dict(classes=('a', 'b'),
                                                                 palette=[[0, 0, 0]])))
    assert text.startswith('train_dataloader.dataset is not right: palette does not match')


def test_unknown_data_set_is_left_to_the_registry(segmentation_data):
    with pytest.raises(KeyError, match='SegDatset is not in the mmseg::dataset registry'):
        check_data(segmentation(segmentation_data, type='SegDatset'), ('train_dataloader',))


@DATASETS.register_module()
class _Eager(BaseDataset):
    def __init__(self, data_root: str) -> None:
        raise RuntimeError('not now')


def test_class_that_only_builds_with_its_data_is_left_alone(tmp_path):
    cfg = Config(dict(train_dataloader=dict(dataset=dict(type='_Eager', data_root=str(tmp_path)))))
    check_data(cfg, ('train_dataloader',))


def test_self_drawn_data_has_no_files():
    cfg = Config(dict(default_scope='mmseg', train_dataloader=dict(dataset=dict(
        type='ShapesSegDataset', split='train', num_images=2, pipeline=[]))))
    check_data(cfg, ('train_dataloader',))


def test_class_folders(classification_data):
    assert 'train2 does not exist' in mistake(classification(classification_data,
                                                             data_prefix='train2'))
    (classification_data / 'flat').mkdir()
    text = mistake(classification(classification_data, data_prefix='flat'))
    assert 'it has no file at all' in text
    (classification_data / 'flat/1.png').touch()
    text = mistake(classification(classification_data, data_prefix='flat'))
    assert 'has no folder per class' in text


def test_split_of_imagenet_that_is_missing(classification_data):
    text = mistake(classification(classification_data, type='ImageNet', data_prefix='',
                                  split='test'))
    assert f'{classification_data}/test' in text and 'does not exist' in text


def test_part_of_imagenet_as_imagenet(classification_data):
    text = mistake(classification(classification_data, type='ImageNet', data_prefix='',
                                  split='train'))
    assert 'has 2 class folders, but ImageNet has 1000 classes' in text
    assert "train_dataloader.dataset.type='CustomDataset'" in text


def test_missing_data_that_can_be_downloaded_is_left_to_its_class(tmp_path):
    check_data(Config(dict(default_scope='mmpretrain', train_dataloader=dict(dataset=dict(
        CIFAR, data_root=str(tmp_path / 'c100'), download=True)))), ('train_dataloader',))


def test_cifar_that_may_not_be_downloaded(tmp_path):
    cfg = Config(dict(default_scope='mmpretrain', train_dataloader=dict(dataset=dict(
        CIFAR, data_root=str(tmp_path)))))
    text = mistake(cfg)
    assert f'{tmp_path}/cifar-100-python does not exist: fetch http' in text
