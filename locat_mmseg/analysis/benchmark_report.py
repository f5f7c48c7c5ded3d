"""The results of a benchmark as a Markdown table and as curves over the number of tokens."""
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .tables import markdown_table

Row = dict[str, Any]

COLUMNS = ('model', 'input', 'variant', 'parameters', 'GFLOPs an image', 'training', 'inference',
           'memory', 'training s', 'memory MB')


def plain_of(row: Row, rows: Sequence[Row]) -> Row | None:
    """The row of the plain model with the same input."""
    return next((r for r in rows if r['variant'] == 'plain'
                 and all(r[key] == row[key] for key in ('model', 'batch', 'size'))), None)


def memory_ratio(row: Row, rows: Sequence[Row]) -> float | None:
    """Memory of a step relative to the plain model's; None if one of them is not measured."""
    plain = plain_of(row, rows)
    if plain is None or not {'memory'} <= plain.keys() & row.keys():
        return None
    return row['memory']['bytes'] / plain['memory']['bytes']


def table(rows: Sequence[Row]) -> str:
    """Markdown, plain timm = 1; in brackets the quartiles of the ratios."""
    lines = []
    for row in rows:
        ratios = [f'{row[task]["ratio"]:.3f} ({row[task]["quartiles"][0]:.3f}-'
                  f'{row[task]["quartiles"][1]:.3f})' if task in row else '-'
                  for task in ('training', 'inference')]
        memory = memory_ratio(row, rows)
        lines.append([
            row['model'], f'{row["batch"]}x{row["size"]}', row['variant'],
            f'{row["parameters"]:,}', f'{row["flops"] / row["batch"] / 1e9:.2f}', *ratios,
            f'{memory:.3f}' if memory else '-',
            f'{row["training"]["seconds"]:.4f}' if 'training' in row else '-',
            f'{row["memory"]["bytes"] / 1e6:.0f}' if 'memory' in row else '-'])
    errors = [f'\n{row["model"]} {row["batch"]}x{row["size"]} {row["variant"]}: {row["error"]}\n'
              for row in rows if 'error' in row]
    return markdown_table(COLUMNS, lines) + ''.join(errors)


def plot(rows: Sequence[Row], path: Path) -> None:
    """Draw time ratios and memory over the number of tokens, a row of panels for each model.

    Args:
        rows: as in the JSON file.
        path: image file; its suffix tells the format.
    """
    from matplotlib.figure import Figure  # not needed to measure

    models = list(dict.fromkeys(row['model'] for row in rows))
    figure = Figure(figsize=(15, 4.2 * len(models)), layout='constrained')
    axes = figure.subplots(len(models), 3, squeeze=False)
    for panels, model in zip(axes, models, strict=True):
        of_model = [row for row in rows if row['model'] == model]
        for variant in dict.fromkeys(row['variant'] for row in of_model):
            draw_curves(panels, sorted((r for r in of_model if r['variant'] == variant),
                                       key=lambda row: row['tokens']), variant)
        for panel, title in zip(panels, ('training step, plain = 1', 'inference, plain = 1',
                                         'memory of a training step (MB an image)'), strict=True):
            panel.set(title=f'{model}\n{title}', xlabel='patches an image', xscale='log')
            panel.grid(alpha=0.3)
            ticks = sorted({row['tokens'] for row in of_model})
            panel.set_xticks(ticks, [str(tick) for tick in ticks])
            panel.minorticks_off()
        panels[2].set_yscale('log')
        panels[2].legend()
    figure.savefig(path)


def draw_curves(panels: Sequence[Any], rows: Sequence[Row], variant: str) -> None:
    """One variant in the three panels of a model; bars span the quartiles."""
    style = dict(label=variant, marker='o', color='black' if variant == 'plain' else None)
    for panel, task in zip(panels, ('training', 'inference'), strict=False):
        measured = [row for row in rows if task in row]
        ratios = [row[task]['ratio'] for row in measured]
        spread = [[abs(row[task]['quartiles'][side] - ratio)
                   for row, ratio in zip(measured, ratios, strict=True)] for side in (0, 1)]
        if variant == 'plain':
            panel.axhline(1, color='black')
        else:
            panel.errorbar([row['tokens'] for row in measured], ratios, yerr=spread, capsize=3,
                           **style)
    measured = [row for row in rows if 'memory' in row]
    panels[2].plot([row['tokens'] for row in measured],
                   [row['memory']['bytes'] / row['batch'] / 1e6 for row in measured], **style)
