"""Training step, inference and memory of timm models, plain and with GAug.

LocAt here is `add_gaug` on a timm classifier, trained as users do with AdamW; PRR is no part of the
backbone and is not measured. Every measurement runs in a process of its own:

- time: the plain model and one variant take turns, and each turn gives one ratio;
- memory: one model, the highest use during a training step minus that just before the first step
  (so gradients and the optimizer's state count, weights and the batch do not); the median of several
  processes where it differs between them.
"""
import multiprocessing
import re
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from math import ceil, prod
from multiprocessing.connection import Connection
from statistics import median, quantiles
from typing import Any

import timm
import torch
from torch import nn
from torch.nn import functional as F

from ..addon import GaussianAttention, add_gaug
from ..addon.timm_names import check_timm_name
from ..layers.attention import BACKENDS, attention_backend
from .dense_gaussian import add_dense_gaug
from .flops import count_complexity
from .peak_memory import PeakMemory

PLAIN, AUTOMATIC, DENSE = 'plain', 'locat', 'dense'
# Variants to be measured against the plain model: the automatic choice, the yardstick, and each
# back end by its name.
VARIANTS = (AUTOMATIC, DENSE, *BACKENDS)
BACKENDS_OF = {'cpu': ('tiled', 'sdpa', 'explicit'), 'cuda': ('flex', 'sdpa', 'explicit')}
TASKS = ('training', 'inference')

WARM_UP_STEPS = 2
MEMORY_STEPS = 2
MEMORY_PROCESSES = dict(cpu=3, cuda=1)  # resident size differs by up to 3 %, allocated bytes don't
TURN_SECONDS = 0.1  # the least time of a turn; short steps are repeated


@dataclass(frozen=True)
class Case:
    """A timm model and its input: ``batch`` square images of ``size`` pixels."""
    model: str
    batch: int
    size: int

    def __str__(self) -> str:
        return f'{self.model} {self.batch}x{self.size}'


@dataclass(frozen=True)
class Settings:
    """How to measure.

    Attributes:
        device: 'cpu' or 'cuda'.
        dtype: 'float32', or 'bfloat16' for autocast.
        compile: torch.compile the models.
        threads: of the CPU; None leaves torch's choice.
        pairs: turns of plain and variant.
    """
    device: str = 'cpu'
    dtype: str = 'float32'
    compile: bool = False
    threads: int | None = None
    pairs: int = 10


def parse_cases(text: str) -> list[Case]:
    """Read ``MODEL:BxSIZE,BxSIZE...``, such as 'vit_tiny_patch16_224:8x224,2x512'.

    Raises:
        ValueError: if the text has another form, or timm has no such model.
    """
    model, _, inputs = text.partition(':')
    sizes = [re.fullmatch('([1-9][0-9]*)x([1-9][0-9]*)', part) for part in inputs.split(',')]
    if not all(sizes):
        raise ValueError(f'{text!r}: expected MODEL:BATCHxSIZE, more inputs after commas, such as '
                         'vit_tiny_patch16_224:8x224,2x512')
    check_timm_name(model)
    return [Case(model, int(size[1]), int(size[2])) for size in sizes]


def build_model(case: Case, variant: str) -> nn.Module:
    """The timm model of a case, built for its image size, plain or as LocAt."""
    torch.manual_seed(0)
    model = timm.create_model(case.model, img_size=case.size)
    if variant == PLAIN:
        return model
    if variant == DENSE:
        return add_dense_gaug(model)
    add_gaug(model)
    for module in model.modules():
        # timm's Swin asks for unfused attention by default, which must not undo the forced choice.
        if variant in BACKENDS and isinstance(module, GaussianAttention):
            module.fused_attn = True
    return model


def check_case(case: Case) -> None:
    """Refuse, before anything is measured, a model that GAug or the image size does not suit.

    Raises:
        ValueError: if it cannot be built.
    """
    try:
        with torch.device('meta'):
            build_model(case, AUTOMATIC)
    except (TypeError, ValueError, AssertionError) as error:
        raise ValueError(f'{case} cannot be built as LocAt: {error}. Take a ViT, EVA or Swin of '
                         'timm and a size in whole patches') from error


class Workload:
    """One model and one batch of noise, ready to train and to infer.

    Args:
        case: model and input.
        variant: 'plain' or one of `VARIANTS`.
        settings: device, dtype, whether to compile.
    """

    def __init__(self, case: Case, variant: str, settings: Settings) -> None:
        self.device = torch.device(settings.device)
        self.model = build_model(case, variant).to(self.device)
        self.images = torch.randn(case.batch, 3, case.size, case.size, device=self.device)
        self.labels = torch.randint(self.model.num_classes, (case.batch, ), device=self.device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, weight_decay=0.05)
        self._run = torch.compile(self.model, dynamic=False) if settings.compile else self.model
        self._dtype = getattr(torch, settings.dtype)
        self._backend = variant if variant in BACKENDS else None

    def training(self) -> None:
        """One step: forward, backward, optimizer."""
        self.model.train()
        with self._forced_backend():
            with self._autocast():
                loss = F.cross_entropy(self._run(self.images), self.labels)
            loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    @torch.inference_mode()
    def inference(self) -> None:
        """One forward pass."""
        self.model.eval()
        with self._forced_backend(), self._autocast():
            self._run(self.images)

    def _forced_backend(self):
        return attention_backend(self._backend) if self._backend else nullcontext()

    def _autocast(self):
        return torch.autocast(self.device.type, self._dtype, self._dtype != torch.float32)


def measure_time(case: Case, variant: str, settings: Settings) -> dict[str, dict]:
    """Plain model and variant in turns; the summaries of both tasks."""
    prepare(settings)
    plain, other = (Workload(case, v, settings) for v in (PLAIN, variant))
    return {task: summarise(list(take_turns(getattr(plain, task), getattr(other, task), settings)))
            for task in TASKS}


def take_turns(plain: Callable[[], None], other: Callable[[], None],
               settings: Settings) -> Iterator[tuple[float, float]]:
    """Seconds a step of each, turn by turn; who goes first alternates."""
    def seconds(step: Callable[[], None], repeats: int) -> float:
        start = time.perf_counter()
        for _ in range(repeats):
            step()
        if settings.device == 'cuda':
            torch.cuda.synchronize()
        return (time.perf_counter() - start) / repeats

    for step in (other, plain):
        warm = [seconds(step, 1) for _ in range(WARM_UP_STEPS)][-1]
    repeats = max(1, ceil(TURN_SECONDS / warm))
    for turn in range(settings.pairs):
        if turn % 2:
            after = seconds(other, repeats)
            yield seconds(plain, repeats), after
        else:
            before = seconds(plain, repeats)
            yield before, seconds(other, repeats)


def summarise(pairs: list[tuple[float, float]]) -> dict[str, Any]:
    """Median seconds of plain and variant, and median and quartiles of the ratios of the pairs."""
    ratios = [other / plain for plain, other in pairs]
    lower, middle, upper = quantiles(ratios, n=4, method='inclusive')
    return dict(plain_seconds=median(p for p, _ in pairs), seconds=median(o for _, o in pairs),
                ratio=middle, quartiles=[lower, upper], pairs=len(pairs))


def measure_memory(case: Case, variant: str, settings: Settings) -> dict[str, Any]:
    """Bytes that a training step needs beyond the model, its weights and its batch."""
    prepare(settings)
    workload = Workload(case, variant, settings)
    peak = PeakMemory(workload.device)
    workload.training()  # the optimizer's state stays; compilation is over
    with peak:
        for _ in range(MEMORY_STEPS):
            workload.training()
    return dict(bytes=peak.bytes, method=peak.method)


def prepare(settings: Settings) -> None:
    """Set up a new process."""
    if settings.threads:
        torch.set_num_threads(settings.threads)


def describe(case: Case, variant: str) -> dict[str, Any]:
    """What is known of a model without running it: patches, parameters, FLOPs of the batch."""
    with torch.device('meta'):  # shapes are enough
        model = build_model(case, variant)
    cost = count_complexity(model, (case.batch, 3, case.size, case.size))
    return dict(model=case.model, batch=case.batch, size=case.size, variant=variant,
                tokens=prod(model.patch_embed.grid_size), parameters=cost.parameters,
                flops=cost.flops)


def measure(case: Case, variant: str, settings: Settings, deadline: float = float('inf')
            ) -> Iterator[dict[str, Any]]:
    """Measure one model; yields its row after each measurement, richer each time.

    Args:
        case: model and input.
        variant: 'plain' (memory only: all times are relative to it) or one of `VARIANTS`.
        settings: how.
        deadline: `time.monotonic` at which a measurement is broken off.

    Yields:
        The row; if something cannot be measured it ends with the reason in 'error'.
    """
    row = describe(case, variant)
    jobs = [measure_memory] if variant == PLAIN else [measure_time, measure_memory]
    for job in jobs:
        repeats = MEMORY_PROCESSES[settings.device] if job is measure_memory else 1
        try:
            results = [in_new_process(job, case, variant, settings, deadline=deadline)
                       for _ in range(repeats)]
        except RuntimeError as error:
            row['error'] = f'{job.__name__}: {error}'
            yield row
            return
        row.update(dict(memory=median_memory(results)) if job is measure_memory else results[0])
        yield row


def median_memory(results: list[dict[str, Any]]) -> dict[str, Any]:
    """The middle one of an odd number of measurements of memory, with the bytes of all."""
    ordered = sorted(results, key=lambda result: result['bytes'])
    return dict(ordered[len(ordered) // 2], all_bytes=[result['bytes'] for result in ordered])


def in_new_process(function: Callable, *args: Any, deadline: float = float('inf')) -> Any:
    """Call a function in a fresh process.

    Raises:
        RuntimeError: if it raised or its process died, or if time was up; says which.
    """
    context = multiprocessing.get_context('spawn')
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=send_result, args=(sender, function, args))
    process.start()
    sender.close()
    seconds = deadline - time.monotonic()
    try:
        if not receiver.poll(None if seconds == float('inf') else max(0, seconds)):
            raise RuntimeError('time is up')
        result, error = receiver.recv()
    except EOFError:
        process.join()
        raise RuntimeError(f'the process ended with status {process.exitcode} (-9: killed, most '
                           'likely for want of memory)') from None
    finally:
        process.kill()
        process.join()
    if error:
        raise RuntimeError(error)
    return result


def send_result(sender: Connection, function: Callable, args: tuple) -> None:
    """What the fresh process runs: (result, None), or (None, the last line of the error)."""
    try:
        sender.send((function(*args), None))
    except Exception as error:  # whatever a model does wrong, the other rows are still measured
        traceback.print_exc()
        sender.send((None, f'{type(error).__name__}: {error}'.partition('\n')[0]))
