"""Web pages of results: one file that carries its figures and asks nothing of the network.

A page is a list of parts, each a string of HTML made by `paragraph`, `table` or `figures`. It is
laid out for narrow and wide screens alike: figures keep the size they were drawn at and flow into
as many columns as fit, tables scroll by themselves under their first column.
"""
import base64
import io
from collections.abc import Iterable, Mapping, Sequence
from html import escape

import matplotlib
from matplotlib.figure import Figure

from .tables import number

# Inches at 96 pixels each: 369 pixels, a narrow screen's width less its margins.
FIGURE_SIZE = (3.85, 3.1)
# Text as text and nothing that differs from one run to the next.
_SVG = {'svg.fonttype': 'none', 'svg.hashsalt': 'locat_mmseg'}
_NO_METADATA = dict.fromkeys(('Date', 'Creator', 'Format', 'Type'))

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #1a1a1a; background: #fff;
       max-width: 1280px; margin: 0 auto; padding: 0 14px 40px; overflow-wrap: anywhere; }
h1 { font-size: 1.5em; line-height: 1.25; } h2 { font-size: 1.2em; margin-top: 1.8em; }
p { max-width: 75ch; }
.figures { display: flex; flex-wrap: wrap; gap: 20px; }
figure { margin: 0; max-width: 100%; } figure img { max-width: 100%; height: auto; display: block; }
figcaption { font-size: 0.875em; max-width: 369px; color: #444; }
.table { overflow-x: auto; background: /* a shadow at the right where there is more */
         linear-gradient(#fff, #fff) right / 14px 100% no-repeat local,
         linear-gradient(to left, #0004, #0000) right / 14px 100% no-repeat scroll; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 0.875em; }
caption { text-align: left; color: #444; padding: 4px 0; }
caption span { display: inline-block; position: sticky; left: 0;
               max-width: min(75ch, 100vw - 28px); }
th, td { padding: 3px 5px; text-align: right; vertical-align: top; border-bottom: 1px solid #ddd;
         overflow-wrap: normal; }
th { vertical-align: bottom; } td { white-space: pre; }
th:first-child, td:first-child { text-align: left; position: sticky; left: 0; background: #fff; }
td:nth-child(2):last-child { text-align: left; white-space: normal; overflow-wrap: anywhere; }
th:nth-child(2):last-child { text-align: left; }
@media (max-width: 600px) { td:first-child { white-space: normal; } }
"""


def page(title: str, parts: Iterable[str]) -> str:
    """A whole page, to be written as UTF-8.

    Args:
        title: of the page.
        parts: of HTML, from top to bottom.
    """
    return ('<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f'<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n'
            f'<h1>{escape(title)}</h1>\n' + '\n'.join(parts) + '\n</body>\n</html>\n')


def heading(text: str) -> str:
    """A heading below the title."""
    return f'<h2>{escape(text)}</h2>'


def paragraph(text: str) -> str:
    """A paragraph of plain text."""
    return f'<p>{escape(text)}</p>'


def table(header: Sequence[str], rows: Iterable[Sequence[object]], caption: str = '') -> str:
    """A table; numbers as `number` writes them, line breaks within a cell are kept.

    Raises:
        ValueError: if a row is not as long as the header.
    """
    lines = []
    for row in rows:
        if len(row) != len(header):
            raise ValueError(f'row {tuple(row)} has {len(row)} cells for {len(header)} columns '
                             f'{tuple(header)}')
        first, *others = (escape(number(cell)) for cell in row)
        lines.append(f'<td>{first.replace("_", "_<wbr>")}</td>'  # may be broken there
                     + ''.join(f'<td>{cell}</td>' for cell in others))
    title = f'<caption><span>{escape(caption)}</span></caption>' if caption else ''
    head = ''.join(f'<th scope="col">{escape(name)}</th>' for name in header)
    body = '\n'.join(f'<tr>{line}</tr>' for line in lines)
    return (f'<div class="table" tabindex="0"><table>{title}<thead><tr>{head}</tr></thead>\n'
            f'<tbody>{body}</tbody></table></div>')


def figures(drawn: Mapping[str, Figure]) -> str:
    """Figures beside each other.

    Args:
        drawn: figures by their captions, which say the same in words to who cannot see them.
    """
    return '<div class="figures">' + '\n'.join(
        f'<figure><img alt="{escape(caption)}" src="{data_uri(figure)}">'
        f'<figcaption>{escape(caption)}</figcaption></figure>'
        for caption, figure in drawn.items()) + '</div>'


def data_uri(figure: Figure) -> str:
    """The figure as SVG in an address that holds it."""
    file = io.BytesIO()
    with matplotlib.rc_context(_SVG):
        figure.savefig(file, format='svg', metadata=_NO_METADATA)
    return 'data:image/svg+xml;base64,' + base64.b64encode(file.getvalue()).decode()


def new_figure(**kwargs) -> Figure:
    """An empty figure of the size that pages are laid out for."""
    return Figure(figsize=FIGURE_SIZE, layout='constrained', **kwargs)
