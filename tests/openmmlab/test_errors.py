"""One sentence for a user's mistake, the traceback for a defect."""
import io
from urllib.error import URLError

import mmpretrain.datasets.cifar as cifar
import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.dataset import BaseDataset
from mmengine.registry import DATASETS, MODELS, PARAM_SCHEDULERS, init_default_scope
from mmengine.runner import CheckpointLoader
from torch.utils.data import DataLoader, Dataset

from locat_mmseg.layers import check_grid
from locat_mmseg.openmmlab.errors import FileError, UserError, one_sentence_errors
from locat_mmseg.openmmlab.label_checks import check_labels
from locat_mmseg.openmmlab.preflight import check_data


def sentence(function, *args, **kwargs) -> str:
    """What a tool would print."""
    with pytest.raises(SystemExit) as exit_, one_sentence_errors():
        function(*args, **kwargs)
    assert isinstance(exit_.value.code, str) and exit_.value.code.startswith('error: ')
    assert '\n' not in exit_.value.code
    return exit_.value.code.removeprefix('error: ')


def build(scope: str, config: dict):
    init_default_scope(scope)
    return MODELS.build(config)


def test_a_user_error_is_its_sentence():
    def fail():
        raise UserError('the folder is empty')
    assert sentence(fail) == 'the folder is empty'


class _Broken(Dataset):
    def __init__(self, error: type) -> None:
        self.error = error

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int):
        try:
            raise OSError('truncated')
        except OSError as error:
            raise self.error('cannot read 7.png: repair it') from error


@pytest.mark.parametrize('error', [UserError, FileError])
def test_a_user_error_in_a_worker_is_its_sentence(error):
    assert sentence(list, DataLoader(_Broken(error), num_workers=1)) == \
        'cannot read 7.png: repair it'


class _Folder(Dataset):
    """Asks this package for something impossible: of a patch grid, or (a defect) of numpy."""

    def __init__(self, grid: int) -> None:
        self.grid = grid

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int):
        return check_grid(self.grid) if self.grid == 0 else check_labels(
            np.zeros(3), np.zeros(2), 255, {})


def test_a_value_error_of_the_package_in_a_worker_is_its_sentence():
    text = sentence(list, DataLoader(_Folder(0), num_workers=1))
    assert text == sentence(check_grid, 0)
    with pytest.raises(ValueError, match='broadcast'), one_sentence_errors():
        list(DataLoader(_Folder(1), num_workers=1))


def test_a_value_error_that_the_package_raises_is_its_sentence():
    assert 'expected a positive integer or a pair' in sentence(check_grid, 0)


@pytest.mark.parametrize('error', [RuntimeError('boom'), ValueError('of another library'),
                                   KeyError('img'), AssertionError('inside')])
def test_anything_else_passes_through(error):
    def fail():
        raise error
    with pytest.raises(type(error)) as raised, one_sentence_errors():
        fail()
    assert raised.value is error


def test_a_value_error_that_no_raise_statement_made_is_a_defect():
    """Here numpy fails to broadcast, in a line of the package."""
    with pytest.raises(ValueError, match='broadcast'), one_sentence_errors():
        check_labels(np.zeros(3), np.zeros(2), 255, {})


def test_unknown_type_suggests_a_name_and_custom_imports():
    text = sentence(build, 'mmseg', dict(type='UPerHaed'))
    assert text.startswith("the config asks for type='UPerHaed', which is no model known to mmseg")
    assert "did you mean 'UPerHead'?" in text
    assert "custom_imports = dict(imports=['your_module'], allow_failed_imports=False)" in text


def test_no_type():
    assert sentence(build, 'mmseg', dict(depth=18, stem=3)) == (
        "the config lacks type='...' in a dict from which a model is built; its keys are depth, "
        'stem')


def test_type_of_another_scope_names_that_scope():
    text = sentence(build, 'mmpretrain', dict(type='EncoderDecoder'))
    assert "mmseg has it: write type='mmseg.EncoderDecoder'" in text
    assert "default_scope = 'mmseg'" in text


def test_scope_before_a_type_of_the_root_is_too_much():
    text = sentence(build, 'mmseg', dict(type='mmseg.LocAtViT'))
    assert "write type='LocAtViT', without a scope" in text


def test_argument_that_a_class_does_not_take():
    text = sentence(build, 'mmseg', dict(type='mmseg.ResNet', depht=18))
    assert 'the config cannot build mmseg.ResNet' in text and "'depht'" in text


def test_argument_that_a_base_class_does_not_take():
    """FCNHead passes what it does not know on to its base class."""
    head = dict(type='FCNHead', in_channels=4, channels=4, num_classes=2, num_convs=1, drop_out=0.)
    assert "'drop_out'" in sentence(build, 'mmseg', head)


def test_missing_argument():
    assert "missing 1 required positional argument: 'depth'" in sentence(
        build, 'mmseg', dict(type='mmseg.ResNet'))


def test_value_that_a_class_refuses():
    head = dict(type='FCNHead', in_channels=4, channels=4, num_classes=3)
    assert sentence(build, 'mmseg', dict(head, out_channels=5)).startswith(
        'the config cannot build FCNHead: ValueError: out_channels should be equal to num_classes')
    with pytest.raises(AssertionError), one_sentence_errors():
        build('mmseg', dict(head, num_convs=-1))  # a bare assertion is no sentence


def test_schedule_that_ends_before_it_begins():
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.)
    schedule = dict(type='LinearLR', begin=20, end=9, convert_to_iter_based=True, epoch_length=2)
    assert sentence(PARAM_SCHEDULERS.build, schedule, default_args=dict(optimizer=optimizer)) == (
        'the config cannot build LinearLR: ValueError: end should be larger than begin, but got '
        'begin=40, end=18')
    assert "type='LinerLR'" in sentence(PARAM_SCHEDULERS.build, dict(schedule, type='LinerLR'))


@MODELS.register_module()
class _Defective:
    def __init__(self) -> None:
        torch.zeros(1).sum(nonsense=True)


def test_type_error_inside_a_constructor_is_a_defect():
    with pytest.raises(TypeError), one_sentence_errors():
        build('mmengine', dict(type='_Defective'))


@pytest.mark.parametrize('content', [b'', b'not a checkpoint', b'PK\x03\x04 cut off'])
def test_checkpoint_that_is_none(tmp_path, content):
    path = tmp_path / 'broken.pth'
    path.write_bytes(content)
    text = sentence(CheckpointLoader.load_checkpoint, str(path), 'cpu')
    assert text.startswith(f'checkpoint {path} cannot be read')


def test_half_a_checkpoint(tmp_path):
    whole = io.BytesIO()
    torch.save(dict(state_dict=dict(weight=torch.zeros(100))), whole)
    path = tmp_path / 'half.pth'
    path.write_bytes(whole.getvalue()[:len(whole.getvalue()) // 2])
    assert 'half.pth cannot be read' in sentence(CheckpointLoader.load_checkpoint, str(path))


def test_download_without_network(tmp_path, monkeypatch):
    def unreachable(url, *args, **kwargs):
        raise URLError('no network')
    monkeypatch.setattr(cifar, 'download_and_extract_archive', unreachable)
    text = sentence(cifar.CIFAR100, data_root=str(tmp_path / 'c100'))
    assert text.startswith(f'CIFAR100 is not in {tmp_path}/c100') and 'cannot be downloaded' in text
    assert 'cifar-100-python.tar.gz' in text and 'data_root' in text


@DATASETS.register_module()
class _Refusing(BaseDataset):
    def __init__(self, **kwargs) -> None:
        raise ValueError('no such split')


def test_value_that_a_data_set_of_the_user_refuses_names_its_line():
    line = _Refusing.__init__.__code__.co_firstlineno + 1
    assert sentence(DATASETS.build, dict(type='_Refusing')) == \
        f'the config cannot build _Refusing: ValueError: no such split at {__file__}:{line}'
    cfg = Config(dict(train_dataloader=dict(dataset=dict(type='_Refusing'))))
    assert sentence(check_data, cfg, ('train_dataloader', )) == \
        f'train_dataloader.dataset is not right: no such split at {__file__}:{line}'


def test_the_traceback_on_request(monkeypatch):
    def fail():
        raise UserError('empty')
    monkeypatch.setenv('LOCAT_TRACEBACK', '1')
    with pytest.raises(UserError, match='empty'), one_sentence_errors():
        fail()
    monkeypatch.setenv('LOCAT_TRACEBACK', '0')
    assert sentence(fail) == 'empty'


@pytest.mark.parametrize('rank, local_rank, error, code', [
    (0, 0, UserError('empty'), 'error: empty'), (1, 1, UserError('empty'), 1),
    (2, 0, UserError('empty'), 'error: empty'),  # the first one on a second machine
    (1, 1, FileError('cannot read 7.png'), 'error: cannot read 7.png')])
def test_one_process_speaks_for_all_but_not_about_files(monkeypatch, rank, local_rank, error, code):
    def fail():
        raise error
    monkeypatch.setenv('RANK', str(rank))
    monkeypatch.setenv('LOCAL_RANK', str(local_rank))
    with pytest.raises(SystemExit) as exit_, one_sentence_errors():
        fail()
    assert exit_.value.code == code


def test_success_and_other_exits_pass_through():
    with one_sentence_errors():
        pass
    with pytest.raises(SystemExit) as exit_, one_sentence_errors():
        raise SystemExit(3)
    assert exit_.value.code == 3
