"""A folder of visualised features: what is done stays, other settings are refused or redone."""
import json

import numpy as np
import pytest
import torch
from PIL import Image

from locat_mmseg.analysis.feature_grid import FeatureGrid, record_of

SETTINGS = dict(model='vit', size=(8, 12), lr=0.1)
RECORD = dict(name='blocks.3', activation=1.25)


@pytest.fixture
def grid(tmp_path):
    return FeatureGrid(tmp_path / 'grid', SETTINGS)


def picture(value):
    return torch.full((3, 8, 12), value)


def test_saved_features_are_not_missing(grid):
    assert grid.missing(3, [0, 7, 12]) == [0, 7, 12]
    grid.save(3, 7, picture(0.4), RECORD)
    assert grid.missing(3, [0, 7, 12]) == [0, 12]
    assert grid.missing(4, [7]) == [7]
    assert FeatureGrid(grid.folder, SETTINGS).missing(3, [7]) == []
    pixels = np.array(Image.open(grid.path(3, 7)))
    assert pixels.shape == (8, 12, 3) and np.unique(pixels).tolist() == [102]
    assert json.loads((grid.folder / 'layer03_feature00007.json').read_text()) == dict(
        layer=3, feature=7, **RECORD, settings=dict(model='vit', size=[8, 12], lr=0.1))


def test_a_picture_without_its_note_is_made_again(grid):
    grid.save(3, 7, picture(0.4), RECORD)
    grid.path(3, 7).with_suffix('.json').unlink()
    assert grid.missing(3, [7]) == [7]


def test_a_note_without_its_picture_does_not_count(grid):
    grid.save(3, 7, picture(0.4), RECORD)
    grid.path(3, 7).unlink()
    assert grid.missing(3, [7]) == [7]


def test_a_new_picture_never_has_the_old_note(grid, monkeypatch):
    grid.save(3, 7, picture(0.4), RECORD)
    monkeypatch.setattr('locat_mmseg.analysis.feature_grid.write_json', lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):  # interrupted between the two
        FeatureGrid(grid.folder, dict(SETTINGS, lr=0.2), redo=True).save(3, 7, picture(0.8), RECORD)
    assert grid.missing(3, [7]) == [7]


@pytest.mark.parametrize('text', ['{"layer": 3, ', '{"layer": 3}', '[]'])
def test_a_note_that_is_none(grid, text):
    grid.save(3, 7, picture(0.4), RECORD)
    note = grid.path(3, 7).with_suffix('.json')
    note.write_text(text)
    with pytest.raises(ValueError, match=r'00007.json is no note of a picture \(.*Error\): remove'):
        grid.missing(3, [7])
    assert FeatureGrid(grid.folder, SETTINGS, redo=True).missing(3, [7]) == [7]


def test_a_folder_that_is_a_file(tmp_path):
    (tmp_path / 'file').write_text('')
    with pytest.raises(ValueError, match='file is a file: name another folder'):
        FeatureGrid(tmp_path / 'file', SETTINGS)


def test_other_settings_are_refused_or_redone(grid):
    grid.save(3, 7, picture(0.4), RECORD)
    other = dict(SETTINGS, lr=0.2, steps=5)
    with pytest.raises(ValueError, match=r'layer03_feature00007.json was made with lr 0.1 \(now '
                                         r'0.2\), steps None \(now 5\): give the same settings'):
        FeatureGrid(grid.folder, other).missing(3, [7])
    assert FeatureGrid(grid.folder, other).missing(3, [8]) == [8]
    redone = FeatureGrid(grid.folder, other, redo=True)
    assert redone.missing(3, [7]) == [7]
    redone.save(3, 7, picture(0.6), RECORD)
    assert redone.missing(3, [7]) == []


def test_sheet(grid):
    for layer in (0, 11):
        for feature in (1, 2):
            grid.save(layer, feature, torch.rand(3, 8, 12), RECORD)
    grid.draw_sheet([0, 11], [1, 2], ['blocks.0', 'blocks.11'], grid.folder / 'sheet.png')
    assert min(Image.open(grid.folder / 'sheet.png').size) > 300


def test_record_has_the_curve_to_its_end():
    record = record_of(torch.tensor(2.), torch.tensor(-0.5), torch.arange(46.), every=20)
    assert record == dict(activation=2., start=-0.5, curve={0: 0., 20: 20., 40: 40., 45: 45.})
