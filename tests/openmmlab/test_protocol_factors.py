"""The factors of every CIFAR-100 condition, and what counts as held equal."""
import pytest
from mmengine.config import Config
from tiny_runs import REPOSITORY

from locat_mmseg.openmmlab.protocol_factors import FACTORS, read_protocol

FOLDER = REPOSITORY / 'configs/cutmix_locality'
A, C, L, LOCAT = FACTORS
CONDITIONS = {'baseline': [], 'autoaugment': [A], 'cutmix': [C], 'label-smoothing': [L],
              'no-autoaugment': [C, L], 'no-cutmix': [A, L], 'no-label-smoothing': [A, C],
              'modern': [A, C, L]}
BASELINE = 'vit-compact_baseline_cifar100'


def protocol(name: str, **options):
    cfg = Config.fromfile(FOLDER / f'{name}.py')
    cfg.merge_from_dict({key.replace('__', '.'): value for key, value in options.items()})
    return read_protocol(cfg)


def test_sixteen_conditions_differ_in_factors_alone():
    found = [(protocol(f'{model}-compact_{name}_cifar100'), factors + locat)
             for model, locat in (('vit', []), ('locatvit', [LOCAT]))
             for name, factors in CONDITIONS.items()]
    assert [protocol.factors for protocol, _ in found] == [factors for _, factors in found]
    assert len({protocol.group for protocol, _ in found}) == 1
    assert len({protocol.digest for protocol, _ in found}) == 16


def test_other_data_and_colour_jitter():
    tiny = [protocol(f'vit-compact_{name}_tiny-imagenet') for name in ('baseline', 'modern')]
    assert tiny[1].factors == [A, C, L]
    assert tiny[0].group == tiny[1].group != protocol(BASELINE).group


@pytest.mark.parametrize('change', [
    dict(train_cfg__max_epochs=20), dict(optim_wrapper__optimizer__lr=1.),
    dict(model__backbone__patch_size=8), dict(train_dataloader__batch_size=8),
    dict(model__neck__refine=True)])  # PRR without GAug is not LocAt
def test_a_difference_that_is_no_factor_is_another_group(change):
    changed = protocol(BASELINE, **change)
    assert changed.factors == []
    assert changed.group != protocol(BASELINE).group


@pytest.mark.parametrize('change', [
    dict(train_dataloader__num_workers=0), dict(default_hooks__checkpoint__interval=1),
    dict(randomness__seed=5), dict(work_dir='elsewhere')])
def test_what_does_not_change_the_training(change):
    assert protocol(BASELINE, **change) == protocol(BASELINE)


def test_cutmix_is_on_if_its_probability_is_not_zero():
    assert protocol('vit-compact_cutmix_cifar100', model__train_cfg__probs=[0.5]).factors == [C]
    assert protocol('vit-compact_cutmix_cifar100', model__train_cfg__probs=None).factors == [C]
    assert protocol('vit-compact_cutmix_cifar100', model__train_cfg__probs=0.).factors == []
    other = protocol(BASELINE, model__train_cfg__augments=[dict(type='Mixup', alpha=1.)])
    assert other.factors == [] and other.group != protocol(BASELINE).group


def test_configs_without_any_of_it():
    cfg = Config(dict(model=dict(type='EncoderDecoder', backbone=dict(type='LocAtViT'))))
    assert read_protocol(cfg).factors == [LOCAT]  # GAug is on by default
    assert read_protocol(Config(dict())).factors == []
