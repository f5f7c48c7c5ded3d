"""Foreground and background by boxes and masks, typed by hand."""
import numpy as np
import pytest
from PIL import Image

from locat_mmseg.analysis.visible_part import (ForegroundBoxes, ForegroundMasks, boxes_mask,
                                               keep_part, read_boxes)

XML = """<annotation><size><width>10</width><height>6</height><depth>3</depth></size>
<object><name>n01</name><bndbox><xmin>1</xmin><ymin>2</ymin><xmax>4</xmax><ymax>5</ymax></bndbox>
</object><object><name>n02</name><bndbox><xmin>0</xmin><ymin>0</ymin><xmax>9</xmax><ymax>6</ymax>
</bndbox></object><object><name>n01</name><bndbox><xmin>3</xmin><ymin>0</ymin><xmax>6</xmax>
<ymax>3</ymax></bndbox></object></annotation>"""
# The two boxes of n01 in 6 x 10 pixels.
MASK = np.array([[0, 0, 0, 1, 1, 1, 0, 0, 0, 0],
                 [0, 0, 0, 1, 1, 1, 0, 0, 0, 0],
                 [0, 1, 1, 1, 1, 1, 0, 0, 0, 0],
                 [0, 1, 1, 1, 0, 0, 0, 0, 0, 0],
                 [0, 1, 1, 1, 0, 0, 0, 0, 0, 0],
                 [0, 0, 0, 0, 0, 0, 0, 0, 0, 0]], bool)


@pytest.fixture
def folder(tmp_path):
    """boxes/n01/n01_7.xml beside masks/n01_7.png."""
    (tmp_path / 'boxes/n01').mkdir(parents=True)
    (tmp_path / 'boxes/n01/n01_7.xml').write_text(XML)
    (tmp_path / 'masks').mkdir()
    Image.fromarray(MASK.astype(np.uint8) * 3).save(tmp_path / 'masks/n01_7.png')
    return tmp_path


def test_boxes_of_one_class(folder):
    path = folder / 'boxes/n01/n01_7.xml'
    assert read_boxes(path, 'n01', (6, 10)) == [(1, 2, 4, 5), (3, 0, 6, 3)]
    assert read_boxes(path, 'n03', (6, 10)) == []
    assert np.array_equal(boxes_mask(read_boxes(path, 'n01', (6, 10)), (6, 10)), MASK)


def test_boxes_of_another_size_are_scaled(folder):
    boxes = read_boxes(folder / 'boxes/n01/n01_7.xml', 'n01', (12, 30))
    assert boxes == [(3, 4, 12, 10), (9, 0, 18, 6)]
    assert np.array_equal(boxes_mask(boxes, (12, 30)), MASK.repeat(2, 0).repeat(3, 1))


def test_boxes_beyond_the_edge_are_cut():
    assert boxes_mask([(-3, -1, 2, 9)], (2, 4)).tolist() == [[True, True, False, False]] * 2


def test_the_parts_add_up_to_the_whole():
    picture = np.arange(1, 181, dtype=np.uint8).reshape(6, 10, 3)
    parts = {part: keep_part(picture, MASK, part) for part in ('whole', 'foreground',
                                                               'background')}
    assert np.array_equal(parts['whole'], picture)
    assert np.array_equal(parts['foreground'] + parts['background'], picture)
    assert parts['foreground'].dtype == np.uint8
    assert np.array_equal(parts['foreground'].any(-1), MASK)
    assert np.array_equal(keep_part(picture[..., 0], MASK, 'background') > 0, ~MASK)


def test_foregrounds_are_found_by_name(folder):
    boxes, masks = ForegroundBoxes(folder / 'boxes'), ForegroundMasks(folder / 'masks')
    picture = folder / 'train/n01/n01_7.JPEG'
    assert np.array_equal(boxes(picture, (6, 10)), MASK)
    assert np.array_equal(masks(picture, (6, 10)), MASK)
    assert boxes(folder / 'train/n05/n01_7.JPEG', (6, 10)) is None  # no box of its class
    for foreground in (boxes, masks):
        assert foreground(folder / 'train/n01/n01_8.JPEG', (6, 10)) is None


def test_errors(folder):
    with pytest.raises(ValueError, match=r"part 'sky': expected one of \('whole', 'foreground'"):
        keep_part(np.zeros((6, 10, 3)), MASK, 'sky')
    with pytest.raises(ValueError, match=r'a mask of \(6, 10\) for a picture of \(5, 10\)'):
        keep_part(np.zeros((5, 10, 3)), MASK, 'whole')
    with pytest.raises(ValueError, match=r'shape \(6, 10\) for a picture of \(7, 10\)'):
        ForegroundMasks(folder / 'masks')(folder / 'n01_7.jpg', (7, 10))
    with pytest.raises(ValueError, match='no .xml files below .*masks: give the folder'):
        ForegroundBoxes(folder / 'masks')
    (folder / 'boxes/n01_7.xml').write_text('<annotation></annotation>')
    with pytest.raises(ValueError, match='n01_7.xml and .*n01_7.xml have one name'):
        ForegroundBoxes(folder / 'boxes')
    for text in ('<annotation></annotation>', 'no XML'):
        (folder / 'boxes/n01_7.xml').write_text(text)
        with pytest.raises(ValueError, match='is no annotation with size and bndbox'):
            read_boxes(folder / 'boxes/n01_7.xml', 'n01', (6, 10))
