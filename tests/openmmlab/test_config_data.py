"""What a config says about its test data."""
import pytest
from mmengine.config import Config

from locat_mmseg.openmmlab import config_data
from locat_mmseg.openmmlab.errors import UserError

FILE, PACK = dict(type='LoadImageFromFile'), dict(type='PackInputs')
NUMBERS = dict(mean=[51., 102., 153.], std=[255., 204., 127.5])


def config(pipeline, preprocessor=None, key='test_dataloader', **model):
    return Config({key: dict(dataset=dict(type='X', pipeline=pipeline)),
                   'model': dict(type='Y', **model), 'data_preprocessor': preprocessor or {}})


@pytest.mark.parametrize('files', [False, True])
@pytest.mark.parametrize('to_rgb', [False, True])
def test_order_of_channels(files, to_rgb):
    """Whichever place normalises: red first for arrays as they are and for files if swapped."""
    load = [FILE] if files else []
    normalize = dict(type='mmcv.Normalize', **NUMBERS, to_rgb=to_rgb)
    for cfg in (config([*load, normalize, PACK]),
                config([*load, PACK], {**NUMBERS, 'to_rgb': to_rgb}),
                config([*load, PACK], data_preprocessor={**NUMBERS, 'bgr_to_rgb': to_rgb})):
        mean, std = config_data.normalization(cfg)
        assert config_data.takes_bgr(cfg) == (files != to_rgb)
        assert mean == pytest.approx([.2, .4, .6]) and std == pytest.approx([1., .8, .5])


def test_a_preprocessor_that_swaps_what_the_pipeline_normalised():
    cfg = config([FILE, dict(type='Normalize', **NUMBERS, to_rgb=False), PACK], dict(to_rgb=True))
    mean, std = config_data.normalization(cfg)
    assert mean == pytest.approx([.6, .4, .2]) and std == pytest.approx([.5, .8, 1.])
    assert not config_data.takes_bgr(cfg)


def test_normalize_swaps_unless_told_not_to():
    assert not config_data.takes_bgr(config([FILE, dict(type='Normalize', **NUMBERS)]))


def test_a_config_without_data_reads_files():
    cfg = Config(dict(model={}, data_preprocessor=NUMBERS))
    assert config_data.takes_bgr(cfg) and config_data.normalization(cfg)[0] == [.2, .4, .6]


def test_no_normalisation():
    with pytest.raises(UserError, match='tells no normalisation: expected mean and std in data_p'):
        config_data.normalization(config([FILE, PACK], dict(num_classes=3, mean=None)))


def test_pipelines_of_the_first_loader_there_is():
    cfg = config([PACK], key='val_dataloader')
    assert config_data.test_loader_name(cfg) == 'val_dataloader'
    assert config_data.test_pipeline(cfg) == [PACK]
    inner = [dict(type='X', pipeline=[FILE]), dict(type='X', pipeline=[PACK])]
    cfg.test_dataloader = dict(dataset=dict(type='ConcatDataset', datasets=inner))
    assert config_data.test_loader_name(cfg) == 'test_dataloader'
    assert config_data.test_pipelines(cfg) == [[FILE], [PACK]]
    with pytest.raises(UserError, match='the config has no test_dataloader and no val_dataloader'):
        config_data.test_pipeline(Config())


def test_names_of_steps():
    assert [config_data.type_of(step) for step in (
        FILE, dict(type='mmseg.PackInputs'), dict(type=Config), Config())] == [
        'LoadImageFromFile', 'PackInputs', 'Config', 'Config']
