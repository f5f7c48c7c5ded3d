"""The runs of a study put together: conditions, effects of factors, where curves part."""
import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from .study_results import MEASURES, Run, Study, point_measures
from .study_statistics import (Cell, Estimate, Factorial, Parting, bootstrap_mean, cell_name,
                               effects_over_seeds, full_factorials, missing_cells, part,
                               seeds_in_all)

# Curves of minimum distance part at the first; the others tell how far.
RATIOS = (1.25, 2., 3.)
Partings = dict[tuple[str, str], dict[float, Parting]]


def labels(names: Sequence[str]) -> dict[str, str]:
    """The names without the words, parted by '_', that all of them have."""
    words = [name.split('_') for name in names]
    short = ['_'.join(word for word in of_one if any(word not in other for other in words))
             for of_one in words]
    return dict(zip(names, short if len(set(short)) == len(names) > 1 and all(short) else names))


def shown_runs(runs: Iterable[Run]) -> list[Run]:
    """The finished ones of a condition's runs; without any, those that were measured so far."""
    measured = [run for run in runs if run.curve]
    return [run for run in measured if run.state == 'done'] or measured


def estimates(runs: Sequence[Run]) -> dict[str, Estimate | None]:
    """Score and measures of a condition's shown runs, with intervals."""
    result = {}
    for name in ('score', *MEASURES):
        values = [value for run in runs if (value := run.measures()[name]) is not None]
        result[name] = bootstrap_mean(values) if values else None
    return result


def states(runs: Sequence[Run], length: int, unit: str) -> str:
    """How far a condition's runs are, a line for each state."""
    parts = []
    for state in ('done', 'unfinished', 'failed', 'not run'):
        of_state = [run for run in runs if run.state == state]
        if not of_state:
            continue
        text = state if len(runs) == 1 else f'{len(of_state)} {state}'
        reached = [(run.curve[-1].epoch if unit == 'epoch' else run.curve[-1].step)
                   for run in of_state if run.curve]
        if reached and state in ('unfinished', 'failed'):
            text += f'\n({unit} {", ".join(map(str, reached))} of {length})'
        parts.append(text)
    return '\n'.join(parts)


def varying_factors(study: Study, names: Iterable[str]) -> list[str]:
    """The factors that are on in some of the conditions and off in others."""
    on = [set(study.conditions[name].factors) for name in names]
    return sorted(set.union(*on) - set.intersection(*on), key=str.lower)


def groups(study: Study) -> list[list[str]]:
    """The conditions that differ in factors alone, in groups of two or more."""
    by_group: dict[str, list[str]] = {}
    for name, condition in study.conditions.items():
        by_group.setdefault(condition.group, []).append(name)
    return [names for names in by_group.values() if len(names) > 1]


class FactorAnalysis:
    """The factors in a group of conditions, from finished runs.

    Args:
        study: the plan.
        names: of the conditions of the group.
        runs: of the whole study.

    Attributes:
        factors: that vary.
        missing: cells of the full factorial in which no run is done, by the factors on.
        factorials: the largest full ones in what is done.
    """

    def __init__(self, study: Study, names: Sequence[str], runs: Iterable[Run]) -> None:
        self.names = names
        self.factors = varying_factors(study, names)
        self._runs: dict[Cell, list[Run]] = {}
        for run in runs:
            if run.condition in names and run.state == 'done':
                cell = frozenset(study.conditions[run.condition].factors) & set(self.factors)
                self._runs.setdefault(cell, []).append(run)
        self.missing = missing_cells(self._runs, self.factors)
        self.factorials = full_factorials(self._runs, self.factors)

    def responses(self, factorial: Factorial, measure: str) -> dict[Cell, dict[int, float]]:
        """A measure by seed in each cell of a factorial."""
        return factorial.responses({
            cell: {run.seed: value for run in runs
                   if (value := run.measures()[measure]) is not None}
            for cell, runs in self._runs.items()})

    def effects(self, factorial: Factorial, measure: str) -> dict[tuple[str, ...], Estimate]:
        """Main effects and interactions; none without a seed that all cells have."""
        responses = self.responses(factorial, measure)
        return effects_over_seeds(responses, factorial.factors) if seeds_in_all(responses) else {}

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return dict(conditions=list(self.names), factors=self.factors,
                    missing=[cell_name(cell) for cell in self.missing], factorials=[
            dict(factors=factorial.factors, held_on=sorted(factorial.held_on), effects={
                measure: {' x '.join(about): estimate._asdict() for about, estimate
                          in self.effects(factorial, measure).items()}
                for measure in ('score', *MEASURES)}) for factorial in self.factorials])


def minimum_curves(study: Study, runs: Iterable[Run]) -> dict[str, dict[int, list[float]]]:
    """Minimum distance by step, one value a seed, of every run of each condition."""
    curves: dict[str, dict[int, list[float]]] = {name: {} for name in study.conditions}
    for run in runs:
        for point in run.curve:
            curves[run.condition].setdefault(point.step, []).append(
                point.locality.min_distance_diagonal)
    return curves


def partings(study: Study, runs: Iterable[Run]) -> Partings:
    """For pairs of conditions, by each of `RATIOS`, where their minimum distances part; pairs of
    the first condition with each other one, and those of a group that differ in one factor."""
    curves, result = minimum_curves(study, runs), {}
    names = list(study.conditions)
    for number, first in enumerate(names):
        for second in names[number + 1:]:
            one, other = study.conditions[first], study.conditions[second]
            neighbours = one.group == other.group and len(
                set(one.factors) ^ set(other.factors)) == 1
            if (number == 0 or neighbours) and curves[first].keys() & curves[second].keys():
                result[first, second] = {
                    ratio: part(curves[first], curves[second], ratio) for ratio in RATIOS}
    return result


def write_csv(study: Study, runs: Sequence[Run]) -> None:
    """runs.csv, a row a run; curves.csv, a row a measurement; heads.csv, a row a head at the last
    measurement."""
    _write(study.folder / 'runs.csv', ('condition', 'factors', 'seed', 'state', 'step', 'score',
                                       *MEASURES),
           ((run.condition, ' + '.join(study.conditions[run.condition].factors), run.seed,
             run.state, run.curve[-1].step if run.curve else None, *run.measures().values())
            for run in runs))
    _write(study.folder / 'curves.csv', ('condition', 'seed', 'epoch', 'step', *MEASURES),
           ((run.condition, run.seed, point.epoch, point.step,
             *point_measures(point.locality).values()) for run in runs for point in run.curve))
    _write(study.folder / 'heads.csv', ('condition', 'seed', 'step', 'layer', 'head', 'distance',
                                        'entropy'),
           ((run.condition, run.seed, run.curve[-1].step, layer.depth, head, *values)
            for run in runs if run.curve for layer in run.curve[-1].locality.layers
            for head, values in enumerate(zip(layer.distance_diagonal, layer.entropy))))


def _write(path: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    with open(path, 'w', newline='') as file:
        csv.writer(file).writerows([header, *rows])
