"""The loss of DINO: cross-entropy between crops, with a centred and sharpened teacher.

DINO, arXiv 2104.14294, section 3. Nothing but centring and sharpening keeps all images from getting
the same output: centring alone makes outputs uniform, sharpening alone lets one of them win.

Shape legend: G global crops, V crops in all, B images, K outputs.
"""
import torch
from mmengine.dist import all_reduce
from mmengine.model import BaseModule
from mmengine.registry import MODELS
from torch import Tensor


@MODELS.register_module()
class DINOLoss(BaseModule):
    """Cross-entropy of student and teacher; remembers the centre of the teacher's outputs.

    Args:
        out_channels: K.
        student_temp: temperature of the student's softmax.
        teacher_temp: of the teacher's; lower is sharper.
        initial_teacher_temp: of the teacher's in the first epoch, if there is a warm-up.
        warmup_epochs: in which the teacher's temperature moves linearly, epoch by epoch, to
            ``teacher_temp``; 0: it has it from the start.
        center_momentum: share of the old centre in the new one.

    Raises:
        ValueError: for a temperature or momentum out of range.
    """

    def __init__(self, out_channels: int, student_temp: float = 0.1, teacher_temp: float = 0.04,
                 initial_teacher_temp: float = 0.04, warmup_epochs: int = 0,
                 center_momentum: float = 0.9) -> None:
        super().__init__()
        if min(student_temp, teacher_temp, initial_teacher_temp) <= 0:
            raise ValueError(f'student_temp={student_temp}, teacher_temp={teacher_temp}, '
                             f'initial_teacher_temp={initial_teacher_temp}: expected temperatures '
                             'above 0')
        if not 0 <= center_momentum < 1:
            raise ValueError(f'center_momentum={center_momentum}: expected at least 0 and below 1; '
                             'with 1 there would be no centring')
        self.student_temp = student_temp
        self.teacher_temp = teacher_temp
        self.initial_teacher_temp = initial_teacher_temp
        self.warmup_epochs = warmup_epochs
        self.center_momentum = center_momentum
        self.register_buffer('center', torch.zeros(out_channels))

    def forward(self, student: Tensor, teacher: Tensor, epoch: int = 0) -> dict[str, Tensor]:
        """Compute the loss, then move the centre.

        Args:
            student: (V, B, K) outputs, the teacher's crops first.
            teacher: (G, B, K) outputs, without gradient.
            epoch: epochs that are finished.

        Returns:
            ``loss``, and ``teacher_information`` (nats): 0 if the outputs have collapsed, to one
            of the K or to all alike; at most ln(G * B).
        """
        # At least float32, also under autocast.
        targets = ((teacher.float() - self.center) / self.temperature(epoch)).softmax(dim=-1)
        predictions = (student.float() / self.student_temp).log_softmax(dim=-1)
        self.update_center(teacher)
        return dict(loss=cross_crop_entropy(targets, predictions),
                    teacher_information=information(targets))

    def temperature(self, epoch: int) -> float:
        """The teacher's temperature in an epoch, counted from 0."""
        if epoch >= self.warmup_epochs:
            return self.teacher_temp
        step = (self.teacher_temp - self.initial_teacher_temp) / self.warmup_epochs
        return self.initial_teacher_temp + step * epoch

    @torch.no_grad()
    def update_center(self, teacher: Tensor) -> None:
        """Move the centre towards the mean of outputs (G, B, K) of all processes."""
        mean = teacher.float().mean(dim=(0, 1))
        all_reduce(mean, op='mean')
        self.center.lerp_(mean, 1 - self.center_momentum)


def cross_crop_entropy(targets: Tensor, predictions: Tensor) -> Tensor:
    """Mean cross-entropy over all pairs of a teacher's crop and another crop of the student.

    Args:
        targets: (G, B, K) probabilities.
        predictions: (V, B, K) log-probabilities, V >= 2, of which the first G belong to the
            teacher's crops.

    Returns:
        A scalar.
    """
    # Summed over crops first: this takes memory for G crops, not for all G * (V - 1) pairs.
    others = predictions.sum(dim=0) - predictions[:len(targets)]
    return -(targets * others).sum(dim=-1).mean() / (len(predictions) - 1)


def information(probabilities: Tensor) -> Tensor:
    """What outputs (..., K) tell about their inputs (nats): the entropy of the mean minus the mean
    entropy."""
    rows = probabilities.flatten(0, -2)
    return torch.special.entr(rows.mean(dim=0)).sum() - torch.special.entr(rows).sum(dim=-1).mean()
