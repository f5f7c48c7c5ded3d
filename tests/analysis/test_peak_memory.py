"""Peak memory against allocations of known size."""
import pytest
import torch

from locat_mmseg.analysis import peak_memory
from locat_mmseg.analysis.peak_memory import PeakMemory

MB = 2 ** 20
SLACK = 24 * MB  # the rest of the process lives on meanwhile
CPU = torch.device('cpu')


def allocate(megabytes: int, device: torch.device = CPU) -> torch.Tensor:
    """Memory that is really there: written to."""
    return torch.ones(megabytes * MB // 4, device=device)


@pytest.fixture(params=['VmHWM', 'sampled'])
def method(request, monkeypatch):
    if not peak_memory.STATUS.is_file():
        pytest.skip('no /proc')
    if request.param == 'sampled':
        monkeypatch.setattr(peak_memory, 'can_reset_peak', lambda: False)
    elif not peak_memory.can_reset_peak():
        pytest.skip('this system does not reset VmHWM')
    return request.param


def test_memory_freed_in_the_block_counts(method):
    peak = PeakMemory(CPU)
    with peak:
        for _ in range(3):
            kept = allocate(256)
            kept.cos_()  # lasts a while: a sample is taken meanwhile
            del kept
    assert peak.method == method
    assert 256 * MB - SLACK < peak.bytes < 256 * MB + SLACK


def test_memory_kept_since_the_start_counts_and_an_earlier_peak_does_not(method):
    peak = PeakMemory(CPU)
    kept = allocate(128)
    del_me = allocate(512)
    del del_me
    with peak:
        kept.cos_()
    assert 128 * MB - SLACK < peak.bytes < 128 * MB + SLACK


def test_systems_without_proc(monkeypatch, tmp_path):
    monkeypatch.setattr(peak_memory, 'STATUS', tmp_path / 'status')
    with pytest.raises(ValueError, match='/proc, which only Linux has'):
        PeakMemory(CPU)


def test_systems_that_forbid_the_reset(monkeypatch, tmp_path):
    monkeypatch.setattr(peak_memory, 'RESET', tmp_path)  # a folder cannot be written
    assert not peak_memory.can_reset_peak()


@pytest.mark.skipif(not torch.cuda.is_available(), reason='needs a GPU')
def test_cuda():
    device = torch.device('cuda')
    peak = PeakMemory(device)
    kept = allocate(64, device)
    with peak:
        allocate(256, device)
    assert peak.method == 'max_memory_allocated'
    assert peak.bytes == (64 + 256) * MB and kept.is_cuda
