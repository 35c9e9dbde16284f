"""Whether markup is well formed, and whether a page can be read by ear and by keyboard."""

from __future__ import annotations

from html.parser import HTMLParser
from itertools import pairwise

_VOID = ("meta", "br")
Attributes = dict[str, str | None]


class Markup(HTMLParser):
    """The elements of a text: (name, attributes, names of those around it), in order; every tag that opens closes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, Attributes, tuple[str, ...]]] = []
        self.feed(text)
        assert not self.open, self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs), tuple(self.open)))
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs), tuple(self.open)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, tag

    def all(self, *tags: str) -> list[Attributes]:
        """The attributes of the elements with these names."""
        return [attributes for tag, attributes, _ in self.elements if tag in tags]


def balanced(text: str) -> None:
    """Every tag that is opened is closed, in order."""
    Markup(text)


def accessible(text: str) -> Markup:
    """A page or a part of one: nothing from elsewhere, tables with captions and scopes, labels on what has no text."""
    found = Markup(text)
    for outside in ("@import", "url(", " src="):
        assert outside not in text
    assert all(str(a["href"]).startswith("#") for _, a, _ in found.elements if "href" in a)
    assert not [a for tag, a, _ in found.elements if tag in ("link", "img", "iframe")]
    tables = [k for k, (tag, *_) in enumerate(found.elements) if tag == "table"]
    assert all(found.elements[k + 1][0] == "caption" for k in tables)
    assert all(a.get("scope") in ("row", "col") for a in found.all("th"))
    for k, (tag, a, around) in enumerate(found.elements):
        if tag == "svg" and a.get("aria-hidden") != "true":
            named = a.get("aria-label") or found.elements[k + 1][0] == "title"
            assert a.get("role") in ("img", "group") and named, a
        if a.get("role") in ("region", "group") and tag != "svg":
            assert a.get("aria-label"), a
        if "scroll" in (a.get("class") or "").split():
            assert a.get("tabindex") == "0", "what scrolls can have the focus"
        assert tag != "summary" or around[-1] == "details"
    names = [a["id"] for _, a, _ in found.elements if "id" in a]
    assert len(names) == len({*names})
    assert all(a["aria-labelledby"] in names for _, a, _ in found.elements if "aria-labelledby" in a)
    return found


def whole_page(text: str) -> Markup:
    """A page: language, title, one main part that the skip link leads to, headings in order without a gap."""
    found = accessible(text)
    assert text.lstrip().startswith("<!DOCTYPE html>")
    assert found.all("html")[0]["lang"] == "en" and found.all("title")
    (main,) = found.all("main")
    skip = next(a for a in found.all("a"))
    assert skip["href"] == f"#{main['id']}"
    levels = [int(tag[1]) for tag, *_ in found.elements if tag in ("h1", "h2", "h3", "h4")]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(b <= a + 1 for a, b in pairwise(levels))
    return found
