"""Reading weights from anywhere: what is refused, what is fetched, what is found."""
import argparse
import os
import pickle
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from huggingface_hub.utils import LocalEntryNotFoundError
from mmengine.logging import HistoryBuffer
from safetensors.torch import save_file
from tiny_timm import gaussians, tiny_vit

from locat_mmseg.addon import add_gaug, load_weights, read_weights, weight_sources
from locat_mmseg.addon.weight_sources import (TRUST_VARIABLE, UnreadableCheckpoint,
                                              UntrustedCheckpoint, local_path, read_source,
                                              select, timm_weights, unwrap)

WEIGHTS = {'a.weight': torch.arange(6.).view(2, 3)}


class Program:
    """Unpickled, it makes a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple:
        return os.mkdir, (str(self.folder), )


def write_pickle(content: object, path: Path) -> None:
    path.write_bytes(pickle.dumps(content))


WRITERS: dict[str, Callable[[object, Path], None]] = {
    'archive': torch.save, 'pickle': write_pickle,
    'old format': partial(torch.save, _use_new_zipfile_serialization=False)}


@pytest.fixture(autouse=True)
def no_trust(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TRUST_VARIABLE, raising=False)


# --- without running code ------------------------------------------------------------------------

@pytest.mark.parametrize('writer', WRITERS)
def test_a_program_in_a_file_does_not_run(writer: str, tmp_path: Path,
                                          monkeypatch: pytest.MonkeyPatch):
    file, folder = tmp_path / 'evil.pth', tmp_path / 'made'
    WRITERS[writer](dict(state_dict=WEIGHTS, extra=Program(folder)), file)
    with pytest.raises(UntrustedCheckpoint, match=(
            r'evil.pth is refused: reading it would run code from the file( \(it needs posix.*\))?'
            r', .*trust_checkpoint=True in init_cfg; for tools, load_from, --resume and '
            'other projects set LOCAT_TRUST_CHECKPOINT=1')):
        read_source(str(file))
    assert not folder.exists()
    monkeypatch.setenv(TRUST_VARIABLE, '0')
    with pytest.raises(UntrustedCheckpoint):
        read_source(str(file))
    if writer != 'pickle':  # which is none of torch's formats
        assert torch.equal(read_source(str(file), trust=True)['state_dict']['a.weight'],
                           WEIGHTS['a.weight'])
        assert folder.exists()
        folder.rmdir()
        monkeypatch.setenv(TRUST_VARIABLE, '1')
        read_source(str(file))
        assert folder.exists()


def test_only_allowed_classes_are_read(tmp_path: Path):
    """As DINO's training saves its arguments."""
    file = str(tmp_path / 'dino.pth')
    torch.save(dict(teacher=WEIGHTS, args=argparse.Namespace(arch='vit_small')), file)
    with pytest.raises(UntrustedCheckpoint, match='it needs argparse.Namespace'):
        read_source(file)
    assert read_source(file, allowed=[argparse.Namespace])['args'].arch == 'vit_small'
    with pytest.raises(UntrustedCheckpoint):  # it was allowed for that one reading only
        read_source(file)


@pytest.mark.parametrize('content', [b'<html>404</html>', b'', b'version https://git-lfs'])
def test_what_is_no_checkpoint_is_not_called_dangerous(content: bytes, tmp_path: Path):
    (tmp_path / 'a.pth').write_bytes(content)
    with pytest.raises(UnreadableCheckpoint, match=(
            r'a.pth cannot be read \(\w.*\): it is incomplete, or not what torch.save writes')):
        read_source(str(tmp_path / 'a.pth'))


@pytest.mark.parametrize('name', ['a.pth', 'a.safetensors'])
@pytest.mark.parametrize('trust', [False, True])
def test_half_a_file(name: str, trust: bool, tmp_path: Path):
    file = tmp_path / name
    (torch.save if name == 'a.pth' else save_file)(WEIGHTS, file)
    file.write_bytes(file.read_bytes()[:-40])
    with pytest.raises(UnreadableCheckpoint, match=r'cannot be read \([^\n]+\): it is incomplete, '
                       'or not what (torch.save|safetensors) writes; copy or download it again$'):
        read_source(str(file), trust=trust)


def test_an_archive_of_another_program(tmp_path: Path):
    np.savez(tmp_path / 'a.npz', a=np.zeros(2))
    (tmp_path / 'a.npz').rename(tmp_path / 'a.pth')
    with pytest.raises(UnreadableCheckpoint, match='file in archive is not in a subdirectory'):
        read_source(str(tmp_path / 'a.pth'))


def test_the_checkpoint_of_a_run_where_weights_are_read(tmp_path: Path):
    file = str(tmp_path / 'epoch_1.pth')
    torch.save(dict(state_dict=WEIGHTS, message_hub=HistoryBuffer()), file)
    with pytest.raises(UntrustedCheckpoint, match=(
            f'convert it by python tools/convert_weights.py {file} OUT.safetensors --to timm')):
        read_weights(file)


@pytest.mark.parametrize('content', [{}, {'state_dict': {}}, {1: torch.zeros(2)}], ids=str)
def test_nothing_by_name(content: dict):
    with pytest.raises(ValueError, match='a.pth holds no state dict: expected tensors by name'):
        unwrap(content, 'a.pth')


def test_missing_file(tmp_path: Path):
    with pytest.raises(FileNotFoundError, match='no.pth does not exist'):
        read_source(str(tmp_path / 'no.pth'))
    with pytest.raises(FileNotFoundError, match='is a folder: name a file in it'):
        read_source(str(tmp_path))


@pytest.mark.parametrize('map_location', [None, 'cpu', torch.device('cpu'), lambda s, _: s])
def test_safetensors(map_location, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv('HOME', str(tmp_path))
    save_file(WEIGHTS, tmp_path / 'a.safetensors')
    weights = read_source('~/a.safetensors', map_location)
    assert weights.keys() == WEIGHTS.keys()
    assert torch.equal(weights['a.weight'], WEIGHTS['a.weight'])


# --- network -------------------------------------------------------------------------------------

@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[str, list[str]]]:
    """Address of a server for ``tmp_path`` on this machine, and what it was asked for."""
    asked = []

    class Handler(SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            super().do_GET()

        def log_message(self, *args) -> None:
            pass

    server = ThreadingHTTPServer(('127.0.0.1', 0), partial(Handler, directory=tmp_path))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f'http://127.0.0.1:{server.server_port}', asked
    server.shutdown()
    thread.join()
    server.server_close()


def test_an_address_is_downloaded_once(server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    address, asked = server
    monkeypatch.setenv('no_proxy', '*')
    monkeypatch.setattr(torch.hub, 'get_dir', lambda: str(tmp_path / 'hub'))
    save_file(WEIGHTS, tmp_path / 'a.safetensors')
    torch.save(dict(evil=Program(tmp_path / 'made')), tmp_path / 'evil.pth')
    for _ in range(2):
        weights = read_source(f'{address}/a.safetensors?download=true')
        assert torch.equal(weights['a.weight'], WEIGHTS['a.weight'])
    assert asked == ['/a.safetensors?download=true']
    with pytest.raises(UntrustedCheckpoint):
        read_source(f'{address}/evil.pth')
    assert not (tmp_path / 'made').exists()


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in place of the Hugging Face hub: OWNER/NAME/FILE."""
    def hub_file(repository: str, file: str) -> str:
        path = tmp_path / 'hub' / repository / file
        if not path.is_file():
            raise LocalEntryNotFoundError(f'{path} is not there')
        return str(path)
    monkeypatch.setattr(weight_sources, 'hub_file', hub_file)
    return tmp_path / 'hub'


def test_files_of_a_hub_repository(hub: Path):
    repository = hub / 'owner/name'
    repository.mkdir(parents=True)
    with pytest.raises(ValueError, match='owner/name on the Hugging Face hub gives none of '
                                         'model.safetensors, pytorch_model.bin; name its file: '):
        read_source('hf-hub:owner/name')
    torch.save({'bin': torch.ones(1)}, repository / 'pytorch_model.bin')
    assert list(read_source('hf-hub:owner/name')) == ['bin']
    save_file({'safe': torch.ones(1)}, repository / 'model.safetensors')
    assert list(read_source('hf-hub:owner/name')) == ['safe']  # preferred
    (repository / 'weights').mkdir()
    save_file({'other': torch.ones(1)}, repository / 'weights/last.safetensors')
    assert list(read_source('hf-hub:owner/name/weights/last.safetensors')) == ['other']
    for wrong in ('hf-hub:name', 'hf-hub:owner/'):
        with pytest.raises(ValueError, match='expected hf-hub:OWNER/NAME'):
            local_path(wrong)


def test_the_hub_is_asked_for_a_revision(monkeypatch: pytest.MonkeyPatch):
    asked = []
    monkeypatch.setattr(weight_sources, 'hf_hub_download',
                        lambda name, file, revision: asked.append((name, file, revision)) or 'x')
    local_path('hf-hub:owner/name@v1/a.pth')
    local_path('hf-hub:owner/name')
    assert asked == [('owner/name', 'a.pth', 'v1'), ('owner/name', 'model.safetensors', None)]


NAME = 'vit_tiny_patch16_224.augreg_in21k_ft_in1k'


def test_weights_of_timm(hub: Path):
    """timm's own code loads them: here it drops a layer that old files have."""
    source = timm.create_model(NAME.partition('.')[0]).state_dict()
    (hub / 'timm' / NAME).mkdir(parents=True)
    save_file({**source, 'pre_logits.fc.bias': torch.ones(1)},
              hub / 'timm' / NAME / 'model.safetensors')
    before = torch.random.get_rng_state()
    for weights in (timm_weights(NAME), read_source('timm:vit_tiny_patch16_224')):
        assert weights.keys() == source.keys()
        assert all(torch.equal(weight, source[key]) for key, weight in weights.items())
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize('name, known', [
    ('vit_tiny_patch16_224.no_such', NAME), ('vit_tinny', 'none for such a model'),
    ('vit_huge_patch14_gap_224.in1k_ijepa', 'vit_huge_patch14_gap_224.in22k_ijepa')])
def test_weights_that_timm_has_not(name: str, known: str):
    with pytest.raises(ValueError, match=f'has no weights {name} on the hub; it has .*{known}'):
        read_source(f'timm:{name}')


def test_a_timm_model_with_gaug_takes_timms_weights(hub: Path):
    """The way of a user without OpenMMLab: only GAug is missing."""
    source = timm.create_model(NAME.partition('.')[0])
    (hub / 'timm' / NAME).mkdir(parents=True)
    save_file(source.state_dict(), hub / 'timm' / NAME / 'model.safetensors')
    model = add_gaug(timm.create_model('vit_tiny_patch16_224', img_size=64, dynamic_img_size=True))
    report = load_weights(model, read_weights(f'timm:{NAME}'))
    assert len(report.missing) == 4 * len(gaussians(model)) == 48
    assert all('.gaug.' in name for name in report.missing)
    assert report.resampled == ['pos_embed (1, 197, 192) -> (1, 17, 192)']
    assert torch.equal(model.head.weight, source.head.weight)


# --- what a checkpoint holds ---------------------------------------------------------------------

@pytest.mark.parametrize('wrap', [
    lambda w: w, lambda w: dict(state_dict=w, meta={}), lambda w: dict(model=w, optimizer={}),
    lambda w: dict(model_ema=w), lambda w: dict(student={}, teacher=w, epoch=1),
    lambda w: {f'module.{name}': weight for name, weight in w.items()}])
def test_unwrap(wrap: Callable[[dict], dict]):
    assert unwrap(wrap(WEIGHTS), 'a.pth') == WEIGHTS
    with pytest.raises(ValueError, match='a.pth holds no state dict'):
        unwrap(wrap({'a': 3}), 'a.pth')


def test_select():
    state = {'backbone.blocks.0.x': 1, 'backbone.model.norm.y': 2, 'backbones.z': 3}
    assert select(state, 'backbone', 'a.pth') == (
        {'blocks.0.x': 1, 'norm.y': 2}, ['backbones.z'])
    bare = {'patch_embed.proj.bias': 1, 'model.y': 2}
    assert select(bare, 'backbone.', 'a.pth') == ({'patch_embed.proj.bias': 1, 'y': 2}, [])
    with pytest.raises(ValueError, match="a.pth is a whole model; .* prefix='backbone.'"):
        select({'backbone.x': 1, 'ibot_head.y': 2}, None, 'a.pth')
    with pytest.raises(ValueError, match="prefix='teacher.module.backbone.'"):
        select({'backbone.x': 1, 'teacher.module.backbone.x': 2, 'loss_module.center': 3}, None,
               'a.pth')


def test_read_weights_of_a_part(tmp_path: Path):
    model = tiny_vit()
    torch.save(dict(state_dict={f'backbone.{name}': weight
                                for name, weight in model.state_dict().items()}),
               tmp_path / 'a.pth')
    weights = read_weights(str(tmp_path / 'a.pth'), 'backbone.')
    assert load_weights(tiny_vit(), weights).loaded == len(weights) == len(model.state_dict())
    with pytest.raises(ValueError, match="no keys below prefix='neck.'; its parts are: backbone."):
        read_weights(str(tmp_path / 'a.pth'), 'neck.')
