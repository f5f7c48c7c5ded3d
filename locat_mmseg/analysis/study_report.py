"""The report of a study: summary.json, CSV files and a page."""
import json
from collections.abc import Sequence

import numpy as np

from .locality_plots import DISTANCE_LABEL, plot_plane
from .locality_report import DEFINITIONS, WINDOWS
from .locality_results import finite
from .report import figures, heading, page, paragraph, table
from .run_record import write_whole
from .study_plots import plot_curves, plot_points, pooled
from .study_results import MEASURES, Run, Study
from .study_statistics import Estimate, Factorial, cell_name
from .study_summary import (FactorAnalysis, Partings, estimates, groups, labels, minimum_curves,
                            partings, shown_runs, states, varying_factors, write_csv)
from .tables import number, text_table

MINIMUM_LABEL = 'minimum distance / diagonal'
INTERVALS = ('In brackets: 95 % interval, percentile bootstrap over seeds; over few seeds it is '
             'too narrow. A single seed has none.')
EFFECTS = ('An effect is the mean where the factor is on less the mean where it is off; an '
           'interaction (x) is half of the change that one factor makes to the effect of the '
           'others. Finished runs only; differences are taken within a seed.')
PARTING = ('Two curves part at the first step from which on, to the last one that both have, the '
           'larger mean is at least a quarter above the smaller and every seed of the one lies '
           'above every seed of the other. The columns beside it ask the same for twice and three '
           'times as much.')
PUBLISHED = ('Published (arXiv 2605.16390), CIFAR-100 after full training: minimum distance at '
             'most 0.024 in every condition with CutMix, at least 0.210 in every one without '
             '(Baseline 0.316, Modern 0.008). How the paper normalises the distance is not known '
             'to us: the separation, about tenfold, compares, not the numbers. Where the configs '
             'come from configs/cutmix_locality, its README says what of the recipe is our '
             'choice.')


def write_report(study: Study) -> str:
    """Write summary.json, runs.csv, curves.csv, heads.csv and locality_study.html into the
    study's folder, from what its runs left so far.

    Returns:
        The table of the conditions, for a terminal, and where the page is.
    """
    runs = study.runs()
    write_csv(study, runs)
    write_whole(study.folder / 'summary.json',
                json.dumps(finite(summary(study, runs)), indent=1, allow_nan=False) + '\n')
    path = study.folder / 'locality_study.html'
    write_whole(path, study_page(study, runs))
    header, rows = condition_rows(study, runs)
    lines = [[cell and cell.replace('\n', ' ') for cell in row] for row in rows]
    return f'{text_table(header, lines)}\nwritten: {path}'


def summary(study: Study, runs: Sequence[Run]) -> dict:
    """All results, for JSON."""
    conditions = {}
    for name, condition in study.conditions.items():
        own = [run for run in runs if run.condition == name]
        conditions[name] = dict(
            config=condition.config, options=condition.options, factors=condition.factors,
            runs={run.seed: dict(state=run.state, reason=run.reason,
                                 step=run.curve[-1].step if run.curve else None, **run.measures())
                  for run in own},
            estimates={measure: estimate and estimate._asdict()
                       for measure, estimate in estimates(shown_runs(own)).items()})
    return dict(metric=study.metric, conditions=conditions, factor_analyses=[
        FactorAnalysis(study, names, runs).to_dict() for names in groups(study)], partings=[
        dict(conditions=pair, **{f'{ratio:g}': parting._asdict() for ratio, parting
                                 in found.items()})
        for pair, found in partings(study, runs).items()])


def condition_rows(study: Study, runs: Sequence[Run]) -> tuple[list[str], list[list[object]]]:
    """Header and rows of the table of conditions."""
    factors = varying_factors(study, study.conditions)
    rows = []
    for name, label in labels(list(study.conditions)).items():
        condition = study.conditions[name]
        own = [run for run in runs if run.condition == name]
        shown = shown_runs(own)
        steps = sorted({run.curve[-1].step for run in shown})
        rows.append([label, *('on' if factor in condition.factors else None for factor in factors),
                     states(own, condition.length, condition.unit),
                     ', '.join(f'{step:,}' for step in steps) or None,
                     *map(with_interval, estimates(shown).values())])
    return ['condition', *factors, 'runs', 'steps', study.metric, *MEASURES.values()], rows


def with_interval(estimate: Estimate | None) -> str | None:
    """'mean', and in a second line '[low, high]'."""
    if estimate is None:
        return None
    mean = number(estimate.mean)
    return mean if estimate.low is None else \
        f'{mean}\n[{number(estimate.low)}, {number(estimate.high)}]'


def study_page(study: Study, runs: Sequence[Run]) -> str:
    """The page of a study."""
    shown = {label: shown_runs(run for run in runs if run.condition == name)
             for name, label in labels(list(study.conditions)).items()}
    measured = [run for of_one in shown.values() for run in of_one]
    parts = [heading('Conditions'), table(*condition_rows(study, runs), caption=INTERVALS),
             paragraph('Where a condition has finished runs, these alone count in this table and '
                       'in the figures of its last measurement; else its unfinished ones do.')]
    parts += [paragraph(f'{run.condition}, seed {run.seed}: {run.reason}')
              for run in runs if run.state == 'failed']
    if measured:
        parts += [heading('Figures'), figures(comparisons(study, runs, shown)),
                  heading('Heads in the plane of distance and entropy'),
                  figures({f'{label}: every head of {len(of_one)} '
                           f'run{"s" * (len(of_one) > 1)}, coloured by layer':
                           plot_plane(pooled([run.curve[-1].locality for run in of_one]), label)
                           for label, of_one in shown.items() if of_one})]
    parts += effect_parts(study, runs)
    parts += parting_parts(study, runs)
    parts += [heading('What is measured'), paragraph(DEFINITIONS)]
    if any(layer.windowed for run in measured for layer in run.curve[-1].locality.layers):
        parts.append(paragraph(WINDOWS))
    return page('Locality study', parts)


def comparisons(study: Study, runs: Sequence[Run], shown: dict[str, list[Run]]) -> dict:
    """The figures that compare conditions, by caption."""
    by_layer: dict[str, dict[int, list[float]]] = {label: {} for label in shown}
    scores: dict[str, dict[int, list[float]]] = {label: {} for label in shown}
    names = labels(list(study.conditions))
    for label, of_one in shown.items():
        for run in of_one:
            for layer in run.curve[-1].locality.layers:
                by_layer[label].setdefault(layer.depth, []).append(
                    np.mean(layer.distance_diagonal).item())
    for run in runs:
        for place, score in run.scores.items():
            scores[names[run.condition]].setdefault(place, []).append(score)
    minimum = {names[name]: curve for name, curve in minimum_curves(study, runs).items()}
    dots = {label: [(values['min_distance'], values['score']) for run in of_one
                    if (values := run.measures())['score'] is not None]
            for label, of_one in shown.items()}
    units = ' or '.join(sorted({condition.unit for condition in study.conditions.values()}))
    drawn = {
        'Minimum distance over all layers and heads during training; bands: from the least to the '
        'greatest seed': plot_curves(minimum, 'training step', MINIMUM_LABEL),
        'Distance by layer, mean over heads, at the last measurement; bands: from the least to '
        'the greatest seed': plot_curves(by_layer, 'layer', DISTANCE_LABEL),
        f'{study.metric} against minimum distance, a dot a run': plot_points(
            dots, MINIMUM_LABEL, study.metric),
    }
    if any(scores.values()):
        drawn[f'{study.metric} during training; bands: from the least to the greatest seed'] = \
            plot_curves(scores, units, study.metric)
    return drawn


def effect_parts(study: Study, runs: Sequence[Run]) -> list[str]:
    """Effects of the factors: a table for each full factorial in each group of conditions."""
    parts = []
    for names in groups(study):
        analysis = FactorAnalysis(study, names, runs)
        several = f' ({", ".join(names)})' if len(groups(study)) > 1 else ''
        parts.append(heading(f'Effects of {", ".join(analysis.factors)}{several}'))
        if analysis.missing:
            parts.append(paragraph(missing_text(analysis)))
        parts += [effect_table(analysis, factorial, study.metric)
                  for factorial in analysis.factorials]
        if analysis.factorials:
            parts.append(paragraph(f'{EFFECTS} {INTERVALS}'))
    return parts


def missing_text(analysis: FactorAnalysis) -> str:
    """What the full factorial lacks."""
    count = len(analysis.factors)
    rest = 'Below: the largest parts that are full.' if analysis.factorials else \
        'No two of the others differ in one factor alone: there are no effects.'
    return (f'Cells of the full 2^{count} factorial without a finished run, '
            f'{len(analysis.missing)} of {2 ** count}: '
            f'{"; ".join(map(cell_name, analysis.missing))}. {rest}')


def effect_table(analysis: FactorAnalysis, factorial: Factorial, metric: str) -> str:
    """The effects in one full factorial on score and measures."""
    by_measure = [analysis.effects(factorial, measure) for measure in ('score', *MEASURES)]
    held = ', '.join(f'{factor} {"on" if factor in factorial.held_on else "off"}'
                     for factor in analysis.factors if factor not in factorial.factors)
    title = f'With {held}' if held else 'Full factorial'
    rows = [[' x '.join(about), estimate.count,
             *(with_interval(effects.get(about)) for effects in by_measure)]
            for about, estimate in by_measure[0].items()]
    if not rows:
        return paragraph(f'{title}: no seed is finished in all {2 ** len(factorial.factors)} '
                         'conditions.')
    return table(['effect', 'seeds', metric, *MEASURES.values()], rows, title)


def parting_text(study: Study, found: Partings) -> str:
    """Which conditions part from the first one, and where."""
    names = labels(list(study.conditions))
    reference = next(iter(study.conditions))
    apart, together = [], []
    for (first, second), by_ratio in found.items():
        parting = by_ratio[min(by_ratio)]
        if first == reference:
            ratio = f'ratio {parting.ratio:.2f} at step {parting.last_step:,}'
            if parting.step is None:
                together.append(f'{names[second]} (up to step {parting.last_step:,}; {ratio})')
            else:
                apart.append(f'{names[second]} at step {parting.step:,} ({ratio})')
    sentences = [f'From {names[reference]} part: {"; ".join(apart)}.' if apart else '',
                 f'From {names[reference]} do not part: {"; ".join(together)}.' if together else '']
    return ' '.join(filter(None, sentences))


def separation(study: Study, runs: Sequence[Run]) -> str:
    """The ranges of minimum distance with and without CutMix, over conditions and seeds."""
    texts = []
    for on, words in ((True, 'with'), (False, 'without')):
        lowest = [run.measures()['min_distance'] for name, condition in study.conditions.items()
                  if ('CutMix' in condition.factors) == on
                  for run in shown_runs(run for run in runs if run.condition == name)]
        if lowest:
            texts.append(f'{number(min(lowest))} to {number(max(lowest))} {words} CutMix '
                         f'(runs: {len(lowest)})')
    return f'Here, at the last measurement: minimum distance {", ".join(texts)}.' if texts else ''


def parting_parts(study: Study, runs: Sequence[Run]) -> list[str]:
    """Where curves of minimum distance part: in words and as a table."""
    found, names = partings(study, runs), labels(list(study.conditions))
    parts = [heading('Where the curves of minimum distance part')]
    if not found:
        return [*parts, paragraph('There are no two conditions measured at a same step yet.')]
    parts.append(paragraph(parting_text(study, found)))
    header = ['conditions', 'last common step', 'ratio there', *(
        f'apart {ratio:g}x from' for ratio in next(iter(found.values())))]
    rows = []
    for (first, second), by_ratio in found.items():
        last = by_ratio[min(by_ratio)]
        rows.append([f'{names[first]} / {names[second]}', f'{last.last_step:,}', last.ratio, *(
            'no' if one.step is None else f'{one.step:,}' for one in by_ratio.values())])
    parts += [table(header, rows), paragraph(PARTING)]
    if 'CutMix' in varying_factors(study, study.conditions):
        parts.append(paragraph(f'{separation(study, runs)} {PUBLISHED}'))
    return parts
