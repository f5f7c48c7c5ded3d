"""A study that is stopped at any moment goes on where it stopped."""
import json
import math

import numpy as np
import pytest
import torch

from locat_mmseg.analysis import measure_locality, packed_study
from locat_mmseg.analysis.compact_vit import COMPACT
from locat_mmseg.analysis.features import pooled_features
from locat_mmseg.analysis.packed_images import write_packed
from locat_mmseg.analysis.packed_study import (PRESETS, Condition, PackedStudy, Settings,
                                               conditions_of)
from locat_mmseg.analysis.protocol_training import PROTOCOLS, Recipe, normalise

CLASSES = 4
RECIPE = Recipe(epochs=4, warmup_epochs=1, batch_size=8)
VIT, LOCAT = Condition('vit', 'baseline', 0), Condition('locatvit', 'modern', 0)


class Killed(Exception):
    pass


@pytest.fixture(autouse=True)
def tiny_sizes(monkeypatch):
    for key, value in dict(embed_dim=24, depth=2, num_heads=3).items():
        monkeypatch.setitem(COMPACT, key, value)


@pytest.fixture
def data(tmp_path):
    """Grey levels tell the class: 20 training and 10 test images."""
    def split(count):
        labels = np.arange(count) % CLASSES
        noise = np.random.default_rng(count).integers(0, 30, (count, 32, 32, 3))
        return (noise + 60 * labels[:, None, None, None]).astype(np.uint8), labels
    write_packed(tmp_path / 'data.npz', dict(train=split(20), test=split(10)), 'abcd')
    return tmp_path / 'data.npz'


@pytest.fixture
def study(data, tmp_path):
    """Opens a study in a work dir of tmp_path."""
    def open_study(work_dir='run', locality=True, frozen=False, points=2, **kwargs):
        settings = Settings('data.npz', RECIPE, locality, frozen, points, **kwargs)
        return PackedStudy(data, tmp_path / work_dir, settings, torch.device('cpu'), False,
                           dict(machine='this one'))
    return open_study


def without_seconds(results):
    rows = json.loads(json.dumps(results['conditions']))
    return {name: {**row, 'seconds': None} for name, row in rows.items()}


def test_presets_begin_as_they_should():
    protocols = PRESETS['protocols']
    assert protocols.protocols[:2] == ('baseline', 'cutmix') and len(protocols.protocols) == 8
    assert set(protocols.protocols) == set(PROTOCOLS) and protocols.architectures == ('vit', )
    assert PRESETS['architectures'].architectures == (
        'vit', 'locatvit', 'vit-gaug', 'vit-prr', 'regvit')
    assert [*map(str, conditions_of(['vit', 'locatvit'], ['cutmix', 'modern'], [0, 1]))][:5] == [
        'vit_cutmix_seed0', 'locatvit_cutmix_seed0', 'vit_modern_seed0', 'locatvit_modern_seed0',
        'vit_cutmix_seed1']


def test_curve_and_files(study, tmp_path):
    results = study(locality_images=4).run([VIT])
    assert results == json.loads((tmp_path / 'run/results.json').read_text())
    row = results['conditions']['vit_baseline_seed0']
    assert row['finished'] and row['seconds'] > 0 and results['not_begun'] == []
    assert [(p['epoch'], p['step']) for p in row['curve']] == [(0, 0), (2, 4), (4, 8)]
    assert row['curve'][0]['train_loss'] is None
    assert row['curve'][2]['train_loss'] < row['curve'][1]['train_loss'] < 2
    assert results['settings']['images'] == dict(train=20, test=10)
    assert results['runs'][0]['machine'] == 'this one' and 'torch' in results['runs'][0]
    assert {path.name for path in (tmp_path / 'run').iterdir()} == {
        'results.json', 'table.md', 'vit_baseline_seed0.pth'}


def test_last_point_measures_the_weights_that_are_kept(study, tmp_path):
    ours = study(locality_images=4)
    last = ours.run([LOCAT])['conditions'][str(LOCAT)]['curve'][-1]
    model = packed_study.build_compact_vit(CLASSES, gaug=True, prr=True)
    model.load_state_dict(torch.load(tmp_path / f'run/{LOCAT}.pth', weights_only=True))
    model.eval()
    images = normalise(ours.test.images)
    hits = (model(images).argmax(1) == ours.test.labels).float().mean().item()
    assert last['top1'] == pytest.approx(100 * hits)
    locality = measure_locality(model, [images[[0, 2, 5, 7]]])  # four, evenly spaced
    for found, wanted in zip(last['locality']['layers'], locality.to_dict()['layers']):
        assert found['distance_diagonal'] == pytest.approx(wanted['distance_diagonal'])
        assert found['entropy'] == pytest.approx(wanted['entropy'])
    assert last['locality']['num_images'] == 4


def test_frozen_features_are_scored(study, monkeypatch):
    monkeypatch.setattr(packed_study, 'NEIGHBOURS', 3)
    ours = study(frozen=True, locality=False)
    row = ours.run([LOCAT])['conditions'][str(LOCAT)]
    assert 'locality' not in row['curve'][0]
    model, _ = ours._models['locatvit']
    train, test = (torch.nn.functional.normalize(pooled_features(model.eval(), normalise(
        split.images))).detach() for split in (ours.train, ours.test))
    hits = 0
    for feature, label in zip(test, ours.test.labels):  # the vote, one image at a time
        cosines = train @ feature
        votes = torch.zeros(CLASSES)
        for index in cosines.argsort(descending=True)[:3]:
            votes[ours.train.labels[index]] += math.exp(cosines[index] / 0.07)
        hits += int(votes.argmax() == label)
    assert row['knn_top1'] == pytest.approx(10 * hits)
    assert row['linear_top1'] > 50 and row['linear_l2'] in packed_study.PENALTIES


def test_a_killed_study_repeats_nothing_that_is_written(study, monkeypatch):
    """Killed in the third epoch of the second condition, after its measures at the second."""
    wanted = study('whole').run([VIT, LOCAT])
    epochs, run_epoch = [], packed_study.ProtocolTraining.run_epoch

    def dying(training, deadline):
        if len(epochs) == 7:
            epochs.append('killed')
            raise Killed
        epochs.append(training.epoch)
        return run_epoch(training, deadline)

    monkeypatch.setattr(packed_study.ProtocolTraining, 'run_epoch', dying)
    with pytest.raises(Killed):
        study().run([VIT, LOCAT])
    del epochs[8:]
    found = study().run([VIT, LOCAT])
    assert epochs == [0, 1, 2, 3, 0, 1, 2, 'killed', 2, 3]
    assert without_seconds(found) == without_seconds(wanted)
    assert len(found['runs']) == 2


def test_time_is_up_in_the_middle(study, monkeypatch, tmp_path):
    """After six epochs: the first condition is finished, the second at its first point."""
    run_epoch, left = packed_study.ProtocolTraining.run_epoch, [0.] * 6

    def until(training, deadline):
        return run_epoch(training, math.inf) if left and not left.pop() else None

    with monkeypatch.context() as patch:
        patch.setattr(packed_study.ProtocolTraining, 'run_epoch', until)
        results = study().run([VIT, LOCAT])
    assert [row['finished'] for row in results['conditions'].values()] == [True, False]
    assert [p['epoch'] for p in results['conditions'][str(LOCAT)]['curve']] == [0, 2]
    assert (tmp_path / f'run/{LOCAT}.state.pth').is_file()
    assert without_seconds(study().run([VIT, LOCAT])) == without_seconds(
        study('whole').run([VIT, LOCAT]))


def test_nothing_begins_after_the_deadline(study):
    results = study().run([VIT, LOCAT], deadline=-math.inf)
    assert results['conditions'] == {} and results['not_begun'] == [str(VIT), str(LOCAT)]


def test_conditions_start_from_weights_of_their_seed_alone(study):
    """Not from those that the condition before has left in the same model."""
    first = study().run([VIT, VIT._replace(protocol='cutmix'), VIT._replace(seed=1)])
    starts = [row['curve'][0] for row in first['conditions'].values()]
    assert starts[0] == starts[1] != starts[2]
    alone = study('alone').run([VIT._replace(protocol='cutmix')])
    assert without_seconds(alone)['vit_cutmix_seed0'] == without_seconds(first)['vit_cutmix_seed0']


def test_a_model_is_compiled_once(study, monkeypatch):
    compiled = []
    monkeypatch.setattr(torch, 'compile', lambda model, dynamic: compiled.append(dynamic) or model)
    ours = study()
    ours.compiled = True
    ours.run([VIT, VIT._replace(protocol='cutmix'), LOCAT])
    assert compiled == [False, False]


def test_a_diverged_model_is_written_as_such(study, monkeypatch, tmp_path):
    step = packed_study.ProtocolTraining.step

    def diverging(training, *args):
        loss = step(training, *args)
        training.model.head.weight.data.fill_(math.nan)
        training.model.blocks[0].attn.qkv.weight.data.fill_(math.nan)
        return loss * math.nan

    monkeypatch.setattr(packed_study.ProtocolTraining, 'step', diverging)
    study().run([VIT])
    last = json.loads((tmp_path / 'run/results.json').read_text())['conditions'][str(VIT)]['curve']
    assert last[-1]['train_loss'] is None
    assert last[-1]['locality']['min_distance_diagonal'] is None
    assert '| - |' in (tmp_path / 'run/table.md').read_text()


def test_other_settings_in_the_same_work_dir_are_refused(study):
    study().run([])
    with pytest.raises(ValueError, match='results.json has settings .*give the same, or another'):
        study(points=1)


@pytest.mark.parametrize('numbers', [dict(points=0), dict(points=1, locality_images=0)])
def test_settings_that_are_refused(numbers):
    with pytest.raises(ValueError, match='expected positive numbers'):
        Settings('data.npz', RECIPE, True, False, **numbers)
