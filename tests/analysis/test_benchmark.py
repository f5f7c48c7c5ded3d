"""Measuring: turns, ratios, rows, and processes of their own."""
import os
import time

import pytest
import torch

from locat_mmseg.addon import GaussianAttention
from locat_mmseg.analysis import benchmark
from locat_mmseg.analysis.benchmark import (Case, Settings, Workload, in_new_process, measure,
                                            measure_memory, parse_cases, summarise, take_turns)
from locat_mmseg.analysis.peak_memory import STATUS

TINY = Case('vit_tiny_patch16_224', 1, 32)


@pytest.fixture
def same_process(monkeypatch):
    """Spare a test the new processes, each of which imports torch."""
    def call(function, *args, deadline=float('inf')):
        return function(*args)
    monkeypatch.setattr(benchmark, 'in_new_process', call)


@pytest.fixture
def clock(monkeypatch):
    """A clock that only `clock.step(name, seconds)` moves; `clock.calls` names who moved it."""
    class Clock:
        now, calls = 0., []

        def step(self, name, seconds):
            def run():
                self.now += seconds
                self.calls.append(name)
            return run
    clock = Clock()
    monkeypatch.setattr(benchmark.time, 'perf_counter', lambda: clock.now)
    return clock


def test_parse_cases():
    assert parse_cases('vit_tiny_patch16_224:8x224,2x512') == [
        Case('vit_tiny_patch16_224', 8, 224), Case('vit_tiny_patch16_224', 2, 512)]


@pytest.mark.parametrize('text, message', [
    ('vit_tiny_patch16_224', 'expected MODEL:BATCHxSIZE'),
    ('vit_tiny_patch16_224:8x', 'expected MODEL:BATCHxSIZE'),
    ('vit_tiny_patch16_224:0x224', 'expected MODEL:BATCHxSIZE'),
    ('vit_tiny_patch16_223:8x224', "'vit_tiny_patch16_223' is no model of timm.*vit_tiny_patch16"),
])
def test_cases_that_make_no_sense(text, message):
    with pytest.raises(ValueError, match=message):
        parse_cases(text)


def test_summary_is_the_median_of_the_ratios_of_pairs():
    """Not the ratio of the medians: a slow minute of the machine hits both of a pair."""
    summary = summarise([(1., 2.), (10., 11.), (2., 3.), (4., 5.), (1., 1.2)])
    assert summary == dict(plain_seconds=2., seconds=3., ratio=1.25,
                           quartiles=[pytest.approx(1.2), pytest.approx(1.5)], pairs=5)


def test_plain_and_variant_take_turns_and_alternate_who_is_first(clock):
    pairs = list(take_turns(clock.step('plain', 2.), clock.step('other', 3.), Settings(pairs=3)))
    assert pairs == [(2., 3.)] * 3
    warm_up = ['other'] * 2 + ['plain'] * 2
    assert clock.calls == [*warm_up, 'plain', 'other', 'other', 'plain', 'plain', 'other']


def test_short_steps_are_repeated_and_divided(clock):
    pairs = list(take_turns(clock.step('plain', 1 / 64), clock.step('other', 1 / 32),
                            Settings(pairs=2)))
    assert pairs == [(1 / 64, 1 / 32)] * 2
    assert clock.calls.count('plain') == 2 + 2 * 7  # 7/64 s is the first turn of 0.1 s or more


@pytest.mark.parametrize('variant', ['plain', 'locat', 'dense', 'tiled', 'sdpa', 'explicit'])
def test_workload(variant):
    workload = Workload(TINY, variant, Settings())
    before = {name: p.detach().clone() for name, p in workload.model.named_parameters()}
    workload.training()
    workload.inference()
    # The class token of the last block, which is what is classified, has no Gaussian.
    assert all('blocks.11.attn.gaug' in name for name, p in workload.model.named_parameters()
               if torch.equal(p, before[name]))
    assert all(p.grad is None for p in workload.model.parameters())
    has_gaug = any(isinstance(m, GaussianAttention) for m in workload.model.modules())
    assert has_gaug == (variant != 'plain')


@pytest.mark.parametrize('model, size', [('vit_tiny_patch16_224', 32),
                                         ('swin_tiny_patch4_window7_224', 32)])
def test_workload_forces_its_back_end(model, size, monkeypatch):
    """Also where timm asks for unfused attention."""
    calls = []
    real = torch.nn.functional.scaled_dot_product_attention
    monkeypatch.setattr(torch.nn.functional, 'scaled_dot_product_attention',
                        lambda *args, **kwargs: calls.append(1) or real(*args, **kwargs))
    for variant in ('sdpa', 'explicit'):
        workload = Workload(Case(model, 1, size), variant, Settings())
        workload.training()
        workload.inference()
        assert len(calls) == 2 * 12  # blocks of these models; none more by the explicit form


def test_bfloat16_is_mixed_precision():
    workload = Workload(TINY, 'plain', Settings(dtype='bfloat16'))
    seen = []
    workload.model.head.register_forward_hook(lambda *args: seen.append(args[2].dtype))
    workload.training()
    assert seen == [torch.bfloat16] and workload.model.head.weight.dtype == torch.float32


@pytest.mark.skipif(not STATUS.is_file(), reason='no /proc')
def test_rows(same_process):
    settings = Settings(pairs=2)
    (plain, ), (_, row) = (list(measure(TINY, variant, settings)) for variant in ('plain', 'locat'))
    assert plain.keys() == {'model', 'batch', 'size', 'variant', 'tokens', 'parameters', 'flops',
                            'memory'}
    assert row.keys() == plain.keys() | {'training', 'inference'}
    assert row['tokens'] == 4 and row['parameters'] - plain['parameters'] == 12 * 3 * (64 + 1)
    for task in ('training', 'inference'):
        lower, upper = row[task]['quartiles']
        assert row[task]['pairs'] == 2 and 0 < lower <= row[task]['ratio'] <= upper
    assert row['memory']['method'] in ('VmHWM', 'sampled')
    assert len(row['memory']['all_bytes']) == 3
    assert sorted(row['memory']['all_bytes'])[1] == row['memory']['bytes']


def test_what_cannot_be_measured_is_an_error_of_its_row(monkeypatch):
    def call(function, *args, deadline=float('inf')):
        if function is measure_memory:
            raise RuntimeError('no memory')
        return dict(training=1, inference=2)
    monkeypatch.setattr(benchmark, 'in_new_process', call)
    *_, row = measure(TINY, 'explicit', Settings())
    assert row['error'] == 'measure_memory: no memory'
    assert row['training'] == 1 and 'memory' not in row


@pytest.mark.slow
def test_new_processes():
    assert in_new_process(os.getpid) != os.getpid()
    with pytest.raises(RuntimeError, match='ZeroDivisionError: '):
        in_new_process(divmod, 1, 0)
    with pytest.raises(RuntimeError, match='process ended with status 3'):
        in_new_process(os._exit, 3)
    with pytest.raises(RuntimeError, match='time is up'):
        in_new_process(time.sleep, 600, deadline=time.monotonic() + 1)


@pytest.mark.slow
@pytest.mark.skipif(not STATUS.is_file(), reason='no /proc')
def test_memory_of_a_step():
    row, = measure(TINY, 'plain', Settings())
    # AdamW keeps two numbers a parameter, and the gradient is a third: 12 bytes; activations of so
    # small an image and the libraries' own buffers come on top.
    assert 12 * row['parameters'] < row['memory']['bytes'] < 24 * row['parameters']
