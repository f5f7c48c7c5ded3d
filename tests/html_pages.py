"""Pages as the tests read them."""
from html.parser import HTMLParser

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
