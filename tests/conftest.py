"""Fixtures: tiny data sets and configs in a temporary folder."""
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from tiny_runs import (CLASSIFICATION, SEGMENTATION, write_classification_data, write_config,
                       write_segmentation_data)


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
