"""Web pages of results: one file that carries its figures and asks nothing of the network.

A page is a list of parts, each a string of HTML made by `paragraph`, `table` or `figures`. It is
laid out for narrow and wide screens alike: figures keep the size they were drawn at and flow into
as many columns as fit, tables scroll by themselves under their first column.
"""
import base64
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from PIL import Image

from .tables import number

# Inches at 96 pixels each: 369 pixels, a narrow screen's width less its margins.
FIGURE_SIZE = (3.85, 3.1)
PICTURE_SIZE = 96  # pixels, of the longer side of a picture in a row
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
.table { overflow-x: auto; margin-top: 10px;
         background: /* a shadow at the right where there is more */
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
pre { background: #f3f3f3; padding: 6px 8px; font-size: 0.8125em; white-space: pre-wrap;
      max-width: 110ch; }
.failed { border-left: 4px solid #D55E00; padding-left: 10px; }
.strip { display: flex; gap: 10px; overflow-x: auto; padding: 4px 0 10px; }
.strip figure { flex: none; max-width: none; }
.strip div { display: flex; gap: 2px; } .strip img { max-width: none; }
.strip figcaption { white-space: pre-line; }
.strips { display: grid; gap: 0 20px;
          grid-template-columns: repeat(auto-fill, minmax(min(100%, 600px), 1fr)); }
.strips section { min-width: 0; } h3 { font-size: 0.9375em; margin: 0.8em 0 0; }
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


def heading(text: str, anchor: str = '') -> str:
    """A heading below the title, which links find by its anchor."""
    name = f' id="{escape(anchor)}"' if anchor else ''
    return f'<h2{name}>{escape(text)}</h2>'


def paragraph(text: str, kind: str = '') -> str:
    """A paragraph of plain text; of the kind 'failed', marked at its edge."""
    name = f' class="{escape(kind)}"' if kind else ''
    return f'<p{name}>{escape(text)}</p>'


def command(text: str) -> str:
    """A command line, to be copied."""
    return f'<pre><code>{escape(text)}</code></pre>'


def contents(entries: Iterable[tuple[str, str, str]]) -> str:
    """A list of links to headings.

    Args:
        entries: of each the anchor, the text of the link, and text behind it.
    """
    return '<ul>' + '\n'.join(f'<li><a href="#{escape(anchor)}">{escape(text)}</a>: '
                              f'{escape(note)}</li>' for anchor, text, note in entries) + '</ul>'


def picture_strips(strips: Iterable[tuple[str, Sequence[tuple[str, Sequence[np.ndarray]]]]]) -> str:
    """Rows of pictures, each under a small heading; one that is too long scrolls by itself.

    Args:
        strips: of each its heading, and for each place in it a caption and the pictures above it,
            bytes (height, width, 3).
    """
    sections = []
    for title, places in strips:
        shown = '\n'.join(
            '<figure><div>' + ''.join(picture(pixels, f'{title}, {caption}') for pixels in group)
            + f'</div><figcaption>{escape(caption)}</figcaption></figure>'
            for caption, group in places)
        sections.append(f'<section><h3>{escape(title)}</h3>\n'
                        f'<div class="strip" tabindex="0">{shown}</div></section>')
    return '<div class="strips">' + '\n'.join(sections) + '</div>'


def picture(pixels: np.ndarray, alt: str) -> str:
    """A picture as JPEG, small ones enlarged by whole pixels and large ones reduced; at most twice
    as fine as it is shown, for screens that can show it.

    Args:
        pixels: bytes (height, width, 3).
        alt: the same in words, for who cannot see it.
    """
    image = Image.fromarray(pixels)
    factor = max(1, round(PICTURE_SIZE / max(image.size)))
    image = image.resize((factor * image.width, factor * image.height), Image.Resampling.NEAREST)
    image.thumbnail((2 * PICTURE_SIZE, 2 * PICTURE_SIZE))
    file = io.BytesIO()
    image.save(file, 'JPEG', quality=88, subsampling=0)
    data = base64.b64encode(file.getvalue()).decode()
    width, height = (round(side * min(1, PICTURE_SIZE / max(image.size))) for side in image.size)
    return (f'<img alt="{escape(alt)}" width="{width}" height="{height}" '
            f'src="data:image/jpeg;base64,{data}">')


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


def panel(draw: Callable[..., None], *args: object) -> Figure:
    """A figure of the pages' size with what ``draw(axes, *args)`` draws."""
    figure = new_figure()
    draw(figure.subplots(), *args)
    return figure


def new_figure(**kwargs) -> Figure:
    """An empty figure of the size that pages are laid out for."""
    return Figure(figsize=FIGURE_SIZE, layout='constrained', **kwargs)
