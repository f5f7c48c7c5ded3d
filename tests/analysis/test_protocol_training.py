"""Training without OpenMMLab, against what mmengine and mmpretrain do with the configs."""
import time

import numpy as np
import pytest
import torch
from mmengine.optim import build_optim_wrapper
from mmengine.registry import PARAM_SCHEDULERS
from protocol_twins import NUM_CLASSES, TINY, batch, timm_names, twins
from torch._dynamo.testing import CompileCounterWithBackend

from locat_mmseg.analysis import measure_locality
from locat_mmseg.analysis.compact_vit import ARCHITECTURES, build_compact_vit
from locat_mmseg.analysis.protocol_training import (PROTOCOLS, ProtocolTraining, Recipe,
                                                    learning_rate, parameter_groups)

SHORT = Recipe(epochs=5, warmup_epochs=2, batch_size=4, bfloat16=False)
STEPS = 3  # an epoch


def training_of(model, protocol='baseline', recipe=SHORT, count=STEPS * 4, **kwargs):
    images, labels, _ = batch(count)
    return ProtocolTraining(model, images, labels, NUM_CLASSES, PROTOCOLS[protocol], recipe,
                            **kwargs)


def tiny_model():
    torch.manual_seed(1)
    return build_compact_vit(NUM_CLASSES, **TINY)


def schedulers_of(cfg, optimizer):
    """The config's, with the epochs of `SHORT`."""
    warmup, cosine = (dict(item) for item in cfg.param_scheduler)
    warmup['end'] = cosine['begin'] = SHORT.warmup_epochs
    cosine['end'] = SHORT.epochs
    return [PARAM_SCHEDULERS.build(item, default_args=dict(optimizer=optimizer,
                                                           epoch_length=STEPS))
            for item in (warmup, cosine)]


@pytest.fixture
def same_cutmix(monkeypatch):
    """Both CutMix implementations draw this box, centre (y, x), and order."""
    def draw(share, y, x, count):
        order = torch.arange(count).roll(1)
        theirs, ours = iter((y, x)), iter((torch.tensor(y), torch.tensor(x)))
        monkeypatch.setattr(np.random, 'beta', lambda *_: 1 - share)
        monkeypatch.setattr(np.random, 'randint', lambda *_, **__: next(theirs))
        monkeypatch.setattr(torch, 'randperm', lambda *_, **__: order)
        monkeypatch.setattr(torch, 'rand', lambda *_: torch.tensor(share))
        monkeypatch.setattr(torch, 'randint', lambda *_, **__: next(ours))
    return draw


def test_recipe_is_that_of_the_configs():
    cfg, _, _ = twins('vit', 'baseline')
    warmup, cosine = cfg.param_scheduler
    recipe = Recipe()
    assert recipe.epochs == cfg.train_cfg.max_epochs == cosine.end
    assert recipe.warmup_epochs == warmup.end == cosine.begin
    assert recipe.batch_size == cfg.train_dataloader.batch_size and cfg.train_dataloader.drop_last
    assert recipe.lr == cfg.optim_wrapper.optimizer.lr
    assert recipe.bfloat16 == (cfg.optim_wrapper.type == 'BFloat16OptimWrapper')


@pytest.mark.parametrize('architecture', ['vit', 'locatvit'])
def test_optimizer_is_that_of_the_configs(architecture):
    cfg, theirs, ours = twins(architecture, 'baseline')
    wrapper = build_optim_wrapper(theirs, cfg.optim_wrapper)
    mine = training_of(ours).optimizer

    def options(optimizer, names):
        of = {id(parameter): name for name, parameter in names.items()}
        return {of[id(parameter)]: {key: group[key] for key in ('lr', 'betas', 'eps', 'amsgrad',
                                                                'weight_decay')}
                for group in optimizer.param_groups for parameter in group['params']}

    found = options(mine, dict(ours.named_parameters()))
    assert found == options(wrapper.optimizer, timm_names(theirs))
    assert {item['weight_decay'] for item in found.values()} == {0., 0.05}


def test_registers_do_not_decay():
    model = build_compact_vit(NUM_CLASSES, num_registers=2, **TINY)
    _, without = parameter_groups(model)
    assert any(parameter is model.reg_token for parameter in without['params'])


def test_learning_rate_is_that_of_the_configs():
    cfg, theirs, _ = twins('vit', 'baseline')
    wrapper = build_optim_wrapper(theirs, cfg.optim_wrapper)
    schedulers, curve = schedulers_of(cfg, wrapper), []
    for _ in range(SHORT.epochs * STEPS):
        curve.append(wrapper.get_lr()['lr'][0])
        for scheduler in schedulers:
            scheduler.step()
    assert curve == pytest.approx([learning_rate(i, STEPS, SHORT) for i in range(len(curve))])
    assert max(curve) == pytest.approx(1e-3) and curve[0] == pytest.approx(1e-6)


@pytest.mark.parametrize('bfloat16', [False, True])
@pytest.mark.parametrize('protocol', PROTOCOLS)
def test_loss_is_that_of_the_configs(protocol, bfloat16, same_cutmix):
    cfg, theirs, ours = twins('locatvit', protocol)
    cfg.optim_wrapper.type = 'BFloat16OptimWrapper' if bfloat16 else 'OptimWrapper'
    wrapper = build_optim_wrapper(theirs, cfg.optim_wrapper)
    training = training_of(ours, protocol, Recipe(batch_size=4, bfloat16=bfloat16))
    images, labels, data = batch(4)
    same_cutmix(0.4, 9, 28, count=4)
    with wrapper.optim_context(theirs):
        wanted = theirs(**theirs.data_preprocessor(data, training=True), mode='loss')['loss']
    found = training.loss(images, torch.eye(NUM_CLASSES)[labels])
    torch.testing.assert_close(found, wanted.float(), rtol=1e-2 if bfloat16 else 1e-6, atol=0)


@pytest.mark.parametrize('architecture, protocol', [('vit', 'modern'), ('locatvit', 'cutmix'),
                                                    ('vit', 'baseline')])
def test_steps_are_those_of_the_configs(architecture, protocol, same_cutmix):
    """From the warm-up into the cosine, with clipped gradients and given CutMix boxes."""
    cfg, theirs, ours = twins(architecture, protocol)
    cfg.optim_wrapper.type = 'OptimWrapper'
    wrapper = build_optim_wrapper(theirs, cfg.optim_wrapper)
    schedulers = schedulers_of(cfg, wrapper)
    training = training_of(ours, protocol)
    before = {name: p.detach().clone() for name, p in ours.named_parameters()}
    batches = [batch(4, seed=number) for number in range(8)]
    for number, (images, labels, data) in enumerate(batches):
        same_cutmix(0.1 * number, 3 * number, 31 - number, count=4)
        wanted = theirs.train_step(data, wrapper)['loss']
        for scheduler in schedulers:
            scheduler.step()
        found = training.step(images, torch.eye(NUM_CLASSES)[labels], number)
        torch.testing.assert_close(found, wanted.detach())
    for name, wanted in timm_names(theirs).items():
        found = ours.get_parameter(name)
        assert not torch.equal(before[name], found)
        if name.endswith('qkv.bias'):  # without those of the keys: softmax does not see them, so
            found, wanted = (b.view(3, -1)[[0, 2]] for b in (found, wanted))  # Adam scales noise
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-6)


def test_gradients_are_clipped():
    model = tiny_model()
    training = training_of(model, recipe=Recipe(5, 0, 4, bfloat16=False))
    with torch.no_grad():
        model.head.weight.mul_(100)
    training.step(*(item[:4] for item in (training.images, training.targets)), number=0)
    norm = torch.stack([p.grad.norm() for p in model.parameters()]).norm()
    torch.testing.assert_close(norm, torch.tensor(1.), rtol=1e-3, atol=0)


# ---- epochs ----

def test_an_epoch_takes_each_image_once_and_drops_the_rest():
    training, seen = training_of(tiny_model(), count=STEPS * 4 + 3), []
    training.targets = torch.arange(15)[:, None]  # tells which image it is
    training.step = lambda images, targets, number: seen.append((number, targets)) or torch.ones(())
    assert training.run_epoch() == 1. and training.run_epoch() == 1.
    assert [number for number, _ in seen] == [*range(2 * STEPS)]
    first, second = (torch.cat([t for _, t in seen[i:i + STEPS]]).flatten().tolist()
                     for i in (0, STEPS))
    assert len(set(first)) == len(set(second)) == 12 and first != second


@pytest.mark.parametrize('protocol', ['baseline', 'modern'])
def test_images_are_augmented_as_the_protocol_says(protocol, monkeypatch):
    called = []
    monkeypatch.setattr('locat_mmseg.analysis.protocol_training.auto_augment',
                        lambda images: called.append(len(images)) or images)
    training, seen = training_of(tiny_model(), protocol, Recipe(5, 2, 12)), []
    training.images[:] = 255
    training.step = lambda images, *_: seen.append(images) or torch.ones(())
    training.run_epoch()
    assert called == [12] * (protocol == 'modern')
    black = (seen[0] == 0).flatten(1).float().mean(1)  # moved in by the crop
    assert black.unique().numel() > 5 and black.max() <= 1 - (28 / 32) ** 2


@pytest.mark.parametrize('protocol', ['baseline', 'modern'])
def test_a_resumed_run_is_the_uninterrupted_one(protocol):
    through = training_of(tiny_model(), protocol, seed=4)
    losses = [through.run_epoch() for _ in range(3)]
    first = training_of(tiny_model(), protocol, seed=4)
    assert first.run_epoch() == losses[0]
    torch.rand(5)  # whatever an evaluation draws
    second = training_of(tiny_model(), protocol, seed=4)
    second.load_state_dict(first.state_dict())
    assert [second.run_epoch() for _ in range(2)] == losses[1:]
    for found, wanted in zip(second.model.parameters(), through.model.parameters()):
        assert torch.equal(found, wanted)
    assert training_of(tiny_model(), protocol, seed=5).run_epoch() != losses[0]


def test_a_compiled_forward_is_used():
    model, calls = tiny_model(), []
    training = training_of(model, forward=lambda x: calls.append(len(x)) or model(x))
    training.run_epoch()
    assert calls == [4] * STEPS


@pytest.mark.parametrize('architecture', ['locatvit', 'regvit'])
def test_a_model_is_compiled_once_for_several_runs(architecture):
    """In one graph, not again after a measurement, with other weights, or another protocol."""
    torch.compiler.reset()
    counter = CompileCounterWithBackend('aot_eager')
    model = build_compact_vit(NUM_CLASSES, **ARCHITECTURES[architecture], **TINY)
    start = {name: value.clone() for name, value in model.state_dict().items()}
    compiled = torch.compile(model, dynamic=False, fullgraph=True, backend=counter)
    losses = []
    training_of(model, 'baseline', forward=compiled).run_epoch()
    for forward in (compiled, compiled, model):
        model.load_state_dict(start)
        training = training_of(model, 'modern', forward=forward)
        training.run_epoch()
        measure_locality(model, [torch.zeros(1, 3, 32, 32)])
        losses.append(training.run_epoch())
    assert counter.frame_count == 1
    assert losses[0] == losses[1] == pytest.approx(losses[2], rel=1e-4)


def test_an_epoch_ends_at_its_deadline():
    training = training_of(tiny_model())
    assert training.run_epoch(deadline=time.monotonic() - 1) is None
    assert training.epoch == 0


@pytest.mark.parametrize('numbers, reason', [
    (dict(epochs=10), '10 warm-up epochs of 10 epochs: expected fewer'),
    (dict(warmup_epochs=-1), '-1 warm-up epochs'),
    (dict(batch_size=0), 'batch size 0 and learning rate 0.001: expected positive'),
    (dict(lr=0.), 'learning rate 0.0: expected positive')])
def test_recipes_that_are_refused(numbers, reason):
    with pytest.raises(ValueError, match=reason):
        Recipe(**numbers)


def test_too_few_images():
    with pytest.raises(ValueError, match='3 training images make no batch of 4: give a smaller'):
        training_of(tiny_model(), count=3)
