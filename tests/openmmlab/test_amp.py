"""Mixed precision on the CPU."""
import warnings

import pytest
import torch
from mmengine.config import Config
from mmengine.optim import build_optim_wrapper
from torch import nn

from locat_mmseg.openmmlab import amp
from locat_mmseg.openmmlab.amp import BFloat16OptimWrapper, enable_amp, fit_amp_to_device
from locat_mmseg.openmmlab.errors import UserError

OPTIMIZER = dict(type='SGD', lr=0.5)


def config(**wrapper) -> Config:
    return Config(dict(optim_wrapper=dict(optimizer=OPTIMIZER, **wrapper)))


def test_autocasts_the_forward_pass_and_keeps_parameters_in_float32():
    model = nn.Linear(3, 2)
    wrapper = build_optim_wrapper(model, dict(type='BFloat16OptimWrapper', optimizer=OPTIMIZER))
    before = model.weight.detach().clone()
    x = torch.tensor([[1., 2., 3.]])
    with wrapper.optim_context(model):
        out = model(x)
    assert out.dtype == torch.bfloat16
    wrapper.update_params(out.float().sum())
    assert model.weight.dtype == torch.float32
    # d(sum)/d(weight) is x in each row, exact in bfloat16, and the step is lr * gradient.
    torch.testing.assert_close(model.weight, before - 0.5 * x.expand(2, 3))
    assert model(x).dtype == torch.float32


def test_accumulates_and_clips_as_the_plain_wrapper():
    model = nn.Linear(3, 2, bias=False)
    wrapper = BFloat16OptimWrapper(torch.optim.SGD(model.parameters(), lr=1.),
                                   accumulative_counts=2, clip_grad=dict(max_norm=0.1))
    before = model.weight.detach().clone()
    for step in range(2):
        torch.testing.assert_close(model.weight, before)
        with wrapper.optim_context(model):
            loss = model(torch.full((1, 3), 4.)).float().sum()
        wrapper.update_params(loss)
    torch.testing.assert_close((before - model.weight).norm(), torch.tensor(0.1))


def test_amp_without_accelerator_warns_once_and_keeps_the_rest(monkeypatch):
    monkeypatch.setattr(amp, 'has_accelerator', lambda: False)
    cfg = config(type='OptimWrapper', clip_grad=dict(max_norm=1.), constructor='Mine',
                 paramwise_cfg=dict(norm_decay_mult=0.))
    enable_amp(cfg)
    with pytest.warns(UserWarning, match='bfloat16') as caught:
        fit_amp_to_device(cfg)
    assert len(caught) == 1
    assert cfg.optim_wrapper == dict(
        type='BFloat16OptimWrapper', optimizer=OPTIMIZER, clip_grad=dict(max_norm=1.),
        constructor='Mine', paramwise_cfg=dict(norm_decay_mult=0.))


def test_amp_of_the_config_falls_back_too(monkeypatch):
    monkeypatch.setattr(amp, 'has_accelerator', lambda: False)
    cfg = config(type='AmpOptimWrapper', dtype='float16', loss_scale=512.)
    with pytest.warns(UserWarning, match='bfloat16'):
        fit_amp_to_device(cfg)
    assert cfg.optim_wrapper == dict(type='BFloat16OptimWrapper', optimizer=OPTIMIZER)


def test_only_the_first_process_warns(monkeypatch):
    monkeypatch.setattr(amp, 'has_accelerator', lambda: False)
    monkeypatch.setenv('RANK', '1')
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        fit_amp_to_device(config(type='AmpOptimWrapper'))


def test_amp_with_an_accelerator_is_mmengines(monkeypatch):
    monkeypatch.setattr(amp, 'has_accelerator', lambda: True)
    cfg = config(type='OptimWrapper')
    enable_amp(cfg)
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        fit_amp_to_device(cfg)
    assert cfg.optim_wrapper == dict(type='AmpOptimWrapper', loss_scale='dynamic',
                                     optimizer=OPTIMIZER)


def test_without_amp_nothing_changes(monkeypatch):
    monkeypatch.setattr(amp, 'has_accelerator', lambda: False)
    cfg = config(type='OptimWrapper')
    fit_amp_to_device(cfg)
    assert cfg.optim_wrapper == dict(type='OptimWrapper', optimizer=OPTIMIZER)


def test_refuses_a_wrapper_without_mixed_precision():
    with pytest.raises(UserError, match="optim_wrapper.type='OptimWrapper', but the config has "
                                        "'ApexOptimWrapper'"):
        enable_amp(config(type='ApexOptimWrapper'))
