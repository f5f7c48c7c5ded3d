"""Learning rates and weight decay over a run, against formulas and torch's own one-cycle."""
import math

import pytest
import torch
from config_helpers import load
from mmengine.registry import PARAM_SCHEDULERS


def curve(schedulers: list[dict], lr: float, length: int, epoch_length: int = 0) -> torch.Tensor:
    """The learning rate of each iteration, as a Runner would set it."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=lr)
    built = [PARAM_SCHEDULERS.build(dict(item), default_args=dict(
        optimizer=optimizer, epoch_length=epoch_length)) for item in schedulers]
    rates = []
    for _ in range(length):
        rates.append(optimizer.param_groups[0]['lr'])
        for scheduler in built:
            scheduler.step()
    return torch.tensor(rates, dtype=torch.float64)


def test_upernet_learning_rate():
    schedulers = load('locat/upernet_vit-t_pascal-context59').param_scheduler
    i = torch.arange(80000, dtype=torch.float64)
    wanted = 6e-5 * torch.where(i < 1500, 1e-6 + (1 - 1e-6) * i / 1499, 1 - (i - 1500) / 78499)
    torch.testing.assert_close(curve(schedulers, 6e-5, 80000), wanted, rtol=1e-6, atol=1e-15)


def one_cycle(lr: float, length: int, warmup: float, low: float, last: float) -> torch.Tensor:
    """torch's own one-cycle, linear."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=lr)
    cycle = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, lr, total_steps=length, pct_start=warmup, anneal_strategy='linear',
        cycle_momentum=False, div_factor=lr / low, final_div_factor=low / last)
    rates = []
    for number in range(length):
        rates.append(optimizer.param_groups[0]['lr'])
        if number < length - 1:
            cycle.step()
    return torch.tensor(rates, dtype=torch.float64)


def test_probe_learning_rate_is_one_cycle():
    rates = curve(load('probe/vit-t_ade20k').param_scheduler, 1e-3, 20000)
    torch.testing.assert_close(rates, one_cycle(1e-3, 20000, 0.25, 1e-7, 1e-11), rtol=1e-6,
                               atol=1e-14)


@pytest.mark.parametrize('name, lr, warmup, epochs', [
    ('pretrain/vit-t_in1k', 1e-3, 20, 300), ('pretrain/vit-t_mini-imagenet', 5e-4, 120, 600)])
def test_pretraining_learning_rate_is_one_cycle(name, lr, warmup, epochs):
    length = 7
    rates = curve(load(name).param_scheduler, lr, epochs * length, epoch_length=length)
    wanted = one_cycle(lr, epochs * length, warmup / epochs, 1e-7, 1e-7)
    step = lr / (epochs - warmup) / length  # the descent starts one iteration later
    torch.testing.assert_close(rates, wanted, rtol=0, atol=1.01 * step)
    assert rates[0] == pytest.approx(1e-7) and rates[-1] == pytest.approx(1e-7)
    assert rates.argmax() in (warmup * length - 1, warmup * length)


def test_learning_rate_of_the_protocols():
    """Linear from 1e-6 over 10 epochs, then half a cosine to 0 at the end of the 200th."""
    length = 7
    rates = curve(load('cutmix_locality/vit-compact_modern_cifar100').param_scheduler, 1e-3,
                  200 * length, epoch_length=length)
    i = torch.arange(200 * length, dtype=torch.float64)
    warmup = 1e-3 * (1e-3 + (1 - 1e-3) * i / (10 * length - 1))
    cosine = 0.5e-3 * (1 + torch.cos(math.pi * (i - 10 * length) / (190 * length)))
    step = (cosine[:-1] - cosine[1:]).max().item()  # the descent may start one iteration later
    torch.testing.assert_close(rates, torch.where(i < 10 * length, warmup, cosine), rtol=0,
                               atol=1.01 * step)
    assert rates[0] == pytest.approx(1e-6) and rates.max() == pytest.approx(1e-3)
    assert 0 <= rates[-1] < 1e-8


@pytest.mark.parametrize('name, epochs, last_rate, last_decay', [
    ('dino/vit-s_in1k', 100, 1.00152e-6, 0.39999911),
    ('dino/vit_shapes', 10, 1.15199e-6, 0.39991118)])
def test_dino_learning_rate_and_weight_decay(name, epochs, last_rate, last_decay):
    """At a total batch of 256 and 10 iterations an epoch: up in a tenth of the run, then down."""
    cfg, steps = load(name), 10 * epochs
    rates = curve(cfg.param_scheduler[:2], cfg.optim_wrapper.optimizer.lr, steps, epoch_length=10)
    assert [rates[i].item() for i in (0, epochs - 1, epochs, 55 * epochs // 10, -1)] == \
        pytest.approx([5e-10, 5e-4, 5e-4, 2.505e-4, last_rate], rel=1e-5)
    decays = weight_decays(cfg.param_scheduler[2], cfg.optim_wrapper.optimizer.weight_decay, steps)
    assert [decays[i] for i in (0, steps // 2, -1)] == pytest.approx([0.04, 0.22, last_decay])


def weight_decays(scheduler: dict, weight_decay: float, length: int) -> list[float]:
    """The weight decay of each iteration; that of a group without it stays 0."""
    matrix, bias = (torch.nn.Parameter(torch.zeros(1)) for _ in range(2))
    optimizer = torch.optim.AdamW([dict(params=[matrix]), dict(params=[bias], weight_decay=0.)],
                                  weight_decay=weight_decay)
    built = PARAM_SCHEDULERS.build(dict(scheduler), default_args=dict(
        optimizer=optimizer, epoch_length=10))
    decays = []
    for _ in range(length):
        decays.append(optimizer.param_groups[0]['weight_decay'])
        assert optimizer.param_groups[1]['weight_decay'] == 0
        built.step()
    return decays
