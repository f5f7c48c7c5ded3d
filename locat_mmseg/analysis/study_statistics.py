"""Statistics of a study over seeds: intervals, the effects of factors, where two curves part.

A cell of a factorial is named by the set of factors that are on in it.
"""
from collections.abc import Collection, Mapping, Sequence
from itertools import chain, combinations
from typing import NamedTuple

import numpy as np

Cell = frozenset[str]


class Estimate(NamedTuple):
    """A mean over seeds with its interval; bounds are None for a single seed."""
    mean: float
    low: float | None
    high: float | None
    count: int


def bootstrap_mean(values: Sequence[float], level: float = 0.95, resamples: int = 10_000
                   ) -> Estimate:
    """Mean and percentile bootstrap interval (Efron, 1979), the same at each call.

    Over few seeds it is too narrow: never wider than the range of the values.

    Args:
        values: one a seed.
        level: probability that the interval is to cover.
        resamples: number of samples drawn with replacement.

    Raises:
        ValueError: without values.
    """
    if not len(values):
        raise ValueError('bootstrap_mean got no values: give one a seed')
    values = np.asarray(values, dtype=float)
    if len(values) == 1:
        return Estimate(values[0].item(), None, None, 1)
    drawn = np.random.default_rng(0).choice(values, (resamples, len(values)))
    low, high = np.quantile(drawn.mean(1), [(1 - level) / 2, (1 + level) / 2])
    return Estimate(values.mean().item(), low.item(), high.item(), len(values))


def subsets(factors: Sequence[str]) -> list[tuple[str, ...]]:
    """All subsets, smaller ones first."""
    return list(chain.from_iterable(combinations(factors, size)
                                    for size in range(len(factors) + 1)))


def missing_cells(cells: Collection[Cell], factors: Sequence[str]) -> list[Cell]:
    """The cells that a full factorial of these factors has and ``cells`` has not."""
    return [cell for cell in map(frozenset, subsets(factors)) if cell not in cells]


class Factorial(NamedTuple):
    """Cells that cross some factors fully, with the others held.

    Attributes:
        factors: that vary.
        held_on: that are on in all of its cells; all others are off.
    """
    factors: tuple[str, ...]
    held_on: Cell

    def cells(self) -> set[Cell]:
        """All of its cells."""
        return {self.held_on.union(varying) for varying in subsets(self.factors)}

    def responses(self, cells: Mapping[Cell, Mapping[int, float]]
                  ) -> dict[Cell, Mapping[int, float]]:
        """Its own among more cells, named by the factors that vary."""
        return {cell - self.held_on: cells[cell] for cell in self.cells()}


def full_factorials(cells: Collection[Cell], factors: Sequence[str]) -> list[Factorial]:
    """The largest full factorials in what may be an incomplete one; none within another."""
    found: list[Factorial] = []
    for varying in reversed(subsets(factors)[1:]):
        for held in subsets([factor for factor in factors if factor not in varying]):
            candidate = Factorial(varying, frozenset(held))
            wanted = candidate.cells()
            if wanted <= set(cells) and not any(wanted <= other.cells() for other in found):
                found.append(candidate)
    return found


def factorial_effects(cells: Mapping[Cell, float], factors: Sequence[str]
                      ) -> dict[tuple[str, ...], float]:
    """Main effects and interactions of a full two-level factorial.

    A main effect is the mean where the factor is on less the mean where it is off. An interaction
    is half of the difference that switching on one factor makes to the effect of the others: for
    two factors, half of the effect of one where the other is on less its effect where that is off.

    Args:
        cells: the response in each cell.
        factors: k names.

    Returns:
        2^k - 1 effects by the factors that they are about, main effects first.

    Raises:
        ValueError: if cells are missing.
    """
    missing = missing_cells(cells, factors)
    if missing:
        raise ValueError(f'{len(missing)} of {2 ** len(factors)} cells are missing: '
                         f'{", ".join(map(cell_name, missing))}')
    everything = list(map(frozenset, subsets(factors)))
    return {about: sum(_sign(cell, about) * cells[cell] for cell in everything)
            / (len(everything) / 2) for about in subsets(factors)[1:]}


def _sign(cell: Cell, about: Sequence[str]) -> int:
    """The product of +1 for each factor that is on and -1 for each that is off."""
    return (-1) ** sum(factor not in cell for factor in about)


def effects_over_seeds(cells: Mapping[Cell, Mapping[int, float]], factors: Sequence[str]
                       ) -> dict[tuple[str, ...], Estimate]:
    """Effects with intervals over seeds. A seed gives all cells the same initial weights: effects
    are taken within each seed that all cells have.

    Args:
        cells: the response by seed in each cell.
        factors: k names.

    Raises:
        ValueError: if cells are missing, or there is no seed that all of them have.
    """
    seeds = seeds_in_all(cells)
    if not seeds:
        raise ValueError('no seed is in all cells: effects are differences within a seed')
    each = [factorial_effects({cell: values[seed] for cell, values in cells.items()}, factors)
            for seed in seeds]
    return {about: bootstrap_mean([effects[about] for effects in each]) for about in each[0]}


def seeds_in_all(cells: Mapping[Cell, Mapping[int, float]]) -> list[int]:
    """The seeds that every cell has."""
    return sorted(set.intersection(*(set(values) for values in cells.values())) if cells else ())


def cell_name(cell: Collection[str]) -> str:
    """The factors that are on."""
    return ' + '.join(sorted(cell, key=str.lower)) or 'none on'


class Parting(NamedTuple):
    """Where two curves part.

    Attributes:
        last_step: the last one that both have.
        ratio: there, the larger mean over the smaller.
        step: from here to the last step they are apart; None if they are not.
    """
    last_step: int
    ratio: float
    step: int | None


def part(first: Mapping[int, Sequence[float]], second: Mapping[int, Sequence[float]],
         ratio: float) -> Parting | None:
    """Find the step from which on two curves stay apart.

    Apart: the larger mean is at least ``ratio`` times the smaller, and every seed of the one lies
    above every seed of the other, on the same side up to the last common step.

    Args:
        first: values, not negative, one a seed, by step.
        second: the same.
        ratio: above 1.

    Returns:
        None if they have no step in common.
    """
    steps = sorted(first.keys() & second.keys())
    if not steps:
        return None
    last = steps[-1]
    low, high = sorted((first, second), key=lambda curve: np.mean(curve[last]))
    since = None
    for step in reversed(steps):
        if not (np.mean(high[step]) >= ratio * np.mean(low[step])
                and min(high[step]) > max(low[step])):
            break
        since = step
    smaller = np.mean(low[last])
    return Parting(last, float(np.mean(high[last]) / smaller) if smaller else np.inf, since)
