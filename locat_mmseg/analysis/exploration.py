"""Several looks at one model, one after the other, on one page that grows with each.

The page and its numbers are written anew after every part, so a run that ends early leaves what it
had; a part that fails, or does not apply to the model and its data, does not stop the others, and
the page says so.
"""
import time
import traceback
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .report import command, contents, heading, page, paragraph, table

DONE, FAILED, NOT_RUN = 'done', 'failed', 'not run'
WAITING, RUNNING = 'not reached yet', 'running, or ended here'
CAPITALS = ('Under each part stands the command that makes the same larger, by itself; DIR and '
            'CONFIG in it are to be filled in: a folder of pictures, a config whose test data are '
            'taken.')


class NotApplicable(ValueError):
    """A look that this model, or these data, do not allow; its text is the reason."""


@dataclass
class Finding:
    """What a part found.

    Attributes:
        body: HTML for the page, made by `report`.
        values: the numbers, for JSON.
        left_out: sentences on what of it could not be run, and why.
    """
    body: Sequence[str]
    values: Any = None
    left_out: Sequence[str] = ()


@dataclass
class Part:
    """One look at the model.

    Attributes:
        title: of its section.
        explanation: one sentence on what is seen.
        command: that makes the same larger.
        look: makes it; raises `NotApplicable` where it cannot.
        state: DONE, FAILED, NOT_RUN, WAITING or RUNNING.
        reason: of a part that is not done.
        finding: of one that is.
        seconds: that it took.
    """
    title: str
    explanation: str
    command: str
    look: Callable[[], Finding]
    state: str = WAITING
    reason: str = ''
    finding: Finding = field(default_factory=lambda: Finding([]))
    seconds: float = 0.

    def run(self) -> None:
        """Look, and note what came of it; a defect's traceback goes to stderr."""
        started = time.time()
        try:
            self.finding = self.look()
            self.state = DONE
        except NotApplicable as reason:
            self.state, self.reason = NOT_RUN, str(reason)
        except Exception as error:
            if not isinstance(error, ValueError):  # those are sentences
                traceback.print_exc()
            text = str(error).strip().partition('\n')[0]
            self.state, self.reason = FAILED, f'{type(error).__name__}: {text}'
        self.seconds = time.time() - started

    @property
    def summary(self) -> str:
        """State and reason in a line."""
        if self.state == DONE:
            omitted = f'; without {len(self.finding.left_out)} of its experiments' \
                if self.finding.left_out else ''
            return f'{DONE} in {self.seconds:.0f} s{omitted}'
        return f'{self.state}: {self.reason}' if self.reason else self.state


def explore(parts: Mapping[str, Part], wanted: Collection[str], write: Callable[[], None]) -> None:
    """Run parts in their order, with a line on each; call ``write`` before and after every one.

    Args:
        parts: all there are, by name.
        wanted: names of those to run; of the others the reason is that nobody asked for them.
        write: writes what is there.
    """
    for name, part in parts.items():
        if name not in wanted:
            part.state, part.reason = NOT_RUN, 'not asked for (--parts)'
    waiting = [part for part in parts.values() if part.state == WAITING]
    for number, part in enumerate(waiting, 1):
        print(f'[{number}/{len(waiting)}] {part.title} ...', flush=True)
        part.state = RUNNING
        write()
        part.run()
        print(f'[{number}/{len(waiting)}] {part.title}: {part.summary}', flush=True)
        for sentence in part.finding.left_out:
            print(f'      not run: {sentence}')
        write()


def exploration_page(title: str, facts: Mapping[str, object], parts: Mapping[str, Part]
                     ) -> str:
    """The page of what the parts found so far.

    Args:
        title: of the page.
        facts: on model, data and run.
        parts: all of them, by name.
    """
    sections = [html for name, part in parts.items() for html in section(name, part)]
    return page(title, [
        table(['what', 'value'], facts.items()), heading('Parts'), paragraph(CAPITALS),
        contents((name, part.title, part.summary) for name, part in parts.items()), *sections])


def section(name: str, part: Part) -> list[str]:
    """HTML of one part."""
    lines = [heading(part.title, name), paragraph(part.explanation), command(part.command)]
    if part.state != DONE:
        return [*lines, paragraph(f'{part.summary[0].upper()}{part.summary[1:]}',
                                  'failed' if part.state == FAILED else '')]
    return [*lines, *part.finding.body,
            *(paragraph(f'Not run: {sentence}') for sentence in part.finding.left_out)]


def values_of(parts: Mapping[str, Part]) -> dict[str, dict[str, Any]]:
    """What the parts found, for JSON."""
    return {name: dict(state=part.state, reason=part.reason or None,
                       seconds=round(part.seconds, 1), command=part.command,
                       left_out=list(part.finding.left_out), values=part.finding.values)
            for name, part in parts.items()}
