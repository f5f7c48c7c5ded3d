"""Every config parses, follows the layout rules, and names weights that another config makes."""
from pathlib import Path

import pytest
import yaml
from config_helpers import CLASSIFICATION, CONFIGS, LEAVES, bases_of, hops, leaves_in, load

COUNTS = {'locat': 33, 'baseline': 33, 'probe': 66, 'probe/ablation': 14, 'pretrain': 58,
          'pretrain/ablation': 14, 'quickstart': 3, 'examples': 9,
          'cutmix_locality': 32, 'dino': 6}


def test_number_of_configs():
    assert {folder: len(leaves_in(folder)) for folder in COUNTS} == COUNTS
    assert len(LEAVES) == sum(COUNTS.values())


@pytest.mark.parametrize('folder', COUNTS)
def test_every_config_parses(folder):
    for name in leaves_in(folder):
        cfg = load(name)
        assert cfg.custom_imports.imports == ['locat_mmseg'], name
        assert cfg.default_scope == (
            'mmpretrain' if cfg.model.type in CLASSIFICATION else 'mmseg'), name
        for key in ('train', ) if folder == 'dino' else ('train', 'val', 'test'):
            assert cfg[f'{key}_dataloader'].dataset.pipeline, name
            assert f'{key}_cfg' in cfg, name


def test_at_most_two_hops_over_relative_bases():
    for path in CONFIGS.rglob('*.py'):
        for base in bases_of(path):
            assert '::' not in base and not Path(base).is_absolute(), path
            assert (path.parent / base).is_file(), f'{path} names {base}'
    depths = {name: hops(CONFIGS / f'{name}.py') for name in LEAVES}
    assert set(depths.values()) <= {1, 2}, depths


def test_no_base_is_left_over():
    used = set()
    for path in CONFIGS.rglob('*.py'):
        used |= {(path.parent / base).resolve() for base in bases_of(path)}
    assert used >= set((CONFIGS / '_base_').rglob('*.py'))


def plain_twin(name: str) -> str:
    folder, _, stem = name.rpartition('/')
    return f'baseline/{stem}' if folder == 'locat' else f"{folder}/{stem.removeprefix('locat')}"


@pytest.mark.parametrize('folder', ['locat', 'probe', 'pretrain', 'dino'])
def test_plain_twins_differ_only_in_locat(folder):
    names = [name for name in leaves_in(folder) if plain_twin(name) != name]
    assert len(names) == COUNTS[folder] / (1 if folder == 'locat' else 2)
    for name in names:
        locat, plain = load(name), load(plain_twin(name))
        assert 'gaug' not in locat.model.backbone and plain.model.backbone.pop('gaug') is False
        if folder in ('pretrain', 'dino'):
            assert 'refine' not in locat.model.neck and plain.model.neck.pop('refine') is False
            assert plain.model.backbone.pop('refine', None) is (False if 'jumbo' in name else None)
        else:
            assert plain.checkpoint == locat.checkpoint.replace('pretrain/locat', 'pretrain/')
            assert plain.model.backbone.init_cfg.checkpoint == plain.checkpoint
            plain.checkpoint = plain.model.backbone.init_cfg.checkpoint = locat.checkpoint
        assert plain.to_dict() == locat.to_dict(), name


def test_the_plain_dinov2_example_differs_in_gaug_alone():
    locat, plain = (load(f'examples/upernet_{name}-s_camvid') for name in ('locatdinov2', 'dinov2'))
    assert 'gaug' not in locat.model.backbone and plain.model.backbone.pop('gaug') is False
    assert plain.to_dict() == locat.to_dict()


def test_baseline_has_the_names_of_locat():
    assert [plain_twin(name) for name in leaves_in('locat')] == leaves_in('baseline')


def normalisation(cfg) -> tuple[list[float], list[float]]:
    """Mean and standard deviation, of the pipeline or of the data preprocessor."""
    steps = [step for step in cfg.test_dataloader.dataset.pipeline if step.type == 'Normalize']
    where, = steps or [cfg.model.get('data_preprocessor') or cfg.data_preprocessor]
    return where.mean, where.std


@pytest.mark.parametrize('folder', ['locat', 'baseline', 'probe', 'probe/ablation', 'quickstart'])
def test_weights_come_from_a_config_of_ours(folder):
    for name in leaves_in(folder):
        cfg = load(name)
        if cfg.model.type == 'ImageClassifier':
            continue
        assert cfg.model.backbone.init_cfg == dict(
            type='Pretrained', checkpoint=cfg.checkpoint, prefix='backbone.'), name
        file = Path(cfg.checkpoint)
        source = load(file.parent.relative_to('work_dirs').as_posix())
        assert file.name == f'epoch_{source.train_cfg.max_epochs}.pth', name
        for key in ('type', 'arch', 'img_size', 'patch_size', 'window_size', 'num_registers',
                    'rope', 'gaug', 'class_token', 'pos_embed'):
            assert cfg.model.backbone.get(key) == source.model.backbone.get(key), (name, key)
        assert normalisation(cfg) == normalisation(source), name


@pytest.mark.parametrize('folder', ['locat', 'baseline', 'probe', 'pretrain', 'cutmix_locality',
                                    'dino'])
def test_metafile_lists_the_folder(folder):
    meta = yaml.safe_load((CONFIGS / folder / 'metafile.yml').read_text())
    names = [f'configs/{name}.py' for name in LEAVES if name.startswith(f'{folder}/')]
    assert sorted(model['Config'] for model in meta['Models']) == names
    assert {model['In Collection'] for model in meta['Models']} == {
        collection['Name'] for collection in meta['Collections']}
    index = yaml.safe_load((CONFIGS.parent / 'model-index.yml').read_text())
    assert f'configs/{folder}/metafile.yml' in index['Import']


def test_model_names_are_unique():
    metas = [yaml.safe_load(file.read_text()) for file in CONFIGS.rglob('metafile.yml')]
    names = [model['Name'] for meta in metas for model in meta['Models']]
    assert len(names) == len(set(names))
