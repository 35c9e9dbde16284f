"""Checks of the built pages: nothing is fetched from elsewhere, no link is broken, each public name has an entry."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from html.parser import HTMLParser
from pathlib import Path

OUTSIDE = re.compile(r"(?:https?:)?//")
IN_STYLES = re.compile(r"""(?:url\(\s*['"]?|@import\s+['"])((?:https?:)?//[^)'"]+)""")
# Attributes whose address a browser fetches when it shows the page; a link that is followed by a click is none.
FETCHED = {
    "script": ("src",), "img": ("src", "srcset"), "iframe": ("src",), "source": ("src", "srcset"), "audio": ("src",),
    "video": ("src", "poster"), "embed": ("src",), "object": ("data",), "input": ("src",),
    "use": ("href", "xlink:href"),
}  # fmt: skip
NOT_FETCHED = {"canonical", "prev", "next", "edit", "alternate", "license", "author", "search"}  # rel= of <link>


class _Page(HTMLParser):
    """Addresses that a page fetches, and its anchors."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if "id" in given:
            self.anchors.add(given["id"])
        if tag == "link" and given.get("rel") not in NOT_FETCHED:
            self.fetched.append(given.get("href", ""))
        self.fetched += [given[name] for name in FETCHED.get(tag, ()) if name in given]
        self.fetched += IN_STYLES.findall(given.get("style", ""))


def from_elsewhere(path: Path) -> list[str]:
    """Addresses on other hosts that a browser would fetch for a page or a style sheet."""
    text = path.read_text("utf-8")
    if path.suffix == ".css":
        return IN_STYLES.findall(text)
    return [address for address in _Page(text).fetched if OUTSIDE.match(address.strip())]


def without_entry(html: Path, homes: Mapping[str, str]) -> list[str]:
    """Public names that have no anchor where they should be."""
    places = {name: home.split(".md#") for name, home in homes.items()}
    pages = {page: html / "reference" / page / "index.html" for page, _ in places.values()}
    anchors = {page: _Page(path.read_text("utf-8")).anchors for page, path in pages.items()}
    return [name for name, (page, anchor) in places.items() if anchor not in anchors[page]]


def faults(html: Path, homes: Mapping[str, str]) -> Iterable[str]:
    """The faults of the built pages, a line each."""
    files = sorted(path for kind in ("html", "css") for path in html.rglob(f"*.{kind}"))
    found = [f"{path.relative_to(html)} fetches {address}" for path in files for address in from_elsewhere(path)]
    return [*found, *(f"{name} has no entry in the reference" for name in without_entry(html, homes))]
