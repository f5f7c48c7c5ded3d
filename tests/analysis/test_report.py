"""Pages: whole, self-contained, escaped, and of figures that fit a narrow screen."""
import base64
import io
import re
from xml.etree import ElementTree

import numpy as np
import pytest
from html_pages import Nesting
from PIL import Image

from locat_mmseg.analysis.report import (command, contents, data_uri, figures, heading, new_figure,
                                         page, panel, paragraph, picture, picture_strips, table)

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


def test_links_commands_and_marked_paragraphs():
    parsed = Nesting(page('T', [heading('A', 'a'), contents([('a', 'To <A>', 'done')]),
                                command('python x.py "<b>"'), paragraph('Lost', 'failed')]))
    assert parsed.addresses == ['#a']
    assert [part for part in parsed.texts if part[0] in ('a', 'code', 'li', 'p')] == [
        ('a', 'To <A>'), ('li', ': done'), ('code', 'python x.py "<b>"'), ('p', 'Lost')]


def pixels_of(html):
    data = re.search('image/jpeg;base64,([^"]+)"', html).group(1)
    return np.array(Image.open(io.BytesIO(base64.b64decode(data)))).astype(int)


def test_small_pictures_are_enlarged_by_whole_pixels_and_large_ones_reduced():
    small = np.zeros((20, 32, 3), np.uint8)
    small[5:, :10] = [200, 100, 50]
    html = picture(small, 'a "b"')
    assert 'alt="a &quot;b&quot;" width="96" height="60"' in html
    wanted = small.repeat(3, 0).repeat(3, 1).astype(int)
    assert abs(pixels_of(html) - wanted).mean() < 2
    html = picture(np.zeros((400, 200, 3), np.uint8), '')
    assert pixels_of(html).shape == (192, 96, 3) and 'width="48" height="96"' in html


def test_strip_has_captions_and_alternatives():
    black = np.zeros((8, 8, 3), np.uint8)
    html = picture_strips([('Layer <1>', [('1.', [black, black]), ('2.', [black])])])
    parsed = Nesting(html)
    assert [text for _, text in parsed.texts] == ['Layer <1>', '1.', '2.']
    assert html.count('alt="Layer &lt;1&gt;, 1."') == 2 and len(parsed.addresses) == 3
    assert all(address.startswith('data:image/jpeg') for address in parsed.addresses)


def test_panel_has_the_size_of_pages():
    figure = panel(lambda axes, slope: axes.plot([0, slope]), 3)
    assert figure.axes[0].lines[0].get_ydata().tolist() == [0, 3]
    assert figure.get_size_inches() == pytest.approx(new_figure().get_size_inches())
