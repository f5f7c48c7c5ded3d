"""The results of a packed study as a Markdown table."""
from statistics import fmean
from typing import Any

LOCALITY_COLUMNS = ('minimum MAD', 'at the start', 'MAD of layer 0', 'entropy of layer 0')
FROZEN_COLUMNS = ('k-NN (%)', 'linear probe (%)')


def study_table(results: dict[str, Any]) -> str:
    """A row a condition, with its newest measures; 'not run' for what was not begun.

    Args:
        results: what is in `results.json` of a `PackedStudy`.
    """
    settings = results['settings']
    columns = ['condition', 'epochs', 'steps', 'seconds', 'top-1 (%)',
               *LOCALITY_COLUMNS * settings['locality'], *FROZEN_COLUMNS * settings['frozen']]
    lines = ['| ' + ' | '.join(columns) + ' |', '|---' * len(columns) + '|']
    for name, row in results['conditions'].items():
        lines.append('| ' + ' | '.join([name, *cells(row, settings)]) + ' |')
    blank = ' |' * (len(columns) - 2)
    lines += [f'| {name} | not run |{blank}' for name in results['not_begun']]
    return '\n'.join(lines) + '\n'


def cells(row: dict[str, Any], settings: dict[str, Any]) -> list[str]:
    """The cells of a condition that was begun, after its name."""
    first, last = row['curve'][0], row['curve'][-1]
    epochs = str(last['epoch']) + ('' if row['finished'] else
                                   f' of {settings["recipe"]["epochs"]}, not finished')
    filled = [epochs, str(last['step']), decimal(row['seconds'], 0), decimal(last['top1'], 2)]
    if settings['locality']:
        layer = last['locality']['layers'][0]
        filled += [decimal(point['locality']['min_distance_diagonal']) for point in (last, first)]
        filled += [decimal(layer_mean(layer[measure]))
                   for measure in ('distance_diagonal', 'entropy')]
    if settings['frozen']:
        filled += [decimal(row.get(score), 2) for score in ('knn_top1', 'linear_top1')]
    return filled


def layer_mean(heads: list[float | None]) -> float | None:
    """Mean over heads; None if that of a head is no number, as in a diverged model."""
    return None if None in heads else fmean(heads)


def decimal(value: float | None, digits: int = 3) -> str:
    """A number with so many decimals; a dash for none."""
    return '-' if value is None else f'{value:.{digits}f}'
