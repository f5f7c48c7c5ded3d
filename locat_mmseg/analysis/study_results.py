"""What a study of several conditions and seeds has planned, and what its runs left so far.

The folder of a study holds ``study.json``, the plan, and a work dir ``CONDITION/seedN`` for each
run: ``locality.jsonl`` of the LocalityHook, mmengine's ``*/vis_data/scalars.json`` with the
validations, an empty file ``finished``, or ``failed`` with the reason.
"""
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .locality_results import Locality
from .run_record import write_json

PLAN = 'study.json'
# Names in tables, by names in files; the score's name is the metric's.
MEASURES = {'min_distance': 'minimum distance', 'mean_distance': 'mean distance',
            'min_entropy': 'minimum entropy', 'mean_entropy': 'mean entropy'}


@dataclass
class Condition:
    """A config that a study trains with one or more seeds.

    Attributes:
        config: path of its file.
        options: overrides of it, 'KEY=VALUE'.
        digest: of what it trains, to notice changes.
        factors: of the training protocol and architecture that are on.
        group: digest of all but the factors: conditions that share it differ in factors alone.
        length: of the run, in epochs or iterations.
        unit: 'epoch' or 'iteration'.
        seeds: planned.
    """
    config: str
    options: list[str]
    digest: str
    factors: list[str]
    group: str
    length: int
    unit: str
    seeds: list[int] = field(default_factory=list)


class Point(NamedTuple):
    """One measurement of a run."""
    epoch: int
    step: int
    locality: Locality


@dataclass
class Run:
    """What one run left so far.

    Attributes:
        state: 'done', 'failed', 'unfinished' or 'not run'.
        curve: measurements by step, ascending.
        scores: of the validation, by epoch or iteration.
        reason: of a failure.
    """
    condition: str
    seed: int
    state: str
    curve: list[Point]
    scores: dict[int, float]
    reason: str = ''

    def measures(self) -> dict[str, float | None]:
        """The numbers of its last measurement and validation; None for what there is not."""
        score = self.scores[max(self.scores)] if self.scores else None
        return {'score': score, **(
            point_measures(self.curve[-1].locality) if self.curve else dict.fromkeys(MEASURES))}


@dataclass
class Study:
    """The plan of a study.

    Attributes:
        folder: of the plan and the work dirs.
        metric: name of the validation's score, as mmengine logs it.
        conditions: by name, in the order of the tables.
    """
    folder: Path
    metric: str
    conditions: dict[str, Condition]

    @classmethod
    def read(cls, folder: Path) -> 'Study':
        """Read the plan.

        Raises:
            ValueError: if there is none, or it is broken.
        """
        path = folder / PLAN
        if not path.is_file():
            raise ValueError(f'{folder} holds no study ({PLAN} is missing): give its configs to '
                             'begin one, or the folder of one')
        try:
            plan = json.loads(path.read_text())
            return cls(folder, plan['metric'], {
                name: Condition(**values) for name, values in plan['conditions'].items()})
        except (json.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f'{path} is no plan of a study ({error!r}): it was edited or made by '
                             'something else') from error

    def write(self) -> None:
        """Write the plan."""
        write_json(self.folder / PLAN, dict(metric=self.metric, conditions={
            name: asdict(condition) for name, condition in self.conditions.items()}))

    def work_dir(self, condition: str, seed: int) -> Path:
        """Of a run."""
        return self.folder / condition / f'seed{seed}'

    def runs(self) -> list[Run]:
        """What each planned run left so far."""
        return [read_run(self.work_dir(name, seed), name, seed, self.metric)
                for name, condition in self.conditions.items() for seed in condition.seeds]


def read_run(work_dir: Path, condition: str, seed: int, metric: str) -> Run:
    """What a run left in its work dir so far."""
    points = {line['iter']: Point(line['epoch'], line['iter'], Locality.from_dict(line))
              for line in json_lines(work_dir / 'locality.jsonl')}
    curve = [points[step] for step in sorted(points)]
    scores = read_scores(work_dir, metric)
    failed = work_dir / 'failed'
    if (work_dir / 'finished').is_file():
        state = 'done'
    elif failed.is_file():
        state = 'failed'
    else:
        state = 'unfinished' if curve or scores else 'not run'
    return Run(condition, seed, state, curve, scores,
               failed.read_text() if state == 'failed' else '')


def read_scores(work_dir: Path, metric: str) -> dict[int, float]:
    """A metric of each validation that mmengine logged in a work dir, by epoch or iteration, of
    resumed runs the later."""
    return {line['step']: line[metric] for log in sorted(work_dir.glob('*/vis_data/scalars.json'))
            for line in json_lines(log) if metric in line}


def json_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The objects in a file of one a line; what a killed run left of a line is passed over."""
    for line in path.read_text().splitlines() if path.is_file() else ():
        try:
            yield json.loads(line)
        except json.JSONDecodeError:
            continue


def point_measures(locality: Locality) -> dict[str, float]:
    """Few numbers for one measurement, see `MEASURES`: minimum and mean over all heads."""
    distances, entropies = (
        np.array([value for layer in locality.layers for value in getattr(layer, name)])
        for name in ('distance_diagonal', 'entropy'))
    return {'min_distance': distances.min().item(), 'mean_distance': distances.mean().item(),
            'min_entropy': entropies.min().item(), 'mean_entropy': entropies.mean().item()}
