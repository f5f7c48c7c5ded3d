"""Locality during training: on schedule, without effect on it, across resumption and processes."""
import json
import random
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.multiprocessing as mp
from locality_worker import SEGMENTOR, share, share_in_process
from mmengine.config import ConfigDict
from mmengine.dataset import pseudo_collate
from mmengine.runner import Runner
from tiny_models import VIT, RandomClassification, RandomSegmentation, build, classifier
from torch.utils.data import DataLoader

from locat_mmseg.analysis import measure_locality
from locat_mmseg.openmmlab.errors import UserError
from locat_mmseg.openmmlab.locality_hook import LocalityHook, keep_lines, part_of_loader

MODELS = {'mmpretrain': classifier(dict(VIT, drop_path_rate=0.5)), 'mmseg': SEGMENTOR}
HOOK = dict(type='LocalityHook', num_images=3)


class Augmented(RandomClassification):
    """Images that depend on every generator's state."""

    def __getitem__(self, index: int) -> dict:
        sample = super().__getitem__(index)
        noise = random.randrange(20) + np.random.randint(20) + int(torch.randint(20, ()))
        return dict(sample, inputs=sample['inputs'] + noise)


def runner(folder: Path, scope: str = 'mmpretrain', hooks: tuple = (HOOK, ), dataset=None,
           iterations: int = 0, epochs: int = 2, **kwargs) -> Runner:
    """A Runner of two iterations an epoch; by iterations if a number of them is given."""
    dataset = dataset or (RandomSegmentation() if scope == 'mmseg' else RandomClassification())
    loader = dict(batch_size=2, num_workers=0, dataset=dataset,
                  sampler=dict(type='DefaultSampler', shuffle=True),
                  collate_fn=dict(type='pseudo_collate'))
    by_epoch = not iterations
    return Runner(
        model=ConfigDict(MODELS[scope]), work_dir=str(folder), default_scope=scope,
        experiment_name=f'locality_{folder}', train_dataloader=loader, val_dataloader=loader,
        val_evaluator=[dict(type='DumpResults', out_file_path=str(folder / 'results.pkl'))],
        val_cfg=dict(type='ValLoop'), custom_hooks=list(hooks), randomness=dict(seed=0),
        train_cfg=dict(type='EpochBasedTrainLoop', max_epochs=epochs) if by_epoch else
        dict(type='IterBasedTrainLoop', max_iters=iterations),
        optim_wrapper=dict(type='OptimWrapper', optimizer=dict(type='AdamW', lr=1e-2)),
        log_processor=dict(by_epoch=by_epoch),
        default_hooks=dict(checkpoint=dict(type='CheckpointHook', by_epoch=by_epoch, interval=1)),
        visualizer=dict(type='Visualizer', name=str(folder),
                        vis_backends=[dict(type='LocalVisBackend')]), **kwargs)


@pytest.fixture(autouse=True)
def quick(quick_runner):
    """No survey of the machine."""


def lines(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / 'locality.jsonl').read_text().splitlines()]


def steps(folder: Path) -> list[tuple[int, int]]:
    return [(line['epoch'], line['iter']) for line in lines(folder)]


@pytest.mark.parametrize('scope', MODELS)
def test_line_log_and_visualizer_by_epoch(scope, tmp_path):
    run = runner(tmp_path, scope, epochs=3, hooks=[dict(HOOK, interval=2)])
    run.train()
    assert steps(tmp_path) == [(0, 0), (2, 4), (3, 6)]  # before, every second, last
    last = lines(tmp_path)[-1]
    assert last['num_images'] == 3
    distances = [layer['distance_diagonal'] for layer in last['layers']]
    assert [len(heads) for heads in distances] == [3, 3, 3][:len(distances)]
    assert last['min_distance_diagonal'] == min(map(min, distances))
    log, = tmp_path.rglob('*.log')
    text, = (line for line in log.read_text().splitlines() if 'after 3 epochs, 6 it' in line)
    assert f'min_distance: {last["min_distance_diagonal"]:.4f}' in text
    scalars, = tmp_path.rglob('scalars.json')
    shown = [json.loads(line) for line in scalars.read_text().splitlines() if 'locality' in line]
    assert [record['step'] for record in shown] == [0, 2, 3]
    assert shown[-1]['locality/entropy_1'] == pytest.approx(
        sum(last['layers'][1]['entropy']) / 3)


def test_values_are_those_of_the_trained_weights_on_evenly_spaced_images(tmp_path):
    run = runner(tmp_path, hooks=[dict(HOOK, num_images=2)])
    run.train()
    batch = run.model.data_preprocessor(pseudo_collate([RandomClassification()[i] for i in (0, 2)]),
                                        False)
    expected = measure_locality(run.model.backbone, [batch['inputs']]).to_dict()
    last = lines(tmp_path)[-1]
    assert {key: last[key] for key in expected} == json.loads(json.dumps(expected))


def test_by_iteration(tmp_path):
    runner(tmp_path, 'mmseg', iterations=5, hooks=[dict(HOOK, interval=2, by_epoch=False)]).train()
    assert [step for _, step in steps(tmp_path)] == [0, 2, 4, 5]


@pytest.mark.parametrize('scope, kwargs', [
    ('mmpretrain', dict(hooks=[HOOK])),
    ('mmseg', dict(hooks=[dict(HOOK, by_epoch=False)], iterations=4)),
])
def test_training_is_as_without_the_hook(scope, kwargs, tmp_path):
    """Weights, batch norm, EMA and the state of every generator, with data and drop path drawn."""
    ends = []
    for name, hooks in (('with', kwargs['hooks']), ('without', [])):
        run = runner(tmp_path / name, scope, **{**kwargs, 'hooks': [
            *hooks, dict(type='EMAHook', momentum=0.5)]},
            dataset=Augmented() if scope == 'mmpretrain' else None)
        run.train()
        average = next(h for h in run._hooks if type(h).__name__ == 'EMAHook').ema_model
        ends.append((run.model.state_dict(), average.state_dict(), torch.get_rng_state(),
                     random.getstate(), np.random.get_state()[1].tolist()))
    for with_hook, without in zip(*(end[:2] for end in ends)):
        assert with_hook.keys() == without.keys()
        assert all(torch.equal(value, without[name]) for name, value in with_hook.items())
    assert torch.equal(ends[0][2], ends[1][2])
    assert ends[0][3:] == ends[1][3:]


def test_resumed_run_has_no_line_twice(tmp_path):
    """Killed while it wrote the line of epoch 3, after its checkpoint of epoch 1."""
    whole, cut = tmp_path / 'whole', tmp_path / 'cut'
    runner(whole, epochs=4).train()
    runner(cut, epochs=2).train()
    with open(cut / 'locality.jsonl', 'a') as file:
        file.write('{"epoch": 3, "iter": 6, "num_im')
    run = runner(cut, epochs=4, resume=True, load_from=str(cut / 'epoch_1.pth'))
    run.train()
    assert steps(cut) == steps(whole) == [(0, 0), (1, 2), (2, 4), (3, 6), (4, 8)]
    assert lines(cut)[:2] == lines(whole)[:2]
    log = '\n'.join(path.read_text() for path in cut.rglob('*.log'))
    assert '2 lines of an earlier run, beyond iteration 2, are removed' in log


def test_a_new_run_begins_the_file_anew(tmp_path):
    (tmp_path / 'locality.jsonl').write_text('{"iter": 0}\n{"iter": 99}\n')
    runner(tmp_path, epochs=1).train()
    assert steps(tmp_path) == [(0, 0), (1, 2)]


def test_keep_lines(tmp_path):
    path = tmp_path / 'a.jsonl'
    assert keep_lines(path, 3) == 0 and not path.exists()
    path.write_text('{"iter": 1}\n{"iter": 3}\n{"iter": 4}\n{"it')
    assert keep_lines(path, 3) == 2
    assert path.read_text() == '{"iter": 1}\n{"iter": 3}\n'
    assert [file.name for file in tmp_path.iterdir()] == ['a.jsonl']


@pytest.mark.parametrize('num_images, world_size, expected', [
    (None, 1, [[0, 1, 2, 3, 4, 5, 6]]),
    (3, 1, [[0, 2, 4]]),
    (99, 2, [[0, 2, 4, 6], [1, 3, 5]]),
    (4, 3, [[0, 5], [1], [3]]),
])
def test_parts_are_disjoint_and_evenly_spaced(num_images, world_size, expected):
    loader = DataLoader(list(range(7)), batch_size=2, shuffle=True)
    parts = [torch.cat(list(part_of_loader(loader, num_images, rank, world_size))).tolist()
             for rank in range(world_size)]
    assert parts == expected


@pytest.mark.slow
def test_two_processes_measure_what_one_does(tmp_path):
    mp.spawn(share_in_process, (tmp_path, ), nprocs=2)
    first, second = (torch.load(tmp_path / f'{rank}.pth') for rank in (0, 1))
    assert first == second
    alone = share(0, 1)
    assert first['num_images'] == alone['num_images'] == 5
    for layer, expected in zip(first['layers'], alone['layers']):
        for name in ('distance_diagonal', 'entropy', 'gaussian_alpha'):
            assert layer[name] == pytest.approx(expected[name], abs=1e-6)


@pytest.mark.parametrize('kwargs, message', [
    (dict(interval=0), 'interval=0: expected a number from 1 on'),
    (dict(num_images=0), 'num_images=0: expected a number from 1 on'),
])
def test_arguments_refused(kwargs, message):
    with pytest.raises(ValueError, match=message):
        LocalityHook(**kwargs)


def test_configs_refused(tmp_path):
    with pytest.raises(UserError, match='train_cfg counts iterations: give it by_epoch=False'):
        runner(tmp_path / 'a', 'mmseg', iterations=2).train()
    run = runner(tmp_path / 'b')
    run._val_loop = run._val_dataloader = run._val_evaluator = None
    with pytest.raises(UserError, match='val_dataloader, which the config does not have'):
        run.train()
    with pytest.raises(UserError, match='7 images for 8 processes'):
        part_of_loader(DataLoader(list(range(7))), None, 0, 8)


def test_a_backbone_without_readable_attention_is_refused(tmp_path):
    other = dict(MODELS['mmpretrain'], backbone=dict(
        type='VisionTransformer', img_size=32, patch_size=8, out_type='raw',
        arch=dict(embed_dims=24, num_layers=1, num_heads=3, feedforward_channels=32)))
    run = runner(tmp_path)
    run.model = build('mmpretrain', other)
    with pytest.raises(ValueError, match='mmpretrain.*MultiheadAttention; supported: timm'):
        run.call_hook('before_train')
