"""What a study reads from the work dirs of its runs."""
import json
import math

import pytest
from fabricated_study import finished_study, locality, plan_study, write_run

from locat_mmseg.analysis.study_results import Study, point_measures, read_scores

ONE = {'a': ['CutMix']}


def test_states_of_runs(tmp_path):
    study = plan_study(tmp_path, ONE, [0, 1, 2, 3])
    write_run(study, 'a', 0, {0: 0.4, 40: 0.1}, 50.)
    write_run(study, 'a', 1, {0: 0.4, 20: 0.3}, None, state='')
    write_run(study, 'a', 2, {0: 0.4}, None, state='failed')
    runs = study.runs()
    assert [(run.seed, run.state) for run in runs] == [
        (0, 'done'), (1, 'unfinished'), (2, 'failed'), (3, 'not run')]
    assert [run.reason for run in runs] == ['', '', 'error: it broke', '']
    assert runs[0].scores == {4: 50.}
    assert [(point.epoch, point.step) for point in runs[1].curve] == [(0, 0), (2, 20)]
    assert runs[3].measures() == dict.fromkeys(
        ('score', 'min_distance', 'mean_distance', 'min_entropy', 'mean_entropy'))
    assert runs[0].measures() == pytest.approx(dict(
        score=50., min_distance=0.1, mean_distance=0.155, min_entropy=0.2, mean_entropy=0.31))


def test_measures_of_a_diverged_model():
    diverged = locality(0.2)
    diverged.layers[1].distance_diagonal[0] = math.nan
    values = point_measures(diverged)
    assert math.isnan(values['min_distance']) and values['min_entropy'] == pytest.approx(0.4)


def test_lines_cut_off_and_repeated_by_a_killed_run(tmp_path):
    study = plan_study(tmp_path, ONE, [0])
    write_run(study, 'a', 0, {0: 0.4, 20: 0.3}, 20.)
    folder = study.work_dir('a', 0)
    with open(folder / 'locality.jsonl', 'a') as file:
        file.write(json.dumps(dict(epoch=2, iter=20, **locality(0.25).to_dict())) + '\n{"epoch": 3')
    later = folder / '20260102/vis_data'
    later.mkdir(parents=True)
    (later / 'scalars.json').write_text('{"accuracy/top1": 30.0, "step": 2}\n'
                                        '{"accuracy/top1": 40.0, "step": 4}\n{"accuracy/to')
    run, = study.runs()
    assert [point.locality.min_distance_diagonal for point in run.curve] == [0.4, 0.25]
    assert read_scores(folder, 'accuracy/top1') == {2: 30., 4: 40.}
    assert read_scores(folder, 'mIoU') == {}


def test_plan_is_read_as_written(tmp_path):
    study = finished_study(tmp_path, [0], ONE)
    assert Study.read(tmp_path) == study
    assert not list(tmp_path.glob('*.partial'))


def test_no_plan_and_a_broken_one(tmp_path):
    with pytest.raises(ValueError, match='holds no study .*: give its configs to begin one'):
        Study.read(tmp_path)
    for text in ('{', '{"metric": "a"}', '{"metric": "a", "conditions": {"b": {"c": 1}}}', '[]'):
        (tmp_path / 'study.json').write_text(text)
        with pytest.raises(ValueError, match='study.json is no plan of a study'):
            Study.read(tmp_path)
