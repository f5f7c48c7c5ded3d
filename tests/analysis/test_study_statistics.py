"""Statistics of a study: effects worked out by hand, intervals, where curves part."""
import itertools
import math

import numpy as np
import pytest

from locat_mmseg.analysis.study_statistics import (Estimate, Factorial, Parting, bootstrap_mean,
                                                   cell_name, effects_over_seeds,
                                                   factorial_effects, full_factorials,
                                                   missing_cells, part, subsets)

# The pilot plant of Box, Hunter and Hunter, Statistics for Experimenters: yield in the order
# none, T, C, TC, K, TK, CK, TCK, and the effects printed there.
YIELDS = dict(zip(map(frozenset, ('', 'T', 'C', 'TC', 'K', 'TK', 'CK', 'TCK')),
                  (60., 72., 54., 68., 52., 83., 45., 80.)))
EFFECTS = {('T', ): 23., ('C', ): -5., ('K', ): 1.5, ('T', 'C'): 1.5, ('T', 'K'): 10.,
           ('C', 'K'): 0., ('T', 'C', 'K'): 0.5}


def test_effects_of_a_printed_example():
    assert factorial_effects(YIELDS, 'TCK') == EFFECTS


def test_main_effect_is_a_difference_of_means_and_an_interaction_half_a_change_of_effect():
    cells = {frozenset(): 1., frozenset('A'): 4., frozenset('B'): 2., frozenset('AB'): 11.}
    assert factorial_effects(cells, 'AB') == {('A', ): 6., ('B', ): 4., ('A', 'B'): 3.}
    assert factorial_effects({frozenset(): 5., frozenset('A'): 2.}, 'A') == {('A', ): -3.}


def test_effects_of_four_factors_against_least_squares():
    values = np.random.default_rng(0).normal(size=16)
    cells = list(map(frozenset, subsets('ABCD')))
    signs = np.array([[1 if f in cell else -1 for f in 'ABCD'] for cell in cells])
    design = np.stack([np.prod(signs[:, ['ABCD'.index(f) for f in about]], 1)
                       for about in subsets('ABCD')], 1)
    coefficients = np.linalg.lstsq(design, values, rcond=None)[0]
    effects = factorial_effects(dict(zip(cells, values)), 'ABCD')
    assert list(effects.values()) == pytest.approx(list(2 * coefficients[1:]))


def test_what_is_missing_is_named():
    cells = {cell: value for cell, value in YIELDS.items() if cell not in (
        frozenset('TC'), frozenset('K'))}
    assert missing_cells(cells, 'TCK') == [frozenset('K'), frozenset('TC')]
    with pytest.raises(ValueError, match=r'2 of 8 cells are missing: K, C \+ T'):
        factorial_effects(cells, 'TCK')


def test_largest_full_parts_of_an_incomplete_factorial():
    assert full_factorials(YIELDS, 'TCK') == [Factorial(('T', 'C', 'K'), frozenset())]
    without = set(YIELDS) - {frozenset('TCK')}
    assert {(found.factors, found.held_on) for found in full_factorials(without, 'TCK')} == {
        (pair, frozenset()) for pair in itertools.combinations('TCK', 2)}
    face = {cell for cell in YIELDS if 'K' in cell} | {frozenset()}
    assert full_factorials(face, 'TCK') == [
        Factorial(('T', 'C'), frozenset('K')), Factorial(('K', ), frozenset())]
    assert full_factorials([frozenset('T'), frozenset('C')], 'TC') == []


def test_responses_of_a_part_are_named_by_what_varies():
    part_ = Factorial(('T', ), frozenset('K'))
    assert part_.responses({cell: {0: value} for cell, value in YIELDS.items()}) == {
        frozenset(): {0: 52.}, frozenset('T'): {0: 83.}}


def test_effects_are_taken_within_a_seed():
    cells = {frozenset(): {0: 1., 1: 100., 7: 0.}, frozenset('A'): {1: 104., 0: 3.}}
    assert effects_over_seeds(cells, 'A') == {('A', ): Estimate(3., 2., 4., 2)}
    with pytest.raises(ValueError, match='no seed is in all cells'):
        effects_over_seeds({frozenset(): {0: 1.}, frozenset('A'): {1: 1.}}, 'A')


def test_interval_is_that_of_all_equally_likely_samples():
    values = (1., 2., 4., 9., 3.)
    means = np.mean(list(itertools.product(values, repeat=5)), axis=1)
    estimate = bootstrap_mean(values)
    assert estimate.mean == pytest.approx(3.8) and estimate.count == 5
    assert estimate[1:3] == pytest.approx(np.quantile(means, [0.025, 0.975]), abs=0.11)
    assert estimate == bootstrap_mean(values)  # the same at each call
    wider = bootstrap_mean(values, level=0.99)
    assert wider.low < estimate.low and wider.high > estimate.high


def test_interval_of_few_values():
    assert bootstrap_mean([0.5]) == Estimate(0.5, None, None, 1)
    assert bootstrap_mean([2., 4.]) == Estimate(3., 2., 4., 2)
    assert math.isnan(bootstrap_mean([1., math.nan]).low)
    with pytest.raises(ValueError, match='got no values'):
        bootstrap_mean([])


def test_cell_name():
    assert cell_name({'label smoothing', 'LocAt', 'CutMix'}) == 'CutMix + label smoothing + LocAt'
    assert cell_name(()) == 'none on'


HIGH = {0: [0.4, 0.42], 10: [0.4, 0.4], 20: [0.39, 0.41], 30: [0.4, 0.4], 50: [0.4]}


@pytest.mark.parametrize('low, ratio, expected', [
    # apart from 20 on at 1.25, from 30 on at 2; 40 and 50 are not common
    ({0: [0.4], 10: [0.35], 20: [0.3], 30: [0.1], 40: [0.1]}, 1.25, Parting(30, 4., 20)),
    ({0: [0.4], 10: [0.35], 20: [0.3], 30: [0.1], 40: [0.1]}, 2., Parting(30, 4., 30)),
    # apart at 10, but not to the end
    ({0: [0.4], 10: [0.1], 20: [0.4], 30: [0.4]}, 1.25, Parting(30, 1., None)),
    # means far apart, but one seed of the low curve is as high
    ({20: [0.4, 0.01], 30: [0.4, 0.01]}, 1.25, Parting(30, 0.4 / 0.205, None)),
    # they change sides at 20
    ({10: [0.1], 20: [0.9], 30: [0.9]}, 1.25, Parting(30, 2.25, 20)),
    ({30: [0., 0.]}, 3., Parting(30, math.inf, 30)),
])
def test_curves_part(low, ratio, expected):
    for pair in ((HIGH, low), (low, HIGH)):
        found = part(*pair, ratio)
        assert (found.last_step, found.step) == (expected.last_step, expected.step)
        assert found.ratio == pytest.approx(expected.ratio)


def test_curves_without_a_common_step_and_of_a_diverged_model():
    assert part(HIGH, {5: [0.1]}, 2.) is None
    found = part(HIGH, {30: [math.nan]}, 2.)
    assert found.step is None and math.isnan(found.ratio)
