"""The test images of a config, read as a model of any origin needs them."""
from functools import partial

import cv2
import numpy as np
import pytest
import torch
from mmengine.config import Config
from tiny_runs import draw_pair

import locat_mmseg  # noqa: F401  registers
from locat_mmseg.analysis.visible_part import ForegroundBoxes, ForegroundMasks
from locat_mmseg.openmmlab.errors import UserError
from locat_mmseg.openmmlab.labelled_pictures import LabelledPictures

BOX = """<annotation><size><width>{width}</width><height>{height}</height></size><object>
<name>{name}</name><bndbox><xmin>0</xmin><ymin>0</ymin><xmax>{half}</xmax><ymax>{height}</ymax>
</bndbox></object></annotation>"""


@pytest.fixture
def classified(classification_config):
    return Config.fromfile(classification_config(
        "\npipeline.insert(2, dict(type='Normalize', mean=[1.] * 3, std=[2.] * 3))"
        '\nfor loader in (train_dataloader, val_dataloader, test_dataloader):'
        "\n    loader['dataset']['pipeline'] = pipeline"))


@pytest.fixture
def boxes(classification_data):
    """Boxes around the left half of the first validation image of each class."""
    folder = classification_data / 'boxes'
    folder.mkdir()
    for name in ('cat', 'dog'):
        height, width = cv2.imread(str(classification_data / f'val/{name}/{name}0.png')).shape[:2]
        (folder / f'{name}0.xml').write_text(BOX.format(
            width=width, height=height, half=width // 2, name=name))
    return folder


def test_classes_without_normalisation(classified):
    data = LabelledPictures(classified)
    assert len(data) == 4 and not data.has_maps and list(data.classes) == ['cat', 'dog']
    assert [label.item() for _, label in data] == [0, 0, 1, 1]
    picture, _ = data[2]
    assert picture.shape == (3, 32, 32) and torch.allclose(picture, torch.tensor(180 / 255))
    assert data.describe()['images'] == data.describe()['of'] == 4


def test_files_come_in_rgb(classified, classification_data):
    path = classification_data / 'val/cat/cat0.png'
    cv2.imwrite(str(path), np.full((32, 32, 3), (10, 20, 30), np.uint8))  # blue, green, red
    picture, _ = LabelledPictures(classified)[0]
    assert (picture[:, 5, 5] * 255).round().tolist() == [30, 20, 10]


def test_label_maps_keep_their_size(segmentation_config):
    data = LabelledPictures(Config.fromfile(segmentation_config()))
    assert data.has_maps and (data.num_classes, data.void) == (3, 255)
    pictures, labels = next(data.batches(1, 0))
    assert pictures.shape == (1, 3, 32, 32)
    assert np.array_equal(labels[0].numpy(), draw_pair(4)[1])


def test_batches(classified, segmentation_config):
    shapes = [tuple(pictures.shape) for pictures, _ in LabelledPictures(classified).batches(3, 0)]
    assert shapes == [(3, 3, 32, 32), (1, 3, 32, 32)]
    maps = LabelledPictures(Config.fromfile(segmentation_config()))
    assert [len(labels) for _, labels in maps.batches(2, 0)] == [1, 1]  # of different sizes


def test_limit_takes_images_evenly(classified):
    assert [label.item() for _, label in LabelledPictures(classified, 2)] == [0, 1]
    assert len(LabelledPictures(classified, 99)) == 4


def test_parts_by_boxes(classified, boxes):
    parts = {part: LabelledPictures(classified, None, ForegroundBoxes(boxes), part)
             for part in ('whole', 'foreground', 'background')}
    assert {(len(data), data.left_out) for data in parts.values()} == {(2, 2)}
    whole, foreground, background = (data[1][0] for data in parts.values())
    assert parts['whole'][1][1] == 1
    assert torch.equal(foreground[..., :14], whole[..., :14]) and not foreground[..., 18:].any()
    assert torch.equal(background[..., 18:], whole[..., 18:]) and not background[..., :14].any()


def test_parts_by_masks(classified, classification_data, tmp_path):
    (tmp_path / 'masks').mkdir()
    size = cv2.imread(str(classification_data / 'val/dog/dog1.png')).shape[:2]
    mask = np.zeros(size, np.uint8)
    mask[:size[0] // 2] = 1
    cv2.imwrite(str(tmp_path / 'masks/dog1.png'), mask)
    data = LabelledPictures(classified, None, ForegroundMasks(tmp_path / 'masks'), 'background')
    (picture, label), = data
    assert label == 1 and not picture[:, :14].any() and picture[:, 18:].all()


def test_errors(classified, boxes, segmentation_config, tmp_path):
    for path in boxes.iterdir():
        path.rename(path.with_stem(f'other_{path.stem}'))
    with pytest.raises(UserError, match='none of 4 images has a foreground'):
        LabelledPictures(classified, None, ForegroundBoxes(boxes))
    maps = partial(segmentation_config)
    with pytest.raises(UserError, match='the config has no test_dataloader and no val_dataloader'):
        LabelledPictures(Config.fromfile(maps('\ndel test_dataloader, val_dataloader')))
    unlabelled = maps('\ntest_dataloader = dict(val_dataloader, dataset=dict('
                      "\n    val_dataloader['dataset'], pipeline=[load[0], *pack]))")
    with pytest.raises(UserError, match='an image has the label None: expected a data set with'):
        LabelledPictures(Config.fromfile(unlabelled)).has_maps
    arrays = Config.fromfile(maps('\ntest_dataloader = dict(val_dataloader, dataset=dict('
                                  "\n    val_dataloader['dataset'], pipeline=pack))"))
    with pytest.raises(UserError, match='has no LoadImageFromFile: boxes and masks are found by'):
        LabelledPictures(arrays, None, ForegroundBoxes(boxes))
