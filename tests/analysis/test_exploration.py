"""An exploration: every part is tried, every outcome is on the page, which grows with each."""
import re

import pytest
from html_pages import Nesting

from locat_mmseg.analysis.exploration import (Finding, NotApplicable, Part, explore,
                                              exploration_page, values_of)
from locat_mmseg.analysis.report import paragraph


def part(title, look):
    return Part(title, f'What {title} is.', f'python tools/{title}.py', look)


def refused():
    raise NotApplicable('no masks in the data')


def wrong():
    raise ValueError('feature 9: expected 0 to 3')


def defect():
    raise KeyError('lost')


def good():
    return Finding([paragraph('seen')], dict(value=1.5), ['b: the model has no B'])


@pytest.fixture
def parts():
    looks = dict(a=good, b=refused, c=wrong, d=defect, e=good, f=good)
    return {name: part(f'Part-{name}', look) for name, look in looks.items()}


def test_no_part_stops_another_and_each_says_what_came_of_it(parts, capsys):
    explore(parts, 'abcde', lambda: None)
    assert [p.state for p in parts.values()] == [
        'done', 'not run', 'failed', 'failed', 'done', 'not run']
    assert [p.reason for p in parts.values()] == [
        '', 'no masks in the data', 'ValueError: feature 9: expected 0 to 3', "KeyError: 'lost'",
        '', 'not asked for (--parts)']
    printed = capsys.readouterr()
    assert 'Traceback' in printed.err and 'in defect' in printed.err
    assert 'in wrong' not in printed.err  # a sentence is enough
    assert '[2/5] Part-b: not run: no masks in the data' in printed.out
    assert 'not run: b: the model has no B' in printed.out
    values = values_of(parts)
    assert values['a']['values'] == dict(value=1.5) and values['a']['reason'] is None
    assert values['a']['left_out'] == ['b: the model has no B']
    assert (values['d']['state'], values['d']['values']) == ('failed', None)


def test_page_has_every_part_with_its_sentence_and_command(parts):
    explore(parts, 'abcde', lambda: None)
    parsed = Nesting(exploration_page('A < B', dict(model='m <'), parts))
    texts = [text for _, text in parsed.texts]
    for name in parts:
        assert {f'Part-{name}', f'What Part-{name} is.', f'python tools/Part-{name}.py'} <= {*texts}
    assert texts.count('seen') == 2 and texts.count('Not run: b: the model has no B') == 2
    assert 'Failed: ValueError: feature 9: expected 0 to 3' in texts
    assert 'Not run: no masks in the data' in texts
    assert parsed.addresses == [f'#{name}' for name in parts]
    assert ': done in 0 s; without 1 of its experiments' in texts


def test_links_lead_to_headings(parts):
    text = exploration_page('', {}, parts)
    assert re.findall('href="#(.)"', text) == re.findall('<h2 id="(.)"', text) == [*parts]


def test_written_before_and_after_every_part(parts):
    states = []
    explore(parts, 'ac', lambda: states.append([p.state for p in parts.values()]))
    first, third = ([line[place] for line in states] for place in (0, 2))
    assert first == ['running, or ended here', 'done', 'done', 'done']
    assert third == ['not reached yet', 'not reached yet', 'running, or ended here', 'failed']


def test_a_killed_run_leaves_what_it_had(parts):
    def killed():
        raise KeyboardInterrupt
    parts['c'].look, pages = killed, []
    with pytest.raises(KeyboardInterrupt):
        explore(parts, parts, lambda: pages.append(exploration_page('', {}, parts)))
    texts = [text for _, text in Nesting(pages[-1]).texts]
    assert 'seen' in texts and 'Running, or ended here' in texts
    assert texts.count('Not reached yet') == 3
