"""A layer that stays as it is in the first epochs."""
from types import SimpleNamespace

import pytest
import torch
from mmengine.optim import OptimWrapper
from mmengine.registry import HOOKS, PARAM_SCHEDULERS
from torch import Tensor, nn

from locat_mmseg.openmmlab.errors import UserError


def runner(layer: str, **kwargs) -> SimpleNamespace:
    """What the hook needs of a Runner, whose optimizer decays weights and has a scheduler."""
    torch.manual_seed(0)
    model = nn.ModuleDict(dict(first=nn.Linear(3, 3), head=nn.ModuleDict(dict(
        last=nn.Linear(3, 2)))))
    optimizer = OptimWrapper(torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.5))
    PARAM_SCHEDULERS.build(dict(type='LinearLR', optimizer=optimizer, by_epoch=False))
    fake = SimpleNamespace(model=model, optim_wrapper=optimizer, epoch=0)
    HOOKS.build(dict(type='FreezeLayerHook', layer=layer, **kwargs)).before_train(fake)
    return fake


def step(fake: SimpleNamespace) -> dict[str, Tensor]:
    """How far one step moves each parameter."""
    before = {name: p.detach().clone() for name, p in fake.model.named_parameters()}
    x = torch.ones(4, 3)
    fake.optim_wrapper.update_params(fake.model.head.last(fake.model.first(x)).square().sum())
    return {name: (p - before[name]).abs().max() for name, p in fake.model.named_parameters()}


@pytest.mark.parametrize('epochs', [1, 2])
def test_frozen_in_the_first_epochs(epochs):
    fake = runner('head.last', epochs=epochs)
    for fake.epoch in range(epochs + 1):
        for name, moved in step(fake).items():
            frozen = name.startswith('head.last') and fake.epoch < epochs
            assert (moved == 0) == frozen, (name, fake.epoch)
    states = fake.optim_wrapper.optimizer.state
    assert int(states[fake.model.head.last.weight]['step']) == 1  # it starts afresh


def test_resumed_after_the_first_epoch():
    fake = runner('head.last')
    fake.epoch = 5
    assert all(moved > 0 for moved in step(fake).values())


def test_says_that_there_is_no_such_layer():
    with pytest.raises(UserError, match="FreezeLayerHook: ModuleDict has no module 'head.lost'.*"
                                        'name one of the model'):
        runner('head.lost')
