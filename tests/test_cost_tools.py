"""tools/benchmark.py and tools/get_flops.py as a user runs them."""
import json
import re

import pytest
from tiny_runs import load_tool, mistake, run

from locat_mmseg.analysis import benchmark

BENCHMARK, GET_FLOPS = load_tool('benchmark').main, load_tool('get_flops').main
INPUT = 'vit_tiny_patch16_224:1x32'


@pytest.fixture
def quick(monkeypatch, tmp_path):
    """Measurements without work; the folder of the results is the current one."""
    def call(function, case, variant, settings, deadline):
        if variant == 'explicit':
            raise RuntimeError('no such kernel')
        if function is benchmark.measure_memory:
            return dict(bytes=2e6 if variant == 'dense' else 1e6, method='VmHWM')
        return {task: benchmark.summarise([(1., 1.5)] * settings.pairs)
                for task in benchmark.TASKS}
    monkeypatch.setattr(benchmark, 'in_new_process', call)
    monkeypatch.chdir(tmp_path)


def test_benchmark_writes_json_table_and_plot(quick, tmp_path, capsys):
    run(BENCHMARK, INPUT, '--variants', 'locat', 'dense', 'explicit', '--pairs', 4, '--out',
        'out/cpu.json')
    results = json.loads((tmp_path / 'out/cpu.json').read_text())
    assert results['settings'] == dict(device='cpu', dtype='float32', compile=False, threads=None,
                                       pairs=4)
    assert results['machine'] and results['torch'] and results['not_begun'] == []
    plain, locat, dense, explicit = results['rows']
    assert [row['variant'] for row in results['rows']] == ['plain', 'locat', 'dense', 'explicit']
    assert locat['training'] == dict(plain_seconds=1., seconds=1.5, ratio=1.5,
                                     quartiles=[1.5, 1.5], pairs=4)
    assert plain['flops'] < locat['flops'] == explicit['flops'] < dense['flops']
    assert explicit['error'].startswith('measure_time: no such kernel')
    table = (tmp_path / 'out/cpu.md').read_text()
    assert table in capsys.readouterr().out and '| 1.500 (1.500-1.500) |' in table
    assert (tmp_path / 'out/cpu.png').stat().st_size > 10_000
    assert {path.name for path in (tmp_path / 'out').iterdir()} == {'cpu.json', 'cpu.md', 'cpu.png'}


def test_report_of_results_made_elsewhere(quick, tmp_path):
    run(BENCHMARK, INPUT, '--variants', 'locat', '--out', 'a.json')
    (tmp_path / 'a.json').rename('b.json')
    content = (tmp_path / 'b.json').read_bytes()
    run(BENCHMARK, '--report', '--out', 'b.json')
    assert (tmp_path / 'b.json').read_bytes() == content
    assert (tmp_path / 'b.md').read_text() == (tmp_path / 'a.md').read_text()
    assert (tmp_path / 'b.png').is_file()


def test_no_plot_without_matplotlib(quick, tmp_path, monkeypatch, capsys):
    tool = load_tool('benchmark')
    monkeypatch.setattr(tool, 'find_spec', lambda name: None)
    run(tool.main, INPUT, '--variants', 'locat')
    assert 'No plot without matplotlib: copy' in capsys.readouterr().out
    assert not (tmp_path / 'work_dirs/benchmark/results.png').exists()


def test_time_limit(quick, tmp_path, capsys):
    run(BENCHMARK, INPUT, '--variants', 'locat', '--minutes', 0)
    results = json.loads((tmp_path / 'work_dirs/benchmark/results.json').read_text())
    assert results['not_begun'] == ['vit_tiny_patch16_224 1x32 plain',
                                    'vit_tiny_patch16_224 1x32 locat']
    assert 'Time was up before: vit_tiny_patch16_224 1x32 plain, ' in capsys.readouterr().out


@pytest.mark.parametrize('argv, message', [
    (['vit_tiny_patch16_224:8'], 'expected MODEL:BATCHxSIZE'),
    (['resnet18:1x32'], 'resnet18 1x32 cannot be built as LocAt: '),
    (['vit_tiny_patch16_224:1x8'], 'vit_tiny_patch16_224 1x8 cannot be built as LocAt: '),
    ([INPUT, '--pairs', '1'], '--pairs 1: a spread takes at least 2'),
    (['--report', '--out', 'nowhere.json'], 'nowhere.json does not exist'),
    ([INPUT, '--variants', 'fast'], "invalid choice: 'fast'"),
])
def test_mistakes_in_a_benchmark(argv, message, capsys):
    with pytest.raises(SystemExit) as exit_:
        run(BENCHMARK, *argv)
    assert exit_.value.code == 2 and message in capsys.readouterr().err


def number_after(name: str, text: str) -> float:
    return float(re.search(rf'^ *{re.escape(name)}: ([0-9.]+)', text, re.MULTILINE)[1])


@pytest.mark.parametrize('kind, parts', [
    ('segmentation', ['backbone', 'decode_head']),
    ('classification', ['backbone', 'head']),
])
def test_get_flops(kind, parts, request, capsys):
    config = request.getfixturevalue(f'{kind}_config')(
        "\nmodel['backbone'].update(arch=dict(embed_dims=256, num_layers=2, num_heads=2, "
        "feedforward_channels=512))\nmodel['head'].update(in_channels=256)"
        if kind == 'classification' else '')
    run(GET_FLOPS, config)
    small = capsys.readouterr().out
    assert 'Input shape: 32 x 32' in small
    run(GET_FLOPS, config, '--shape', 320, 352)
    large = capsys.readouterr().out
    assert 'Input shape: 320 x 352' in large
    total = number_after('FLOPs (multiply-adds)', large)
    assert total == pytest.approx(sum(number_after(part, large) for part in parts), abs=0.002)
    assert number_after('Parameters', large) == number_after('Parameters', small) > 0
    # Projections and convolutions grow with the 110 times larger area, attention more.
    assert total > 110 * number_after('FLOPs (multiply-adds)', small)


def test_get_flops_of_gaug(tmp_path, capsys):
    config = tmp_path / 'config.py'
    config.write_text("""
custom_imports = dict(imports=['locat_mmseg'], allow_failed_imports=False)
default_scope = 'mmpretrain'
model = dict(type='ImageClassifier', backbone=dict(type='LocAtViT', arch='tiny', img_size=224))
""")
    run(GET_FLOPS, config)
    locat = capsys.readouterr().out
    run(GET_FLOPS, config, '--cfg-options', 'model.backbone.gaug=False')
    plain = capsys.readouterr().out
    assert [number_after('backbone', text) for text in (plain, locat)] == [1.258, 1.263]


@pytest.mark.parametrize('lines, argv, message', [
    ('train_cfg = dict()', [], 'has no model: give the config of a whole segmentor'),
    ("default_scope = 'mmpretrain'\nmodel = dict(type='ImageClassifier', backbone=dict("
     "type='ResNet', depth=18))", [], 'the config names no input size'),
    ("default_scope = 'mmpretrain'\nmodel = dict(type='ImageClassifier', backbone=dict("
     "type='LocAtViT', img_size=32, patch_size=8, arch='nano'))", [],
     "arch='nano': expected one of"),
    ("default_scope = 'mmseg'\nmodel = dict(type='EncoderDecoder', backbone=dict("
     "type='LocAtViT', patch_size=8, out_indices=-1), decode_head=dict(type='FCNHead', "
     'in_channels=99, channels=4, num_classes=3))', ['--shape', '32'],
     r'does not take a batch of shape \(1, 3, 32, 32\)'),
])
def test_mistakes_in_get_flops(tmp_path, lines, argv, message):
    config = tmp_path / 'config.py'
    config.write_text("custom_imports = dict(imports=['locat_mmseg'], allow_failed_imports=False)"
                      f'\n{lines}\n')
    assert re.search(message, mistake(GET_FLOPS, config, *argv))


def test_get_flops_of_a_missing_config_or_shape(tmp_path, capsys):
    assert 'nowhere.py does not exist' in mistake(GET_FLOPS, tmp_path / 'nowhere.py')
    with pytest.raises(SystemExit):
        run(GET_FLOPS, 'x.py', '--shape', 1, 2, 3)
    assert '--shape takes one or two positive numbers, got [1, 2, 3]' in capsys.readouterr().err
