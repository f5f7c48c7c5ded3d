"""Fixtures: tiny data sets and configs in a temporary folder."""
from collections import OrderedDict
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import torch
from mmengine.registry import DefaultScope
from tiny_runs import (CLASSIFICATION, SEGMENTATION, load_tool, write_classification_data,
                       write_config, write_segmentation_data)


@pytest.fixture(autouse=True)
def no_default_scope(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Runner leaves its scope behind, in which the next test would look up its classes."""
    monkeypatch.setattr(DefaultScope, '_instance_dict', OrderedDict())


@pytest.fixture
def segmentation_data(tmp_path: Path) -> Path:
    return write_segmentation_data(tmp_path / 'seg_data')


@pytest.fixture
def classification_data(tmp_path: Path) -> Path:
    return write_classification_data(tmp_path / 'cls_data')


@pytest.fixture
def quick_runner(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spare each Runner the survey of the machine and the pretty printing of its config."""
    monkeypatch.setattr('mmengine.runner.runner.collect_env', dict)
    monkeypatch.setattr('yapf.yapflib.yapf_api.FormatCode', lambda text, **_: (text, True))


@pytest.fixture
def segmentation_config(segmentation_data: Path, tmp_path: Path, quick_runner: None
                        ) -> Callable[..., Path]:
    """Call it, with lines to append if wanted, for a config of 2 iterations on the tiny data."""
    return partial(write_config, SEGMENTATION, segmentation_data, tmp_path)


@pytest.fixture
def classification_config(classification_data: Path, tmp_path: Path, quick_runner: None
                          ) -> Callable[..., Path]:
    """As ``segmentation_config``: 2 epochs on the tiny image folders."""
    return partial(write_config, CLASSIFICATION, classification_data, tmp_path)


@pytest.fixture
def segmentor(segmentation_config: Callable[..., Path]) -> tuple[Path, Path]:
    """Config and checkpoint of a segmentor with a LocAt backbone."""
    from tiny_locat_configs import SEGMENTOR, checkpoint_of
    config = segmentation_config(SEGMENTOR)
    return config, checkpoint_of(config)


@pytest.fixture
def classifier(classification_config: Callable[..., Path]) -> tuple[Path, Path]:
    """Config and checkpoint of a classifier with a LocAt backbone and patch refinement."""
    from tiny_locat_configs import CLASSIFIER, checkpoint_of
    config = classification_config(CLASSIFIER)
    return config, checkpoint_of(config)


@pytest.fixture
def runner_of(segmentation_config: Callable[..., Path], tmp_path: Path) -> Callable:
    """Builds a Runner of ``segmentation_config``; model__head__channels=8 changes model.head..."""
    from mmengine.config import Config
    from mmengine.runner import Runner

    def build(extra: str = '', **changes) -> Runner:
        cfg = Config.fromfile(segmentation_config(extra))
        cfg.merge_from_dict({key.replace('__', '.'): value for key, value in changes.items()})
        cfg.work_dir = str(tmp_path / 'run')
        return Runner.from_cfg(cfg)
    return build


@pytest.fixture(scope='session')
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A segmentation config and the work dir of its finished run of two iterations."""
    folder = tmp_path_factory.mktemp('trained')
    config = write_config(SEGMENTATION, write_segmentation_data(folder / 'data'), folder)
    load_tool('train').main([str(config), '--work-dir', str(folder / 'run')])
    return config, folder / 'run'


@pytest.fixture
def clean_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, quick_runner: None
                  ) -> Iterator[None]:
    """Every run of a tool starts as in a new process, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv('LOCAL_RANK', '0')  # the tools set both; this way they are unset again
    monkeypatch.setenv('CUBLAS_WORKSPACE_CONFIG', ':4096:8')
    yield
    torch.use_deterministic_algorithms(False)
