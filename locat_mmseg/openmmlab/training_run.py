"""Runs of tools/train.py, each in a process of its own: started, resumed, ended, not repeated.

A run that ended well leaves an empty file ``finished`` in its work dir and is never started again;
one that failed leaves ``failed`` with the reason. One that was killed goes on from its last
checkpoint.
"""
import fcntl
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ..analysis.study_results import read_scores
from .launch import last_checkpoint

_POLL_SECONDS = 0.2
_PATIENCE_SECONDS = 30


@dataclass
class TrainingRun:
    """A config to be trained in a work dir.

    Attributes:
        config: path of its file.
        work_dir: of this run alone.
        seed: of all random numbers.
        options: overrides of the config, 'KEY=VALUE'.
        metric: that the validation after the last step must give.
    """
    config: str
    work_dir: Path
    seed: int
    metric: str
    options: list[str] = field(default_factory=list)

    @property
    def finished(self) -> bool:
        """Whether it ended well, now or in an earlier process."""
        return (self.work_dir / 'finished').is_file()

    @property
    def failure(self) -> str:
        """Why it failed; '' if it did not."""
        path = self.work_dir / 'failed'
        return path.read_text() if path.is_file() else ''

    def start(self, train_tool: Path, gpu: str | None) -> subprocess.Popen | None:
        """Start or resume it; its output goes to ``output.txt``.

        The process holds a lock on the work dir for as long as it or one of its workers lives,
        even if whoever started it is gone.

        Args:
            train_tool: path of tools/train.py.
            gpu: the one that it sees; None for all.

        Returns:
            None if another process holds the lock.
        """
        self.work_dir.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, str(train_tool), self.config, '--work-dir', str(self.work_dir),
                   '--seed', str(self.seed), '--resume']
        if self.options:
            command += ['--cfg-options', *self.options]
        environment = {} if gpu is None else {'CUDA_VISIBLE_DEVICES': gpu}
        with open(self.work_dir / 'lock', 'w') as lock, \
                open(self.work_dir / 'output.txt', 'a') as output:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return None
            (self.work_dir / 'failed').unlink(missing_ok=True)
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output,
                                    stderr=subprocess.STDOUT, pass_fds=[lock.fileno()],
                                    env={**os.environ, **environment})

    def conclude(self, status: int) -> None:
        """Note how it ended.

        Args:
            status: exit status of its process.
        """
        if status:
            lines = (self.work_dir / 'output.txt').read_text().splitlines()
            last = next((line for line in reversed(lines) if line.strip()), '')
            self._fail(f'training ended with status {status}: {last.removeprefix("error: ")}')
        elif not self.validated():
            self._fail(f'the log has no {self.metric} after the last step: the config must '
                       'validate, and its evaluator give this metric')
        else:
            (self.work_dir / 'finished').touch()

    def _fail(self, reason: str) -> None:
        (self.work_dir / 'failed').write_text(f'{reason} (see {self.work_dir}/output.txt)')

    def validated(self) -> bool:
        """Whether the validation that belongs to the last checkpoint is in the log."""
        checkpoint = last_checkpoint(str(self.work_dir))
        scores = read_scores(self.work_dir, self.metric)
        return bool(scores) if checkpoint is None else number_of(checkpoint) in scores

    def step_back(self) -> None:
        """Let the last checkpoint be the one before.

        mmengine saves before it validates, and does not validate a run that is resumed at its
        end: one that was killed in its last validation has to go there again.
        """
        last = last_checkpoint(str(self.work_dir))
        if last is None:
            return
        before = [path for kind in ('epoch', 'iter') for path in self.work_dir.glob(f'{kind}_*.pth')
                  if number_of(path) < number_of(last)]
        note = self.work_dir / 'last_checkpoint'
        if before:
            note.write_text(str(max(before, key=number_of)))
        else:
            note.unlink()


def number_of(checkpoint: str | Path) -> int:
    """The epochs or iterations in the name of a checkpoint."""
    return int(re.search(r'(\d+)\.pth$', str(checkpoint)).group(1))


def train_all(runs: Sequence[TrainingRun], train_tool: Path, gpus: Sequence[str | None] = (None, ),
              seconds: float = float('inf'), ended: Callable[[TrainingRun], None] = lambda run: None
              ) -> None:
    """Train what is not finished, in order, as many at a time as there are GPUs.

    Whatever ends this function, its end, an error, a signal or the end of the time, also ends the
    processes that it started; called again, it goes on with their last checkpoints.

    Args:
        runs: of different work dirs.
        train_tool: path of tools/train.py.
        gpus: numbers of GPUs, one for each run at a time; (None,) for one run that sees all.
        seconds: after which runs are stopped.
        ended: called with each run that finished or failed.
    """
    deadline = time.monotonic() + seconds
    waiting = [run for run in runs if not run.finished]
    taken: set[Path] = set()  # by another process
    repeated: list[TrainingRun] = []  # the end of them, for its validation
    active: dict[str | None, tuple[TrainingRun, subprocess.Popen]] = {}
    with _sigterm_raises(), _stopped(active):
        while (waiting or active) and time.monotonic() < deadline:
            for gpu in gpus:
                if gpu not in active:
                    _start_next(waiting, taken, train_tool, gpu, active)
            time.sleep(_POLL_SECONDS)
            for gpu, (run, process) in list(active.items()):
                if process.poll() is not None:
                    del active[gpu]
                    if process.returncode == 0 and not run.validated() and run not in repeated:
                        repeated.append(run)
                        run.step_back()
                        waiting.insert(0, run)
                        continue
                    run.conclude(process.returncode)
                    ended(run)
            waiting = [run for run in waiting if not run.finished]  # perhaps by another process


def _start_next(waiting: list[TrainingRun], taken: set[Path], train_tool: Path, gpu: str | None,
                active: dict) -> None:
    """Start the first run that no other process holds."""
    for run in waiting:
        process = run.start(train_tool, gpu)
        if process is not None:
            active[gpu] = (run, process)
            waiting.remove(run)
            return
        if run.work_dir not in taken:
            taken.add(run.work_dir)
            print(f'{run.work_dir}: another process trains it', flush=True)


@contextmanager
def _stopped(active: dict[str | None, tuple[TrainingRun, subprocess.Popen]]) -> Iterator[None]:
    """End the processes that are still active, in whatever way the block ends."""
    try:
        yield
    finally:
        for _, process in active.values():
            process.terminate()
        for _, process in active.values():
            try:
                process.wait(_PATIENCE_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextmanager
def _sigterm_raises() -> Iterator[None]:
    """Let SIGTERM end this process like an error, so that what it started is ended, too."""
    def leave(number: int, frame: object) -> None:
        raise SystemExit(128 + number)
    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
