"""DINO's student, teacher and crops."""
import math
from copy import deepcopy

import dino_worker
import pytest
import torch
from tiny_dino import HEAD, OUTPUTS, crops, dino, tell, train
from tiny_timm import randomize
from torch import Tensor, nn

from locat_mmseg.layers import GaussianAugment
from locat_mmseg.openmmlab.selfsup.dino import project
from locat_mmseg.openmmlab.selfsup.dino_loss import cross_crop_entropy


def losses(model: nn.Module, batch: list[Tensor]) -> dict[str, Tensor]:
    return model(batch, mode='loss')


def gradients(model: nn.Module, batch: list[Tensor]) -> dict[str, Tensor]:
    model.zero_grad()
    losses(model, batch)['loss'].backward()
    return {name: p.grad for name, p in model.named_parameters() if p.requires_grad}


# --- student and teacher -------------------------------------------------------------------------

def test_loss_of_crops_one_by_one():
    """The crops of an image meet each other, not those of other images, in their order."""
    model = dino()
    alone = [deepcopy(model.student)(crop) for crop in crops()]  # teacher = student at the start
    assert all(outputs.shape == (2, OUTPUTS) for outputs in alone)
    targets = torch.stack(alone[:2]).div(0.04).softmax(-1)
    expected = cross_crop_entropy(targets, torch.stack(alone).div(0.1).log_softmax(-1))
    tell(max_iters=4)
    torch.testing.assert_close(losses(model, crops())['loss'], expected)
    torch.testing.assert_close(model.loss_module.center, 0.1 * torch.cat(alone[:2]).mean(0))


@pytest.mark.parametrize('sizes', [(32, 32, 16, 16), (32, 16, 16), (32, 24, 24, 8), (16, 32, 16)])
def test_outputs_are_in_the_order_of_the_crops(sizes):
    network = dino().student
    batch = crops(sizes=sizes)
    torch.testing.assert_close(project(network, batch), torch.stack([network(x) for x in batch]))


def test_crops_of_one_size_are_one_batch():
    network, shapes = dino().student, []
    network.backbone.register_forward_pre_hook(lambda module, args: shapes.append(args[0].shape))
    project(network, crops())
    assert shapes == [(4, 3, 32, 32), (4, 3, 16, 16)]


def test_only_the_student_gets_gradients():
    tell(max_iters=4)
    model = dino()
    losses(model, crops())['loss'].backward()
    for name, parameter in model.named_parameters():
        assert (parameter.grad is None) == name.startswith('teacher.'), name
    assert any(name.startswith('teacher.') for name, _ in model.named_parameters())


def test_teacher_follows_the_student():
    """A share of 0.004 (1 + cos(pi k / 4)) / 2 of the student in step k of 4; all of it first."""
    tell(max_iters=4)
    model = dino()
    for value, expected in [(1., 1.), (2., 1.0034142), (0., 1.0014074), (0., 1.0008208)]:
        nn.init.constant_(model.backbone.model.pos_embed, value)
        losses(model, crops())
        teacher = model.teacher.module.backbone.model.pos_embed
        torch.testing.assert_close(teacher, torch.full_like(teacher, expected))


def test_stochastic_depth_acts_in_the_student_only():
    tell(max_iters=4)
    model = dino(drop_path_rate=0.9)
    images = crops()[0]
    assert model.backbone.training and not model.teacher.training
    assert not torch.equal(model.student(images), model.student(images))
    torch.testing.assert_close(model.teacher(images), model.teacher(images), rtol=0, atol=0)
    model.eval()
    torch.testing.assert_close(model.student(images), model.student(images), rtol=0, atol=0)


def test_features_are_the_teachers():
    model = dino()
    randomize(model.teacher.module)
    images = crops()[0]
    features, = model(images, mode='tensor')
    assert features.shape == (2, 24)
    torch.testing.assert_close(model.teacher.module.head((features, )), model.teacher(images))
    assert not torch.allclose(features, model.neck(model.backbone(images))[0])


def test_epoch_reaches_the_temperature():
    loss = dict(teacher_temp=0.5, initial_teacher_temp=0.04, warmup_epochs=10)
    found = {}
    for epoch in (0, 10):
        tell(max_iters=4, epoch=epoch)
        found[epoch] = losses(dino(loss=loss), crops())['loss']
        constant = dino(loss=dict(teacher_temp={0: 0.04, 10: 0.5}[epoch]))
        torch.testing.assert_close(found[epoch], losses(constant, crops())['loss'])
    assert not torch.allclose(found[0], found[10])


@pytest.mark.parametrize('centring', [True, False])
def test_centring_keeps_training_from_collapse(centring):
    """Crops of noise have nothing in common that could be learnt. With centring the loss stays near
    that of guessing, without it one output wins for all images and there is no loss."""
    tell(max_iters=30)
    model = dino(loss=dict(center_momentum=0.5), base_momentum=0.02)
    if not centring:
        model.loss_module.update_center = lambda teacher: None
    batch = crops(range(4), sizes=(16, 16, 8, 8))
    train(model, batch, 30, torch.optim.AdamW, lr=1e-3)
    loss = losses(model, batch)['loss'].item()
    assert (math.log(OUTPUTS) - 0.5 < loss < math.log(OUTPUTS) + 1) if centring else loss < 0.02


# --- two grids in one step -----------------------------------------------------------------------

GRIDS = dict(img_size=224, patch_size=16)
GRID_SIZES = (224, 224, 96)


def seen_grids(model: nn.Module) -> list[tuple[int, int]]:
    """The grids that GAug of the student's first block is given, from now on."""
    grids = []
    gaug = next(m for m in model.backbone.modules() if isinstance(m, GaussianAugment))
    gaug.register_forward_pre_hook(lambda module, args: grids.append(args[1]))
    return grids


def test_gaug_has_the_grid_of_each_crop_also_when_recomputing():
    """14 x 14 patches of a crop of 224 pixels, 6 x 6 of 96, first in the forward pass, then, with
    gradient checkpointing, in the backward pass."""
    expected = {}
    for with_cp in (False, True):
        tell(max_iters=4)
        model = randomize(dino(**GRIDS, with_cp=with_cp))
        grids = seen_grids(model)
        found = gradients(model, crops(sizes=GRID_SIZES))
        assert grids[:2] == [(14, 14), (6, 6)]
        assert sorted(grids[2:]) == ([(6, 6), (14, 14)] if with_cp else [])
        for name, gradient in found.items():
            assert gradient.abs().max() > 0, name
            torch.testing.assert_close(gradient, expected.setdefault(name, gradient), msg=name)


def test_two_sizes_together_give_what_each_gives_alone():
    model = randomize(dino(**GRIDS))
    batch = crops(sizes=GRID_SIZES)
    together = project(model.student, batch)
    for crop, outputs in zip(batch, together):
        torch.testing.assert_close(dino_like(model)(crop), outputs)


def dino_like(model: nn.Module) -> nn.Module:
    """A new student with the same weights, which has not seen any image."""
    new = dino(**GRIDS)
    new.load_state_dict(model.state_dict())
    return new.student


# --- several processes ---------------------------------------------------------------------------

def test_two_processes_train_like_one_with_the_joint_batch(tmp_path):
    """Weights, teacher and centre after three steps; global and local crops, recomputed blocks."""
    torch.multiprocessing.spawn(dino_worker.work, (tmp_path, ), dino_worker.WORLD_SIZE)
    tell(max_iters=dino_worker.STEPS)
    model = dino(with_cp=True, base_momentum=0.4)
    start = deepcopy(model.state_dict())
    train(model, crops(range(dino_worker.IMAGES * dino_worker.WORLD_SIZE)), dino_worker.STEPS)
    ranks = [torch.load(tmp_path / f'{rank}.pth') for rank in range(dino_worker.WORLD_SIZE)]
    for name, expected in model.state_dict().items():
        assert torch.equal(ranks[0][name], ranks[1][name]), name
        torch.testing.assert_close(ranks[0][name], expected, rtol=1e-4, atol=1e-6, msg=name)
    for name in ('loss_module.center', 'backbone.model.pos_embed',
                 'teacher.module.backbone.model.pos_embed'):
        assert not torch.allclose(start[name], model.state_dict()[name], rtol=0, atol=1e-4), name


# --- mistakes ------------------------------------------------------------------------------------

@pytest.mark.parametrize('sizes, num_global_crops, message', [
    ((32, ), 1, r'got 1 crops of each image.*num_views of the transform MultiView to 2'),
    ((32, 32), 3, r'got 2 crops of each image, but num_global_crops=3.*to 3 or more'),
    ((16, 32, 32), 2, r'crops of \[\(16, 16\), .*the first num_global_crops=2 must be.*global'),
    ((32, 16, 16), 2, 'must be of one size'),
    ((16, 16, 32), 2, 'no other larger')])
def test_refuses_crops_in_another_order(sizes, num_global_crops, message):
    model = dino(num_global_crops=num_global_crops)
    with pytest.raises(ValueError, match=message):
        losses(model, crops(sizes=sizes))


def test_refuses_one_view():
    with pytest.raises(ValueError, match=r'one batch of shape \(2, 3, 32, 32\).*MultiView.*default'
                                         '_collate'):
        losses(dino(), crops()[0])


def test_number_of_outputs_is_said_once():
    model = dino(head=dict(HEAD, out_channels=7))
    assert model.loss_module.center.shape == model.head.last_layer.weight.shape[:1] == (7, )
