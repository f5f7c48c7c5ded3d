"""The table of a packed study."""
from locat_mmseg.analysis.packed_study_table import study_table


def row(finished, *points, **scores):
    return dict(finished=finished, seconds=61.4, curve=points, **scores)


def point(epoch, top1, minimum=None, distances=(), entropies=()):
    layer = dict(distance_diagonal=list(distances), entropy=list(entropies))
    return dict(epoch=epoch, step=10 * epoch, top1=top1,
                locality=dict(min_distance_diagonal=minimum, layers=[layer, {}]))


def table(rows, not_begun=(), locality=False, frozen=False):
    return study_table(dict(conditions=rows, not_begun=not_begun, settings=dict(
        recipe=dict(epochs=8), locality=locality, frozen=frozen))).splitlines()


def test_locality():
    rows = {'a': row(True, point(0, 1., 0.41, [1.], [1.]),
                     point(8, 43.219, 0.0125, [0.2, 0.3], [0.5, 0.7])),
            'b': row(False, point(0, 2., None, [None, 0.1], [None, 0.1]))}
    assert table(rows, ['c'], locality=True) == [
        '| condition | epochs | steps | seconds | top-1 (%) | minimum MAD | at the start | '
        'MAD of layer 0 | entropy of layer 0 |',
        '|---|---|---|---|---|---|---|---|---|',
        '| a | 8 | 80 | 61 | 43.22 | 0.013 | 0.410 | 0.250 | 0.600 |',
        '| b | 0 of 8, not finished | 0 | 61 | 2.00 | - | - | - | - |',
        '| c | not run | | | | | | | |']


def test_frozen():
    rows = {'a': row(True, point(0, 1.), point(8, 43.2), knn_top1=40., linear_top1=45.25),
            'b': row(False, point(0, 1.), point(4, 20.))}
    assert table(rows, frozen=True)[2:] == [
        '| a | 8 | 80 | 61 | 43.20 | 40.00 | 45.25 |',
        '| b | 4 of 8, not finished | 40 | 61 | 20.00 | - | - |']
