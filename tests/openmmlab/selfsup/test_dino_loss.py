"""The loss of DINO against sums written out, and what keeps it from collapsing."""
import math

import pytest
import torch
from mmengine.registry import MODELS
from torch import Tensor
from torch.nn import functional as F

from locat_mmseg.openmmlab.selfsup.dino_loss import DINOLoss, cross_crop_entropy, information


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def slow_softmax(outputs: list[float], temperature: float) -> list[float]:
    exponentials = [math.exp(output / temperature) for output in outputs]
    return [exponential / sum(exponentials) for exponential in exponentials]


def slow_loss(student: Tensor, teacher: Tensor, center: Tensor, student_temp: float,
              teacher_temp: float) -> float:
    """Pair by pair, image by image, output by output."""
    total, pairs = 0., 0
    for t, targets in enumerate(teacher):
        for s, predictions in enumerate(student):
            if s == t:
                continue
            pairs += 1
            for target, prediction in zip(targets, predictions):
                p = slow_softmax((target - center).tolist(), teacher_temp)
                q = slow_softmax(prediction.tolist(), student_temp)
                total -= sum(a * math.log(b) for a, b in zip(p, q)) / len(targets)
    return total / pairs


@pytest.mark.parametrize('num_global, num_crops', [(2, 6), (1, 3), (2, 2)])
def test_loss_is_the_mean_over_pairs_of_different_crops(num_global, num_crops):
    loss = DINOLoss(5, student_temp=0.3, teacher_temp=0.2, center_momentum=0.6)
    center = torch.zeros(5)
    for step in range(2):  # the second one with a centre
        student = random(num_crops, 3, 5, seed=step)
        teacher = random(num_global, 3, 5, seed=10 + step)
        expected = slow_loss(student, teacher, center, 0.3, 0.2)
        assert loss(student, teacher)['loss'].item() == pytest.approx(expected, rel=1e-5)
        center = 0.6 * center + 0.4 * teacher.mean(dim=(0, 1)).float()
        torch.testing.assert_close(loss.center, center)


def test_center_by_hand():
    loss = MODELS.build(dict(type='DINOLoss', out_channels=2, center_momentum=0.9))
    loss(torch.zeros(2, 2, 2), torch.tensor([[[1., 0.], [3., 4.]]]))  # mean 2 and 2
    torch.testing.assert_close(loss.center, torch.tensor([0.2, 0.2]))
    loss(torch.zeros(2, 2, 2), torch.tensor([[[0., 10.], [0., 0.]]]))  # mean 0 and 5
    torch.testing.assert_close(loss.center, torch.tensor([0.18, 0.68]))
    assert list(loss.state_dict()) == ['center']  # it is resumed


def test_gradient_of_the_student():
    """Of softmax cross-entropy: (prediction - target) / temperature, averaged."""
    student, teacher = random(2, 3, 5).requires_grad_(), random(1, 3, 5, seed=1)
    DINOLoss(5, student_temp=0.5, teacher_temp=0.2)(student, teacher)['loss'].backward()
    prediction, target = (student[1] / 0.5).softmax(-1), (teacher[0] / 0.2).softmax(-1)
    expected = torch.stack([torch.zeros(3, 5), (prediction - target) / 0.5 / 3])
    torch.testing.assert_close(student.grad, expected.detach(), rtol=1e-5, atol=1e-6)


def test_pairs_are_summed_in_less_memory_than_there_are_pairs():
    targets, predictions = random(2, 3, 5).softmax(-1), random(6, 3, 5, seed=1).log_softmax(-1)
    pairs = [F.cross_entropy(predictions[s], targets[t])
             for t in range(2) for s in range(6) if s != t]
    torch.testing.assert_close(cross_crop_entropy(targets, predictions), sum(pairs) / 10)


def test_half_precision_outputs_are_compared_in_float32():
    student, teacher = random(4, 3, 50).bfloat16(), random(2, 3, 50, seed=1).bfloat16()
    loss = DINOLoss(50)
    with torch.autocast('cpu', torch.bfloat16):
        result = loss(student, teacher)
    assert result['loss'].dtype == loss.center.dtype == torch.float32
    torch.testing.assert_close(result['loss'],
                               DINOLoss(50)(student.float(), teacher.float())['loss'])


@pytest.mark.parametrize('epoch, temperature', [(0, 0.04), (15, 0.055), (29, 0.069), (30, 0.07),
                                                (99, 0.07)])
def test_teacher_temperature_warms_up(epoch, temperature):
    loss = DINOLoss(4, teacher_temp=0.07, initial_teacher_temp=0.04, warmup_epochs=30)
    assert loss.temperature(epoch) == pytest.approx(temperature)
    student, teacher = random(2, 3, 4), random(1, 3, 4, seed=1)
    constant = DINOLoss(4, teacher_temp=temperature)
    torch.testing.assert_close(loss(student, teacher, epoch)['loss'],
                               constant(student, teacher)['loss'])


def test_teacher_temperature_is_constant_without_warm_up():
    assert {DINOLoss(4, teacher_temp=0.05).temperature(epoch) for epoch in (0, 1, 50)} == {0.05}


# --- collapse ------------------------------------------------------------------------------------

def test_information():
    alike = torch.tensor([[0.7, 0.2, 0.1]] * 4)
    assert information(alike).item() == pytest.approx(0, abs=1e-6)
    assert information(torch.full((2, 2, 3), 1 / 3)).item() == pytest.approx(0, abs=1e-6)
    assert information(torch.eye(4)).item() == pytest.approx(math.log(4))
    half = torch.tensor([[1., 0.], [0.5, 0.5]])  # H(3/4, 1/4) - ln(2) / 2
    assert information(half).item() == pytest.approx(0.5623351 - 0.3465736)


def test_centring_removes_an_output_that_always_wins():
    """Sharpened outputs of which one is large for every image: one class, until the centre
    follows."""
    loss = DINOLoss(8, center_momentum=0.9)
    teacher = (random(2, 32, 8) * 0.3).float()
    teacher[..., 0] += 5
    before = loss(teacher, teacher)['teacher_information']
    for _ in range(100):
        after = loss(teacher, teacher)['teacher_information']
    assert before < 1e-4
    assert after > 1


def test_sharpening_removes_outputs_all_alike():
    """Centred outputs that differ little between images: no class, until they are sharpened."""
    teacher = (random(2, 32, 8) * 0.05).float()
    assert DINOLoss(8, teacher_temp=1.)(teacher, teacher)['teacher_information'] < 0.01
    assert DINOLoss(8, teacher_temp=0.01)(teacher, teacher)['teacher_information'] > 1


@pytest.mark.parametrize('wrong', [dict(student_temp=0), dict(teacher_temp=-0.1),
                                   dict(initial_teacher_temp=0.)])
def test_temperatures_must_be_positive(wrong):
    with pytest.raises(ValueError, match=f'{list(wrong)[0]}={list(wrong.values())[0]}.*above 0'):
        DINOLoss(4, **wrong)


@pytest.mark.parametrize('wrong', [1, 1.5, -0.1])
def test_center_must_move(wrong):
    with pytest.raises(ValueError, match=f'center_momentum={wrong}: .*below 1.*no centring'):
        DINOLoss(4, center_momentum=wrong)
