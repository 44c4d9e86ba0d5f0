"""Reading the HTML that reports write, strictly."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

__all__ = ["Checker", "parse"]


class Checker(HTMLParser):
    """Keeps tags and texts, and fails on a tag that is not closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def parse(path: Path) -> Checker:
    """The file, whose tags are all closed."""
    checker = Checker()
    checker.feed(path.read_text(encoding="utf-8"))
    checker.close()
    assert not checker.open
    return checker
