"""The report of a study whose numbers are known: tables, effects, what is missing, files."""
import csv
import json
import math
import re

import pytest
from fabricated_study import EIGHT, FACTORS, finished_study, plan_study, write_run

from locat_mmseg.analysis.study_plots import plot_curves, plot_points, pooled, style
from locat_mmseg.analysis.study_report import condition_rows, write_report
from locat_mmseg.analysis.study_summary import FactorAnalysis, labels, partings

CUTMIX = 'vit_cutmix_cifar100'


def rows_of(path) -> list[dict]:
    with open(path, newline='') as file:
        return list(csv.DictReader(file))


def page_of(study) -> str:
    """The text of the page: entities and tags as a reader sees them."""
    write_report(study)
    text = (study.folder / 'locality_study.html').read_text(encoding='utf-8')
    assert not re.search(r'(src|href)="(?!data:)', text)  # asks nothing of the network
    return text.replace('<wbr>', '')


def test_full_factorial_over_seeds(tmp_path):
    study = finished_study(tmp_path, [0, 1, 2])
    table = write_report(study)
    assert re.search(r'cutmix +– +on +– +3 done +40 +47.000 \[46.000, 48.000\] +0.102 ', table)
    summary = json.loads((tmp_path / 'summary.json').read_text())
    analysis, = summary['factor_analyses']
    assert analysis['factors'] == list(FACTORS) and analysis['missing'] == []
    effects = analysis['factorials'][0]['effects']
    means = {about: estimate['mean'] for about, estimate in effects['score'].items()}
    assert means == pytest.approx({  # 6 less half of the 2 that both lose together
        'AutoAugment': 5., 'CutMix': 5., 'label smoothing': 0., 'AutoAugment x CutMix': -1.,
        'AutoAugment x label smoothing': 0., 'CutMix x label smoothing': 0.,
        'AutoAugment x CutMix x label smoothing': 0.})
    cutmix = effects['min_distance']['CutMix']
    assert (cutmix['mean'], cutmix['low'], cutmix['high']) == pytest.approx((-0.3, -0.3, -0.3))
    estimate = summary['conditions'][CUTMIX]['estimates']['min_distance']
    assert estimate == dict(mean=pytest.approx(0.102), low=pytest.approx(0.1),
                            high=pytest.approx(0.104), count=3)
    assert summary['conditions'][CUTMIX]['runs']['1'] == dict(
        state='done', reason='', step=40, score=47., min_distance=pytest.approx(0.102),
        mean_distance=pytest.approx(0.157), min_entropy=pytest.approx(0.204),
        mean_entropy=pytest.approx(0.314))


def test_page_of_the_full_factorial(tmp_path):
    text = page_of(finished_study(tmp_path, [0, 1]))
    assert text.count('<img') == 4 + 8  # comparisons, and a panel a condition
    for part in ('<caption><span>Full factorial</span></caption>', 'no-label-smoothing: every '
                 'head of 2 runs', 'AutoAugment x CutMix x label smoothing',
                 'From baseline part: cutmix at step 20 (ratio 3.97 at step 40)',
                 'do not part: autoaugment (up to step 40; ratio 1.00 at step 40)',
                 '0.100 to 0.102 with CutMix (runs: 8), 0.400 to 0.402 without CutMix (runs: 8)',
                 'renormalised', 'at most 0.024'):
        assert part in text, part
    assert 'without a finished run' not in text


def test_nothing_run_is_printed_as_not_run(tmp_path):
    study = plan_study(tmp_path, EIGHT, [0])
    text = page_of(study)
    assert text.count('<td>not run</td>') == 8 and '<img' not in text
    assert 'no two conditions measured at a same step' in text
    assert 'the full 2^3 factorial without a finished run, 8 of 8: none on;' in text
    assert 'there are no effects' in text


def test_a_part_is_run(tmp_path):
    study = plan_study(tmp_path, EIGHT, [0, 1])
    write_run(study, 'vit_baseline_cifar100', 0, {0: 0.4, 20: 0.4, 40: 0.39}, 40.)
    write_run(study, CUTMIX, 0, {0: 0.4, 20: 0.38, 40: 0.37}, 46.)
    write_run(study, CUTMIX, 1, {0: 0.4, 20: 0.37}, 30., state='')
    write_run(study, 'vit_modern_cifar100', 0, {0: 0.4, 20: 0.1}, 20., state='failed')
    text = page_of(study)
    for part in ('<td>1 done\n1 not run</td>', '<td>1 done\n1 unfinished\n(epoch 2 of 4)</td>',
                 '<td>1 failed\n(epoch 2 of 4)\n1 not run</td>', '<td>2 not run</td>',
                 '6 of 8: AutoAugment; label smoothing; AutoAugment + CutMix;',
                 'With AutoAugment off, label smoothing off', '<td>CutMix</td><td>1</td>',
                 'do not part: cutmix (up to step 40; ratio 1.05 at step 40)',
                 'part: modern at step 20 (ratio 4.00 at step 20)',
                 'vit_modern_cifar100, seed 0: error: it broke'):
        assert part in text, part
    header, rows = condition_rows(study, study.runs())
    by_name = {row[0]: dict(zip(header, row)) for row in rows}
    # Unfinished runs count only where nothing is finished.
    assert by_name['cutmix']['minimum distance'] == '0.370'
    assert by_name['modern']['minimum distance'] == '0.100'
    assert by_name['modern']['accuracy/top1'] == '20.000'
    assert by_name['no-cutmix']['minimum distance'] is None


def test_seeds_that_not_all_conditions_have(tmp_path):
    study = plan_study(tmp_path, {'a': [], 'b': ['CutMix']}, [0, 1])
    write_run(study, 'a', 0, {40: 0.4}, 40.)
    write_run(study, 'b', 1, {40: 0.1}, 50.)
    assert 'Full factorial: no seed is finished in all 2 conditions.' in page_of(study)


def test_groups_are_analysed_apart(tmp_path):
    study = finished_study(tmp_path, [0], {'a_x': [], 'b_x': ['CutMix'], 'a_y': [],
                                           'b_y': ['CutMix'], 'c_z': ['LocAt']})
    for name, group in (('a_y', 'two'), ('b_y', 'two'), ('c_z', 'three')):
        study.conditions[name].group = group
    text = page_of(study)
    assert 'Effects of CutMix (a_x, b_x)' in text and 'Effects of CutMix (a_y, b_y)' in text
    assert set(partings(study, study.runs())) == {
        ('a_x', other) for other in ('b_x', 'a_y', 'b_y', 'c_z')} | {('a_y', 'b_y')}


def test_locat_is_a_fourth_factor(tmp_path):
    both = {**EIGHT, 'locatvit_cutmix_cifar100': ['CutMix', 'LocAt']}
    study = finished_study(tmp_path, [0], both)
    analysis = FactorAnalysis(study, list(both), study.runs())
    assert len(analysis.missing) == 7
    assert [(found.factors, found.held_on) for found in analysis.factorials] == [
        (FACTORS, frozenset()), (('LocAt', ), frozenset({'CutMix'}))]


def test_csv_files(tmp_path):
    study = finished_study(tmp_path, [0, 1], {'a': [], 'b': ['CutMix']})
    study.conditions['b'].seeds.append(2)
    write_report(study)
    runs = rows_of(tmp_path / 'runs.csv')
    assert [(row['condition'], row['seed'], row['state'], row['step']) for row in runs] == [
        ('a', '0', 'done', '40'), ('a', '1', 'done', '40'), ('b', '0', 'done', '40'),
        ('b', '1', 'done', '40'), ('b', '2', 'not run', '')]
    assert runs[2]['factors'] == 'CutMix' and float(runs[2]['score']) == 46
    curves = rows_of(tmp_path / 'curves.csv')
    assert len(curves) == 4 * 4
    assert [float(row['min_distance']) for row in curves[8:12]] == [0.41, 0.4, 0.25, 0.1]
    heads = rows_of(tmp_path / 'heads.csv')
    assert len(heads) == 4 * 2 * 2
    assert [float(heads[11][name]) for name in ('layer', 'head', 'distance', 'entropy')] == \
        pytest.approx([1, 1, 0.21, 0.42])


def test_a_diverged_run_leaves_a_report(tmp_path):
    study = plan_study(tmp_path, {'a': [], 'b': ['CutMix']}, [0])
    write_run(study, 'a', 0, {0: 0.4, 40: 0.4}, 40.)
    write_run(study, 'b', 0, {0: 0.4, 40: math.nan}, 1.)
    assert 'do not part: b (up to step 40; ratio nan at step 40)' in page_of(study)
    summary = json.loads((tmp_path / 'summary.json').read_text())
    assert summary['conditions']['b']['runs']['0']['min_distance'] is None


def test_labels():
    assert labels(['vit_a_x', 'vit_b_x']) == {'vit_a_x': 'a', 'vit_b_x': 'b'}
    assert labels(['vit_a_x']) == {'vit_a_x': 'vit_a_x'}
    assert labels(['a', 'a_b']) == {'a': 'a', 'a_b': 'a_b'}  # one would be empty


def test_curves_are_drawn_with_their_spread():
    figure = plot_curves({'a': {0: [1., 3.], 10: [2.]}, 'none': {}, 'c': {0: [5.]}}, 'x', 'y')
    axes, = figure.axes
    assert [line.get_xydata().tolist() for line in axes.lines] == [[[0, 2], [10, 2]], [[0, 5]]]
    assert {(0, 1), (0, 3), (10, 2)} <= set(map(tuple, axes.collections[0].get_paths()[0].vertices))
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ['a', 'c']
    assert axes.lines[1].get_color() == style(2)['color']  # of its number, not of its place


def test_points_and_styles():
    axes, = plot_points({'a': [(0.1, 50.), (0.2, 60.)], 'b': []}, 'x', 'y').axes
    assert axes.lines[0].get_xydata().tolist() == [[0.1, 50], [0.2, 60]] and len(axes.lines) == 1
    assert axes.get_xlim()[0] == 0
    assert len({tuple(style(number).values()) for number in range(32)}) == 32


def test_pooled_heads_keep_their_layer(tmp_path):
    one, two = (run.curve[-1].locality for run in finished_study(
        tmp_path, [0, 1], {'a': []}).runs())
    assert pooled([one, two]).layers[1].entropy == one.layers[1].entropy + two.layers[1].entropy
    assert pooled([one, two]).layers[1].class_share is None
