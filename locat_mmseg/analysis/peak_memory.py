"""Peak memory of this process between two moments.

On CUDA what torch's allocator handed out. On the CPU the resident size: Linux keeps its highest
value (VmHWM in /proc/self/status) and resets it when 5 is written to /proc/self/clear_refs, so the
peak is exact. Where a container forbids that, a thread reads the size every millisecond instead:
torch lets go of the interpreter lock while it computes, but a shorter peak can be missed.
"""
import threading
from pathlib import Path

import torch

STATUS, RESET = Path('/proc/self/status'), Path('/proc/self/clear_refs')
SAMPLING_SECONDS = 1e-3


class PeakMemory:
    """Highest use of memory inside a ``with`` block, counted from when the object was made.

        peak = PeakMemory(torch.device('cpu'))
        step()          # first allocations that stay are part of the peak
        with peak:
            step()
        peak.bytes

    Args:
        device: whose memory.

    Attributes:
        method: 'max_memory_allocated', 'VmHWM' or 'sampled'.
        bytes: the result.

    Raises:
        ValueError: on a CPU without Linux's /proc.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        if device.type == 'cuda':
            self.method = 'max_memory_allocated'
        elif not STATUS.is_file():
            raise ValueError('peak memory on the CPU is read from /proc, which only Linux has; '
                             'measure it there')
        else:
            self.method = 'VmHWM' if can_reset_peak() else 'sampled'
        self.before = self._now()

    def __enter__(self) -> 'PeakMemory':
        if self.method == 'max_memory_allocated':
            torch.cuda.reset_peak_memory_stats(self.device)
        elif self.method == 'VmHWM':
            RESET.write_text('5')
        else:
            self._highest, self._stop = self._now(), threading.Event()
            self._thread = threading.Thread(target=self._sample)
            self._thread.start()
        return self

    def __exit__(self, *exception) -> None:
        if self.method == 'max_memory_allocated':
            peak = torch.cuda.max_memory_allocated(self.device)
        elif self.method == 'VmHWM':
            peak = read_status('VmHWM')
        else:
            self._stop.set()
            self._thread.join()
            peak = max(self._highest, self._now())
        self.bytes = peak - self.before

    def _now(self) -> int:
        if self.device.type == 'cuda':
            return torch.cuda.memory_allocated(self.device)
        return read_status('VmRSS')

    def _sample(self) -> None:
        while not self._stop.wait(SAMPLING_SECONDS):
            self._highest = max(self._highest, self._now())


def can_reset_peak() -> bool:
    """Whether this system lets a process reset VmHWM."""
    try:
        RESET.write_text('5')
    except OSError:
        return False
    return 'VmHWM:' in STATUS.read_text()


def read_status(key: str) -> int:
    """A line of /proc/self/status, in bytes."""
    for line in STATUS.read_text().splitlines():
        name, _, value = line.partition(':')
        if name == key:
            return int(value.split()[0]) * 1024  # always kB
    raise ValueError(f'{STATUS} has no {key}: this system does not tell its memory')
