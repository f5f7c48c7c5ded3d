"""Tables of results: for a terminal, in Markdown and as CSV."""
import csv
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any


def number(value: object) -> str:
    """Three decimals for a float, a dash for None, else as it is."""
    if value is None:
        return '–'
    return f'{value:.3f}' if isinstance(value, float) else str(value)


def text_table(header: Sequence[str], rows: Iterable[Iterable[object]]) -> str:
    """Columns of equal width, for a terminal; cells as `number` writes them."""
    lines = [header, *([number(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines)]
    return '\n'.join('  '.join(cell.rjust(width) for cell, width in zip(line, widths))
                     for line in lines)


def markdown_table(header: Sequence[str], rows: Iterable[Iterable[str]]) -> str:
    """A table in Markdown, of cells that are text already."""
    lines = [header, *rows]
    written = [f'| {" | ".join(cells)} |' for cells in lines]
    return '\n'.join([written[0], '|---' * len(header) + '|', *written[1:]]) + '\n'


def columns_of(rows: Sequence[Mapping[str, object]]) -> list[str]:
    """Names of the columns of rows, in the order in which they occur."""
    return list(dict.fromkeys(name for row in rows for name in row))


def cells_of(rows: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[Any]]]:
    """Columns and cells of a table of rows."""
    columns = columns_of(rows)
    return columns, [[row.get(name) for name in columns] for row in rows]


def write_csv(path: Path, rows: Sequence[Mapping[str, object]]) -> None:
    """Write rows, with a line of their columns first."""
    with open(path, 'w', newline='', encoding='utf-8') as file:
        writer = csv.DictWriter(file, columns_of(rows))
        writer.writeheader()
        writer.writerows(rows)
