"""The registered backbones in training: freezing, pruning, recomputing, copies, weights, depth."""
import copy
import pickle
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from mmengine.model import ExponentialMovingAverage, PretrainedInit
from tiny_backbones import dinov2, each_backbone, each_vit, gradients, images, jumbo, swin, vit
from tiny_timm import randomize
from torch import Tensor, nn

from locat_mmseg.openmmlab.backbones import LocAtTIMM, LocAtViT, TimmBackbone


def is_frozen(frozen_stages: int, name: str) -> bool:
    """Whether ``frozen_stages`` of 3 covers a parameter or module, by its name."""
    if name.startswith('out_norms') or frozen_stages < 0:
        return False
    stage = re.match(r'model\.(?:blocks|layers)\.(\d+)', name)
    part = name.split('.')[1]
    if part == 'jumbo_mlp':  # goes with the first block that it serves
        return frozen_stages > 0
    if stage is None and part not in ('norm', 'norm_patches'):
        return True  # stem, tokens, position embedding
    return frozen_stages > (int(stage.group(1)) if stage else 2)


@pytest.mark.parametrize('out_type', ['featmap', 'tokens'])
@pytest.mark.parametrize('frozen_stages', [-1, 0, 1, 2, 3])
@each_backbone
def test_frozen_stages(build: Callable[..., TimmBackbone], frozen_stages: int, out_type: str):
    backbone = build(frozen_stages=frozen_stages, out_type=out_type)
    assert backbone.train() is backbone
    outputs = backbone(images((56, 28))[0].requires_grad_(frozen_stages == 3))
    trainable = frozen_stages < 3 or backbone.out_norms is not None
    assert all(output.requires_grad == trainable for output in outputs)
    if trainable:
        sum(output.sum() for output in outputs).backward()
    for name, parameter in backbone.named_parameters():
        assert parameter.requires_grad != is_frozen(frozen_stages, name), name
        assert (parameter.grad is None) == is_frozen(frozen_stages, name), name
    modes = {name: module.training for name, module in backbone.model.named_modules() if name}
    del modes['blocks' if hasattr(backbone.model, 'blocks') else 'layers']  # partly frozen
    assert modes == {name: not is_frozen(frozen_stages, f'model.{name}') for name in modes}
    assert backbone.eval() is backbone
    assert not any(module.training for module in backbone.modules())


def test_frozen_swin_trains_its_norms_only():
    backbone = swin(frozen_stages=3).train()
    trained = {name for name, p in gradients(backbone, *images((32, 32))).items() if p is not None}
    assert trained == {f'out_norms.{i}.{kind}' for i in range(3) for kind in ('weight', 'bias')}
    plain = swin(frozen_stages=3, out_norm=False).train()
    assert not any(output.requires_grad for output in plain(*images((32, 32))))


def test_frozen_stages_counts_what_pruning_leaves():
    """With only the first two blocks in use, two frozen blocks are the whole backbone."""
    assert not vit(out_indices=1, frozen_stages=2)(*images((32, 32)))[0].requires_grad


@pytest.mark.parametrize('frozen_stages', [-2, 4])
def test_frozen_stages_refused(frozen_stages: int):
    with pytest.raises(ValueError, match=f'frozen_stages={frozen_stages}.*or up to 3'):
        vit(frozen_stages=frozen_stages)


# --- pruning -------------------------------------------------------------------------------------

@pytest.mark.parametrize('kwargs', [dict(out_indices=1), dict(out_indices=(0, 2)),
                                    dict(out_type='tokens')], ids=str)
@each_backbone
def test_every_parameter_gets_a_gradient(build: Callable[..., TimmBackbone], kwargs: dict):
    """So DistributedDataParallel needs no find_unused_parameters."""
    backbone = build(**kwargs).train()
    missing = [name for name, grad in gradients(backbone, *images((40, 24))).items()
               if grad is None]
    assert not missing


def test_pruned_keys():
    block = {name.removeprefix('model.blocks.2.') for name in vit().state_dict()
             if name.startswith('model.blocks.2.')}
    head = {'head.weight', 'head.bias'}
    norm = {'norm.weight', 'norm.bias'}
    assert vit(out_type='tokens').pruned_keys == head
    assert vit().pruned_keys == head | norm
    assert vit(out_indices=(0, 1)).pruned_keys \
        == head | norm | {f'blocks.2.{name}' for name in block}
    assert vit(final_norm=False).pruned_keys == head | {'fc_norm.weight', 'fc_norm.bias'}
    wide = {f'{kind}.{name}' for kind in ('norm_patches', 'blocks.{}.norm3')
            for name in ('weight', 'bias')} | {'blocks.{}.ls3.gamma'}
    assert jumbo().pruned_keys == head | norm | {name.format(2) for name in wide}
    mlp = {f'jumbo_mlp.{name}' for name in ('fc1.weight', 'fc1.bias', 'fc2.weight', 'fc2.bias')}
    first = jumbo(out_indices=0).pruned_keys
    assert {name for name in first if not re.match(r'blocks\.[12]\.', name)} \
        == head | norm | mlp | {name.format(0) for name in wide}
    assert {name for name in swin(out_indices=(0, 1)).pruned_keys
            if not name.startswith('layers.2.')} == norm | {'head.fc.weight', 'head.fc.bias'}


# --- training ------------------------------------------------------------------------------------

@pytest.mark.parametrize('frozen_stages', [-1, 1])
@each_backbone
def test_checkpointing_gives_equal_gradients(build: Callable[..., TimmBackbone],
                                             frozen_stages: int):
    """Also for two image sizes in one step, whose blocks are recomputed in the backward pass."""
    sizes = [(56, 28), (28, 28)] if build is dinov2 else [(40, 24), (24, 24)]
    stored = randomize(build(frozen_stages=frozen_stages)).train()
    recomputed = build(frozen_stages=frozen_stages, with_cp=True).train()
    recomputed.load_state_dict(stored.state_dict())
    calls = count_calls(recomputed.stages[-1])
    expected = gradients(stored, *images(*sizes))
    actual = gradients(recomputed, *images(*sizes))
    assert calls() > len(sizes)  # it does recompute
    for name, gradient in expected.items():
        if gradient is None:
            assert actual[name] is None
        else:
            torch.testing.assert_close(actual[name], gradient, msg=name)


def count_calls(module: nn.Module) -> Callable[[], int]:
    """Count the calls of the first attention layer's projection in ``module``."""
    calls = []
    qkv = next(child for name, child in module.named_modules() if name.endswith('attn.qkv'))
    original = qkv.forward

    def forward(x: Tensor) -> Tensor:
        calls.append(1)
        return original(x)

    qkv.forward = forward
    return lambda: len(calls)


@each_backbone
def test_drop_path_acts_in_training_only(build: Callable[..., TimmBackbone]):
    x, = images((56, 28))
    x = x.repeat(4, 1, 1, 1)
    if build is dinov2:
        backbone = LocAtTIMM('vit_small_patch14_reg4_dinov2', dict(
            img_size=56, embed_dim=24, depth=3, num_heads=3, drop_path_rate=0.8))
    else:
        backbone = build(drop_path_rate=0.8)
    randomize(backbone).train()
    assert not torch.equal(backbone(x)[-1], backbone(x)[-1])
    backbone.eval()
    assert torch.equal(backbone(x)[-1], backbone(x)[-1])


def test_drop_path_grows_linearly_and_spares_frozen_blocks():
    backbone = randomize(vit(drop_path_rate=0.5, frozen_stages=2, out_indices=(1, 2))).train()
    rates = [getattr(block.drop_path1, 'drop_prob', 0.) for block in backbone.model.blocks]
    assert rates == pytest.approx([0., 0.25, 0.5])
    x = images((32, 32))[0].repeat(8, 1, 1, 1)
    first, second = backbone(x), backbone(x)
    assert torch.equal(first[0], second[0])
    assert not torch.equal(first[1], second[1])


@pytest.mark.parametrize('clone', [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))],
                         ids=['deepcopy', 'pickle'])
@each_backbone
def test_copies_keep_a_grid_of_their_own(build: Callable[..., TimmBackbone], clone: Callable):
    """24 patches may be 4 x 6 or 6 x 4: copy and original must not read each other's grid."""
    tall, wide = images((84, 56), (56, 84)) if build is dinov2 else images((48, 32), (32, 48))
    original = randomize(build()).eval()
    expected = original(tall)[-1], original(wide)[-1]
    twin = clone(original)
    assert torch.equal(twin(tall)[-1], expected[0])
    assert torch.equal(original(wide)[-1], expected[1])
    # Without its own grid the copy's attention would read the original's latest one.
    assert torch.equal(twin(tall)[-1], expected[0])


def test_exponential_moving_average():
    backbone = randomize(vit()).eval()
    average = ExponentialMovingAverage(backbone, momentum=0.25)
    before = {name: weight.clone() for name, weight in backbone.state_dict().items()}
    randomize(backbone, seed=5)
    average.update_parameters(backbone)  # the first update copies
    randomize(backbone, seed=6)
    start = copy.deepcopy(average.module.state_dict())
    average.update_parameters(backbone)
    for name, weight in average.module.state_dict().items():
        torch.testing.assert_close(weight, 0.75 * start[name] + 0.25 * backbone.state_dict()[name])
        assert not torch.equal(weight, before[name])
    assert torch.isfinite(average(*images((40, 24)))[0]).all()


@each_backbone
def test_bfloat16_autocast(build: Callable[..., TimmBackbone]):
    backbone = build().train()
    x, = images((56, 28))
    expected = [output.detach() for output in backbone(x)]
    with torch.autocast('cpu', dtype=torch.bfloat16):
        outputs = backbone(x)
        loss = sum(output.float().square().mean() for output in outputs)
    loss.backward()
    for output, full in zip(outputs, expected, strict=True):
        assert (output - full).norm() < 0.03 * full.norm()
    grads = [p.grad for p in backbone.parameters()]
    assert all(grad is not None and torch.isfinite(grad).all() for grad in grads)


# --- weights -------------------------------------------------------------------------------------

@each_backbone
def test_state_dict_round_trip_under_three_spellings(build: Callable[..., TimmBackbone]):
    """The shell's own names, timm's and the reference's, also below 'backbone.'."""
    weights = randomize(build()).state_dict()
    spellings = {'own': weights,
                 'timm': {name.removeprefix('model.'): w for name, w in weights.items()}}
    for state_dict in spellings.values():
        names = list(state_dict)
        backbone = build()
        backbone.load_state_dict(state_dict)
        whole = nn.ModuleDict(dict(backbone=build(), neck=nn.Linear(2, 2)))
        whole.load_state_dict({**{f'backbone.{name}': w for name, w in state_dict.items()},
                               'neck.weight': torch.eye(2), 'neck.bias': torch.zeros(2)})
        for loaded in (backbone, whole['backbone']):
            assert all(torch.equal(loaded.state_dict()[name], w) for name, w in weights.items())
        assert list(state_dict) == names  # the caller's dict is untouched


def test_timms_initialisation_is_not_repeated():
    backbone = vit()
    before = copy.deepcopy(backbone.state_dict())
    backbone.init_weights()
    assert backbone.is_init
    assert all(torch.equal(before[name], w) for name, w in backbone.state_dict().items())


@pytest.mark.parametrize('kind', ['Pretrained', PretrainedInit])
def test_loaded_weights_win_over_drawn_ones(kind: str | type, tmp_path: Path):
    source = randomize(vit())
    torch.save(source.state_dict(), tmp_path / 'weights.pth')
    backbone = vit(init_cfg=[dict(type=kind, checkpoint=str(tmp_path / 'weights.pth')),
                             dict(type='Constant', layer=['Conv2d', 'Linear'], val=7.)])
    backbone.init_weights()
    assert all(torch.equal(source.state_dict()[name], w)
               for name, w in backbone.state_dict().items())
    drawn = vit(init_cfg=dict(type='Constant', layer='Conv2d', val=7.))
    drawn.init_weights()
    assert (drawn.model.patch_embed.proj.weight == 7).all()


# --- layer depth ---------------------------------------------------------------------------------

@each_vit
def test_layer_depth_of_vits(build: Callable[..., LocAtViT]):
    backbone = build(out_type='tokens')
    for name, _ in backbone.named_parameters():
        block = re.match(r'model\.blocks\.(\d+)\.', name)
        if block:
            expected = int(block.group(1)) + 1
        else:  # norms and Jumbo's shared MLP go with the last block, all else precedes the first
            expected = 3 if name.startswith(('model.norm', 'model.jumbo_mlp')) else 0
        assert backbone.get_layer_depth(f'backbone.{name}', 'backbone.') == (expected, 5), name
    assert backbone.get_layer_depth('head.layers.weight', 'backbone.') == (4, 5)


def test_layer_depth_of_swin():
    """Stages of 1, 2 and 1 blocks; a patch merging belongs to the block that follows it."""
    backbone = swin()
    first_block = {'0': 1, '1': 2, '2': 4}
    for name, _ in backbone.named_parameters():
        parts = name.split('.')
        if parts[0] == 'out_norms':
            expected = 5
        elif parts[1] == 'patch_embed':
            expected = 0
        else:
            expected = first_block[parts[2]] + (int(parts[4]) if parts[3] == 'blocks' else 0)
        assert backbone.get_layer_depth(f'backbone.{name}', 'backbone.') == (expected, 6), name
        assert backbone.get_layer_depth(name) == (expected, 6), name
