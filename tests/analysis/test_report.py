"""Pages: whole, self-contained, escaped, and of figures that fit a narrow screen."""
import base64
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

from locat_mmseg.analysis.report import (data_uri, figures, heading, new_figure, page, paragraph,
                                         table)

VOID = {'meta', 'img', 'wbr'}


class Nesting(HTMLParser):
    """Follows the tags of a page; every one must be closed in its turn."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.addresses: list[str] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list) -> None:
        self.addresses += [value for name, value in attrs if name in ('src', 'href')]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.texts.append((self.open[-1], data))


def drawing(slope: float = 1.):
    figure = new_figure()
    figure.subplots().plot([0, 1], [0, slope])
    return figure


def test_page_is_whole_escaped_and_asks_nothing_of_the_network():
    text = page('A < B', [heading('C & D'), paragraph('E <script>'), figures({'F "G"': drawing()}),
                          table(['x', 'y'], [['<i>', 0.12345]], 'H')])
    parsed = Nesting(text)
    assert [part for part in parsed.texts if part[0] not in ('style', 'title')] == [
        ('h1', 'A < B'), ('h2', 'C & D'), ('p', 'E <script>'), ('figcaption', 'F "G"'),
        ('span', 'H'), ('th', 'x'), ('th', 'y'), ('td', '<i>'), ('td', '0.123')]
    assert parsed.addresses and all(a.startswith('data:') for a in parsed.addresses)
    assert 'url(' not in text and '@import' not in text
    assert '<meta name="viewport" content="width=device-width' in text


def test_figures_are_svg_with_text_in_words_and_fit_a_narrow_screen():
    text = figures({'Rises': drawing()})
    assert 'alt="Rises"' in text
    root = ElementTree.fromstring(base64.b64decode(re.search('base64,([^"]+)"', text).group(1)))
    assert root.tag == '{http://www.w3.org/2000/svg}svg'
    width = float(root.get('width').removesuffix('pt')) * 96 / 72
    assert 300 < width <= 400 - 2 * 14  # the page's margins
    assert any(node.text == '1.0' for node in root.iter('{http://www.w3.org/2000/svg}text'))
    for node in root.iter():
        assert not any('href' in name and not value.startswith('#')
                       for name, value in node.attrib.items())


def test_figures_are_the_same_in_each_run():
    assert data_uri(drawing()) == data_uri(drawing()) != data_uri(drawing(2.))


def test_rows_of_another_length_are_refused():
    with pytest.raises(ValueError, match=r"row \(1,\) has 1 cells for 2 columns \('a', 'b'\)"):
        table(['a', 'b'], [[1]])
