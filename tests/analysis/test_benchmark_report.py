"""Table and plot of rows made by hand."""
import copy

from matplotlib.image import imread

from locat_mmseg.analysis.benchmark_report import memory_ratio, plot, table


def rows_of(size, batch=2):
    common = dict(model='vit_tiny_patch16_224', batch=batch, size=size, tokens=(size // 16) ** 2,
                  parameters=5717416, flops=2.5e9)
    time = dict(plain_seconds=0.5, seconds=0.55, ratio=1.1, quartiles=[1.05, 1.2], pairs=10)
    return [dict(common, variant='plain', memory=dict(bytes=10 ** 9, method='VmHWM')),
            dict(common, variant='locat', memory=dict(bytes=1.05e9, method='VmHWM'),
                 training=time, inference=dict(time, ratio=1.01, quartiles=[1., 1.02])),
            dict(common, variant='flex', error='measure_time: no kernel')]


def test_table():
    lines = table(rows_of(224)).splitlines()
    assert lines[2:] == [
        '| vit_tiny_patch16_224 | 2x224 | plain | 5,717,416 | 1.25 | - | - | 1.000 | - | 1000 |',
        '| vit_tiny_patch16_224 | 2x224 | locat | 5,717,416 | 1.25 | 1.100 (1.050-1.200) | '
        '1.010 (1.000-1.020) | 1.050 | 0.5500 | 1050 |',
        '| vit_tiny_patch16_224 | 2x224 | flex | 5,717,416 | 1.25 | - | - | - | - | - |', '',
        'vit_tiny_patch16_224 2x224 flex: measure_time: no kernel']


def test_memory_is_compared_with_the_same_input():
    rows = rows_of(224) + rows_of(512)
    rows[3]['memory'] = dict(bytes=5.25e8, method='VmHWM')
    assert [memory_ratio(row, rows) for row in rows] == [1, 1.05, None, 1, 2, None]
    assert memory_ratio(rows[1], rows[3:]) is None


def test_plot_shows_the_curves(tmp_path):
    rows = rows_of(224) + rows_of(512)
    higher = copy.deepcopy(rows)
    higher[4]['training']['ratio'] = 1.15
    pictures = []
    for number, content in enumerate((rows, rows, higher)):
        plot(content, tmp_path / f'{number}.png')
        pictures.append(imread(tmp_path / f'{number}.png'))
    assert (pictures[0] == pictures[1]).all()
    assert pictures[0].shape == pictures[2].shape and (pictures[0] != pictures[2]).any()
