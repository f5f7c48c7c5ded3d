"""Tables for a terminal, in Markdown and as CSV."""
import pytest

from locat_mmseg.analysis.tables import cells_of, markdown_table, number, text_table, write_csv

ROWS = [dict(model='a', top1=0.5), dict(model='b', mIoU=None, top1=1)]


@pytest.mark.parametrize('value, expected', [
    (None, '–'), (0.0625, '0.062'), (1.0, '1.000'), (12, '12'), ('a', 'a'),
    (float('nan'), 'nan')])
def test_number(value, expected):
    assert number(value) == expected


def test_text_table():
    assert text_table(['a', 'name'], [[1, 0.5], [10, None]]) == \
        ' a   name\n 1  0.500\n10      –'


def test_markdown_table():
    assert markdown_table(('a', 'b'), [['1', 'x'], ['2', 'y']]) == \
        '| a | b |\n|---|---|\n| 1 | x |\n| 2 | y |\n'
    assert markdown_table(['a'], []) == '| a |\n|---|\n'


def test_columns_are_those_of_any_row():
    assert cells_of(ROWS) == (['model', 'top1', 'mIoU'], [['a', 0.5, None], ['b', 1, None]])


def test_csv(tmp_path):
    write_csv(tmp_path / 'a.csv', ROWS)
    assert (tmp_path / 'a.csv').read_text().splitlines() == ['model,top1,mIoU', 'a,0.5,', 'b,1,']
