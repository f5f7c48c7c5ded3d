"""From a command line to a Runner."""
import os
import shutil
import warnings

import pytest
import user_errors
from mmengine.config import Config
from mmengine.runner import Runner

from locat_mmseg.openmmlab.errors import UserError
from locat_mmseg.openmmlab.launch import (build_runner, check_checkpoint, check_complete,
                                          default_work_dir, last_checkpoint, load_config,
                                          make_parser)


@pytest.fixture(autouse=True)
def local_rank(monkeypatch):
    monkeypatch.setenv('LOCAL_RANK', '0')  # load_config sets it; this way it is unset again


def load(*argv) -> Config:
    return load_config(make_parser('').parse_args([str(a) for a in argv]))


def mistake(*argv) -> str:
    return user_errors.mistake(load, *argv)


@pytest.fixture
def config(tmp_path):
    """Writes a config of the given lines."""
    def write(*lines: str, name: str = 'mine.py'):
        (tmp_path / name).write_text('\n'.join(lines), encoding='utf-8')
        return tmp_path / name
    return write


def test_a_config_and_its_twin_in_another_folder_run_apart():
    assert [default_work_dir(path) for path in (
        'configs/locat/upernet_vit-t_ade20k.py', 'configs/baseline/upernet_vit-t_ade20k.py',
        '/home/me/configs/old/configs/probe/ablation/vit-t.py', 'elsewhere/mine.py'
    )] == [os.path.join('work_dirs', *parts) for parts in (
        ('locat', 'upernet_vit-t_ade20k'), ('baseline', 'upernet_vit-t_ade20k'),
        ('probe', 'ablation', 'vit-t'), ('mine', ))]


def test_options_reach_the_config(config):
    path = config('model = dict(depth=2)', 'param_scheduler = [dict(n=1), dict(n=2)]')
    cfg = load(path, '--cfg-options', 'model.depth=3', 'param_scheduler.1.n=5',
               'model.sizes=[(1,2),(3,4)]')
    assert cfg.model == dict(depth=3, sizes=[(1, 2), (3, 4)])
    assert cfg.param_scheduler == [dict(n=1), dict(n=5)]


def test_work_dir_of_command_line_then_config_then_name(config):
    assert load(config('a = 1')).work_dir == os.path.join('work_dirs', 'mine')
    path = config("work_dir = 'there'")
    assert load(path).work_dir == 'there'
    assert load(path, '--work-dir', 'here').work_dir == 'here'


def test_no_such_config_suggests_a_near_name(config, tmp_path):
    config('a = 1', name='upernet_vit-t.py')
    text = mistake(tmp_path / 'upernet_vit_t.py')
    assert text.startswith(f'config {tmp_path}/upernet_vit_t.py does not exist')
    assert f'(did you mean {tmp_path}/upernet_vit-t.py?)' in text
    assert 'did you mean' not in mistake(tmp_path / 'nowhere/x.py')


@pytest.mark.parametrize('line, reason', [
    ('model = dict(', "SyntaxError: .*'\\(' was never closed"),
    ('model = undefined', "NameError: name 'undefined' is not defined at .*mine.py:1$"),
    ("_base_ = 'gone.py'", 'FileNotFoundError: .*gone.py'),
    ("_base_ = ['one.py', 'two.py']", 'KeyError: .*Duplicate key is not allowed among bases'),
])
def test_config_that_cannot_be_evaluated(config, line, reason):
    config('a = 1', name='one.py')
    config('a = 2', name='two.py')
    path = config(line)
    with pytest.raises(UserError, match=f'config {path} cannot be read: {reason}'):
        load(path)


def test_custom_import_that_fails(config):
    text = mistake(config("custom_imports = dict(imports=['no_such_package'])"))
    assert "custom_imports of config" in text
    assert "No module named 'no_such_package'" in text and 'PYTHONPATH' in text


def test_option_that_does_not_fit(config):
    text = mistake(config('model = dict(depth=2)'), '--cfg-options', 'model.depth.unit=3')
    assert text.startswith('--cfg-options do not fit') and 'TypeError' in text
    text = mistake(config('custom_hooks = [1]'), '--cfg-options', 'custom_hooks.4=3')
    assert 'KeyError' in text


def test_failure_inside_a_custom_import_names_its_line(config, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / 'my_first.py').write_text('import torch\n\ntorch.no_such_function()\n')
    (tmp_path / 'my_second.py').write_text('\nfrom torch import no_such_name\n')
    text = mistake(config("custom_imports = dict(imports=['my_first'])"))
    assert 'AttributeError' in text and text.endswith(f'at {tmp_path}/my_first.py:3')
    assert f'at {tmp_path}/my_second.py:2)' in mistake(
        config("custom_imports = dict(imports=['my_second'])"))


HELPERS = """
checkpoint = 'a.pth'
data_root = 'data'
crop_size = (64, 48)
norm_cfg = dict(type='BN', eps=1)
unused = 'nowhere'
model = dict(backbone=dict(init_cfg=dict(checkpoint=checkpoint)),
             data_preprocessor=dict(size=crop_size), decode_head=dict(norm_cfg=norm_cfg))
train_dataloader = dict(dataset=dict(
    dataset=dict(data_root=data_root, pipeline=[dict(type='A'), dict(crop_size=crop_size)])))
val_dataloader = dict(dataset=dict(data_root=data_root))
"""


@pytest.mark.parametrize('option, keys', [
    ('checkpoint=b.pth', 'model.backbone.init_cfg.checkpoint'),
    ('data_root=b', 'train_dataloader.dataset.dataset.data_root, '
                    'val_dataloader.dataset.data_root'),
    ('crop_size=(9,9)', 'model.data_preprocessor.size, '
                        'train_dataloader.dataset.dataset.pipeline.1.crop_size'),
    ('norm_cfg.type=GN', 'model.decode_head.norm_cfg.type'),
    ('unused=b', 'the key where its value went')])
def test_options_for_variables_of_the_config_are_refused(config, option, keys):
    text = mistake(config(HELPERS), '--cfg-options', option)
    assert text == f'--cfg-options sets {option.partition("=")[0]}, which is a variable of the ' \
                   f'config that nothing reads after it: set {keys}'


def test_the_data_preprocessor_beside_that_of_the_model_is_such_a_variable(config):
    lines = ['data_preprocessor = dict(size=3)',
             'model = dict(data_preprocessor=data_preprocessor)']
    assert 'set model.data_preprocessor.size' in mistake(
        config(*lines), '--cfg-options', 'data_preprocessor.size=2')
    path = config(lines[0], 'model = dict()')
    assert load(path, '--cfg-options', 'data_preprocessor.size=2').data_preprocessor.size == 2


@pytest.mark.parametrize('line, loaders, reason', [
    ('test_cfg = dict()', ('test_dataloader', ), 'no test_dataloader and no test_evaluator: test_'),
    ('train_dataloader = dict()', ('train_dataloader', ), 'no train_cfg and no optim_wrapper: '),
    ('val_cfg = dict()', ('val_dataloader', ), 'no val_dataloader and no val_evaluator: '),
    ('val_cfg = None', ('val_dataloader', ), None)])
def test_loader_loop_and_evaluator_belong_together(config, line, loaders, reason):
    cfg = load(config(line))
    if reason is None:
        check_complete(cfg, loaders)
    else:
        with pytest.raises(UserError, match=f'the config has {reason}'):
            check_complete(cfg, loaders)


def test_help_names_the_traceback_variable():
    assert 'LOCAT_TRACEBACK=1' in make_parser('').format_help()


def test_option_without_a_value(config, capsys):
    with pytest.raises(SystemExit) as exit_:
        load(config('a = 1'), '--cfg-options', 'model.depth', '3')
    assert exit_.value.code == 2
    assert "--cfg-options takes KEY=VALUE pairs without spaces, got 'model.depth 3'" in \
        capsys.readouterr().err


def test_mistyped_top_level_key_warns(config):
    with pytest.warns(UserWarning) as caught:
        load(config('optim_wrapper = dict(lr=1)'), '--cfg-options', 'optim_wraper.lr=2',
             'optim_wraper.wd=1')
    assert [str(w.message) for w in caught] == [
        '--cfg-options sets optim_wraper, which is no key of the config and nothing reads it; '
        'did you mean optim_wrapper?']


@pytest.mark.parametrize('option', ['randomness.seed=1', 'find_unused_parameters=True',
                                    'compile=True', 'model.depth=1', 'tta_model.type=A'])
def test_known_top_level_keys_do_not_warn(config, option):
    path = config('model = dict()', 'tta_model = dict()')
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        load(path, '--cfg-options', option)


def test_missing_checkpoint_suggests_a_near_name(tmp_path):
    (tmp_path / 'iter_2.pth').touch()
    assert check_checkpoint(str(tmp_path / 'iter_2.pth')) == str(tmp_path / 'iter_2.pth')
    for remote in ('https://host/a.pth', 'timm:vit_tiny_patch16_224', 'hf-hub:owner/name'):
        assert check_checkpoint(remote) == remote
    with pytest.raises(UserError, match=r'iter_20.pth does not exist \(did you mean .*iter_2.pth'):
        check_checkpoint(str(tmp_path / 'iter_20.pth'))
    with pytest.raises(UserError, match='the name of the checkpoint is empty: give'):
        check_checkpoint('')
    with pytest.raises(UserError, match='is a folder: give the path of a file in it'):
        check_checkpoint(str(tmp_path))


def test_last_checkpoint_of_a_copied_work_dir_is_the_copy(tmp_path):
    old, new = tmp_path / 'old', tmp_path / 'new'
    old.mkdir()
    assert last_checkpoint(str(old)) is None
    (old / 'iter_2.pth').touch()
    (old / 'last_checkpoint').write_text(str(old / 'iter_2.pth'))
    shutil.copytree(old, new)
    assert last_checkpoint(str(old)) == str(old / 'iter_2.pth')
    assert last_checkpoint(str(new)) == str(new / 'iter_2.pth')
    (new / 'iter_2.pth').unlink()  # CheckpointHook may save elsewhere, so the noted path counts
    assert last_checkpoint(str(new)) == str(old / 'iter_2.pth')
    (old / 'iter_2.pth').unlink()
    with pytest.raises(UserError, match='iter_2.pth, which does not exist: give a checkpoint'):
        last_checkpoint(str(new))


def test_builds_without_worker_processes(segmentation_config, tmp_path):
    cfg = load(segmentation_config(), '--work-dir', tmp_path / 'run', '--cfg-options',
               'train_dataloader.persistent_workers=True', 'train_dataloader.prefetch_factor=4')
    runner = build_runner(cfg, 'none', ('train_dataloader', 'val_dataloader'))
    assert type(runner) is Runner
    assert runner.train_dataloader.num_workers == 0


def test_data_is_looked_at_before_the_model_is_built(segmentation_config, tmp_path):
    cfg = load(segmentation_config(), '--work-dir', tmp_path / 'run', '--cfg-options',
               'model.type=Nonsense', 'train_dataloader.dataset.data_root=nowhere')
    with pytest.raises(UserError, match='data_root is nowhere'):
        build_runner(cfg, 'none', ('train_dataloader',))
    assert not (tmp_path / 'run').exists()
