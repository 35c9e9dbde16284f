"""Whether markup is well formed."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

_VOID = ("meta", "br")


class _Balanced(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, tag


def balanced(text: str) -> None:
    """Every tag that is opened is closed, in order."""
    parser = _Balanced()
    parser.feed(text)
    assert not parser.open, parser.open
