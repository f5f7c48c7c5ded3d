"""A study on one packed data set: conditions trained one after another within a time limit.

Everything is written as soon as it is known, so that a study that was stopped, by its time limit or
otherwise, goes on where it stopped: `results.json`, `table.md`, and for each condition NAME its
weights, in timm's names, in `NAME.pth`, or while it is unfinished its state in `NAME.state.pth`.
"""
import json
import math
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from functools import partial
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import timm
import torch
from torch import Tensor, nn

from .compact_vit import ARCHITECTURES, build_compact_vit
from .features import pooled_features
from .knn import knn_scores, topk_accuracy
from .linear_probe import choose_l2, fit_linear_probe
from .locality import evaluation_mode, measure_locality
from .locality_results import finite
from .packed_images import read_packed
from .packed_study_table import decimal, study_table
from .protocol_training import PROTOCOLS, ProtocolTraining, Recipe, normalise

EVALUATED = 500  # images at a time
NEIGHBOURS = 20
PENALTIES = (1e-4, 1e-3, 1e-2, 1e-1)  # of the linear probe


class Condition(NamedTuple):
    """What is trained: names of `ARCHITECTURES` and `PROTOCOLS`, and a seed."""
    architecture: str
    protocol: str
    seed: int

    def __str__(self) -> str:
        return f'{self.architecture}_{self.protocol}_seed{self.seed}'


class Preset(NamedTuple):
    """The conditions of a study in their order, and what is measured beside the accuracy.

    Attributes:
        architectures, protocols: names; every architecture with a protocol before the next one.
        locality: attention distance and entropy at each point of the curve.
        frozen: k-NN and linear probe at the end.
    """
    architectures: tuple[str, ...]
    protocols: tuple[str, ...]
    locality: bool = False
    frozen: bool = False


PRESETS = {
    'protocols': Preset(('vit', ), tuple(PROTOCOLS), locality=True),
    'architectures': Preset(tuple(ARCHITECTURES), ('modern', ), frozen=True),
}


def conditions_of(architectures: Iterable[str], protocols: Iterable[str], seeds: Iterable[int]
                  ) -> list[Condition]:
    """All combinations: one seed before the next, in it one protocol before the next."""
    return [Condition(architecture, protocol, seed)
            for seed, protocol, architecture in product(seeds, protocols, architectures)]


@dataclass(frozen=True)
class Settings:
    """What all conditions of a work dir have in common.

    Attributes:
        data: name of the packed file.
        recipe: of the training.
        locality: whether to measure attention distance and entropy.
        frozen: whether to score k-NN and linear probe at the end.
        points: how often to measure, evenly over the epochs, beside the start.
        locality_images: test images that locality is measured on, evenly spaced; None for all.

    Raises:
        ValueError: for a number that is not positive.
    """
    data: str
    recipe: Recipe
    locality: bool
    frozen: bool
    points: int = 20
    locality_images: int | None = None

    def __post_init__(self) -> None:
        if self.points < 1 or (self.locality_images is not None and self.locality_images < 1):
            raise ValueError(f'points={self.points}, locality_images={self.locality_images}: '
                             'expected positive numbers')

    @property
    def measured_epochs(self) -> set[int]:
        """After how many epochs to measure."""
        return {round(point * self.recipe.epochs / self.points)
                for point in range(self.points + 1)}


class Split(NamedTuple):
    """Images (N, 3, H, W), bytes, and labels (N,), on the device."""
    images: Tensor
    labels: Tensor


class PackedStudy:
    """Trains and measures conditions on one packed file.

    Args:
        data: the file, see `tools/pack_cifar.py`.
        work_dir: of what is written; the results of an earlier run there are kept.
        settings: the same as in earlier runs there.
        device: of everything.
        compiled: whether to compile the models for training.
        facts: about this run, to be written with the results.

    Raises:
        ValueError: if the work dir holds results of other settings, or the file is no packed data
            set or too small for a batch.
        OSError: if the file cannot be read.
    """

    def __init__(self, data: str | Path, work_dir: Path, settings: Settings,
                 device: torch.device, compiled: bool, facts: dict[str, Any]) -> None:
        self.work_dir = work_dir
        self.settings = settings
        self.device = device
        self.compiled = compiled
        self._models: dict[str, tuple[nn.Module, nn.Module]] = {}
        self._asked: list[Condition] = []
        self.train, self.test = (self._read(data, split) for split in ('train', 'test'))
        self.steps_per_epoch = settings.recipe.steps_per_epoch(len(self.train.images))
        self.results = self._earlier()
        self.results['runs'].append(dict(facts, torch=torch.__version__, timm=timm.__version__))

    def _read(self, data: str | Path, split: str) -> Split:
        images, labels, classes = read_packed(data, split)
        self.num_classes = len(classes)
        images = torch.from_numpy(images).to(self.device).permute(0, 3, 1, 2).contiguous()
        return Split(images, torch.from_numpy(labels).to(self.device))

    def _earlier(self) -> dict[str, Any]:
        """The results of the work dir, empty if there are none."""
        settings = dict(asdict(self.settings), images={
            'train': len(self.train.images), 'test': len(self.test.images)})
        path = self.work_dir / 'results.json'
        if not path.is_file():
            return dict(settings=settings, runs=[], conditions={}, not_begun=[])
        results = json.loads(path.read_text())
        if results['settings'] != settings:
            raise ValueError(f'{path} has settings {results["settings"]}, but these were asked '
                             f'for: {settings}; give the same, or another work dir')
        return results

    def run(self, conditions: list[Condition], deadline: float = math.inf) -> dict[str, Any]:
        """Train and measure what is not finished.

        Args:
            conditions: in their order.
            deadline: of `time.monotonic`; an evaluation that has begun is finished after it.

        Returns:
            What is in `results.json`.
        """
        self._asked = conditions
        for condition in conditions:
            row = self.results['conditions'].get(str(condition))
            if time.monotonic() < deadline and not (row and row['finished']):
                self._run_condition(condition, deadline)
        self._save()
        return self.results

    def _run_condition(self, condition: Condition, deadline: float) -> None:
        begun = time.monotonic()
        epochs = self.settings.recipe.epochs
        training = self._training(condition)
        state = self.work_dir / f'{condition}.state.pth'
        if state.is_file():
            saved = torch.load(state, map_location=self.device, weights_only=True)
            row = saved.pop('row')
            training.load_state_dict(saved)
        else:
            row = dict(condition._asdict(), finished=False, seconds=0.,
                       curve=[self._point(training.model, 0, None)])
        self._note(condition, row)
        begun -= row['seconds']
        losses = []
        while training.epoch < epochs:
            loss = training.run_epoch(deadline)
            if loss is None:
                return
            losses.append(loss)
            if training.epoch in self.settings.measured_epochs:
                row['curve'].append(self._point(training.model, training.epoch, mean(losses)))
                row['seconds'] = time.monotonic() - begun
                save_whole(dict(training.state_dict(), row=row), state)
                self._note(condition, row)
                losses = []
        if self.settings.frozen:
            row.update(self._frozen_scores(training.model))
        row.update(finished=True, seconds=time.monotonic() - begun)
        save_whole(training.model.state_dict(), self.work_dir / f'{condition}.pth')
        self._note(condition, row)
        state.unlink()

    def _training(self, condition: Condition) -> ProtocolTraining:
        """A run at its start. A model is compiled once and takes new weights for each run."""
        fused_attn = False if self.device.type == 'cpu' else None
        torch.manual_seed(condition.seed)
        fresh = build_compact_vit(self.num_classes, fused_attn=fused_attn,
                                  **ARCHITECTURES[condition.architecture])
        if condition.architecture not in self._models:
            model = fresh.to(self.device)
            forward = torch.compile(model, dynamic=False) if self.compiled else model
            self._models[condition.architecture] = model, forward
        model, forward = self._models[condition.architecture]
        model.load_state_dict(fresh.state_dict())
        return ProtocolTraining(model, *self.train, self.num_classes,
                                PROTOCOLS[condition.protocol], self.settings.recipe,
                                condition.seed, forward)

    def _point(self, model: nn.Module, epoch: int, loss: float | None) -> dict[str, Any]:
        """The measures after an epoch, for JSON; ``loss`` is the mean since the last point."""
        scores = over_batches(model, model, self.test.images)
        point = dict(epoch=epoch, step=epoch * self.steps_per_epoch, train_loss=loss,
                     top1=topk_accuracy(scores, self.test.labels))
        if self.settings.locality:
            count = len(self.test.images)
            part = min(self.settings.locality_images or count, count)
            chosen = torch.arange(part, device=self.device) * count // part
            batches = self.test.images[chosen].split(EVALUATED)
            point['locality'] = measure_locality(model, map(normalise, batches)).to_dict()
        return point

    def _frozen_scores(self, model: nn.Module) -> dict[str, float]:
        """Top-1 accuracy in percent of k-NN and linear probe on what the head sees."""
        train, test = (over_batches(partial(pooled_features, model), model, split.images)
                       for split in (self.train, self.test))
        learned = train, self.train.labels, self.num_classes
        votes = knn_scores(test, *learned, NEIGHBOURS)
        l2 = choose_l2(*learned, PENALTIES, torch.Generator().manual_seed(0))
        probe = fit_linear_probe(*learned, l2)
        return dict(knn_top1=topk_accuracy(votes, self.test.labels), linear_l2=l2,
                    linear_top1=topk_accuracy(probe.scores(test), self.test.labels))

    def _note(self, condition: Condition, row: dict[str, Any]) -> None:
        """Put the row of a condition into the results, write them, and print the newest point."""
        self.results['conditions'][str(condition)] = row
        self._save()
        point = row['curve'][-1]
        locality = ', minimum MAD ' + decimal(point['locality']['min_distance_diagonal']) \
            if self.settings.locality else ''
        print(f'{condition}: {point["epoch"]} of {self.settings.recipe.epochs} epochs, '
              f'{row["seconds"]:.0f} s, top-1 {point["top1"]:.2f} %{locality}', flush=True)

    def _save(self) -> None:
        """Write the results so that an interruption leaves the old file or the new one."""
        rows = self.results['conditions']
        self.results['not_begun'] = [str(asked) for asked in self._asked if str(asked) not in rows]
        self.work_dir.mkdir(parents=True, exist_ok=True)
        unfinished = self.work_dir / 'results.partial'
        unfinished.write_text(json.dumps(finite(self.results), indent=1, allow_nan=False))
        unfinished.replace(self.work_dir / 'results.json')
        (self.work_dir / 'table.md').write_text(study_table(self.results))


@torch.no_grad()
def over_batches(function: Callable[[Tensor], Tensor], model: nn.Module, images: Tensor) -> Tensor:
    """What ``function`` gives of all images (N, 3, H, W), bytes; ``model`` in evaluation mode."""
    with evaluation_mode(model):
        return torch.cat([function(normalise(batch)) for batch in images.split(EVALUATED)])


def save_whole(state: dict[str, Any], path: Path) -> None:
    """`torch.save`, of which an interruption leaves the old file or the new one."""
    unfinished = path.with_suffix('.partial')
    torch.save(state, unfinished)
    unfinished.replace(path)
