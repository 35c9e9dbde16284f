"""The tree of Markdown that the generator reads: the pages of the repository, and those that are made here.

Pages link to each other as files of the repository, so that they can be read on a code host. On the site a link to a
page goes there, one to any other file to the code host, and names such as `hm.cond` to their entry of the reference.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath

from docs.site import gallery, notebooks, reference

ROOT = Path(__file__).parents[2]
REPOSITORY = "https://github.com/hybridml/hybridml/blob/main"
SIGNPOST = "docs/site/index.md"  # the front page of the site
LINK = re.compile(r"`[^`\n]*`|(\]\()([^)#\s]*)(#[^)\s]*)?\)")  # code is none
FENCE = re.compile(r"^ *(```|~~~).*?^ *\1 *$", re.MULTILINE | re.DOTALL)
# A name in code, alone or called: not in a heading, nor in a link.
NAME = re.compile(r"(?<![\[`])`(\w+(?:\.\w+)+)((?:\([^`]*\))?)`(?![`\]])")


def sources() -> dict[str, str]:
    """Pages of the repository -> where they stand on the site."""
    found = {
        SIGNPOST: "index.md",
        "README.md": "readme.md",
        "CHANGELOG.md": "changelog.md",
        "CONTRIBUTING.md": "contributing.md",
    }
    for path in sorted((ROOT / "docs").rglob("*.md")):
        inside = path.relative_to(ROOT / "docs")
        if inside.parts[0] != "site":
            found[path.relative_to(ROOT).as_posix()] = inside.as_posix()
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        found[path.relative_to(ROOT).as_posix()] = f"notebooks/{path.stem}.md"
    return found


def relative(target: str, page: str) -> str:
    """A page or picture of the site as a link from another one."""
    return os.path.relpath(target, PurePosixPath(page).parent).replace(os.sep, "/")


def _outside_of_fences(text: str, change: Callable[[str], str]) -> str:
    parts, end = [], 0
    for fence in FENCE.finditer(text):
        parts += [change(text[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*parts, change(text[end:])])


def with_links(text: str, source: str, page: str, places: Mapping[str, str]) -> str:
    """The text of a page of the repository with links of the site. LookupError for a link that leads nowhere."""

    def lead(match: re.Match[str]) -> str:
        if match[1] is None:
            return match[0]
        target, anchor = match[2], match[3] or ""
        if target.startswith("repository:"):
            return f"{match[1]}{REPOSITORY}/{target.removeprefix('repository:')})"
        if target.startswith("site://"):  # to a page that is made here
            return f"{match[1]}{relative(target.removeprefix('site://'), page)}{anchor})"
        if not target or "://" in target or target.startswith("mailto:"):
            return match[0]
        path = os.path.normpath(PurePosixPath(source).parent / target).replace(os.sep, "/")
        if path in places:
            return f"{match[1]}{relative(places[path], page)}{anchor})"
        if not (ROOT / path).exists():
            raise LookupError(f"{source} links to {target}, which is not there")
        if PurePosixPath(path).suffix in (".svg", ".png") and path.startswith("docs/"):
            return f"{match[1]}{relative(path.removeprefix('docs/'), page)})"
        return f"{match[1]}{REPOSITORY}/{path}{anchor})"

    return _outside_of_fences(text, lambda part: LINK.sub(lead, part))


def with_names(text: str, page: str, homes: Mapping[str, str]) -> str:
    """The text with a link from each name of the face in code to its entry."""

    def lead(match: re.Match[str]) -> str:
        home = homes.get(match[1]) or homes.get(f"hm.{match[1]}")  # docstrings say `functional.relu`
        return match[0] if home is None else f"[`{match[1]}{match[2]}`]({relative(f'reference/{home}', page)})"

    def line(text: str) -> str:
        """A line, with no link in a heading nor in another link."""
        pieces = [] if text.startswith("#") else re.split(r"(\[[^\]]*\]\([^)]*\))", text)
        return "".join(piece if k % 2 else NAME.sub(lead, piece) for k, piece in enumerate(pieces)) or text

    return _outside_of_fences(text, lambda part: "\n".join(map(line, part.split("\n"))))


def _texts(folder: Path) -> Iterator[tuple[str, str, str]]:
    """(file of the repository, page of the site, text) of each page."""
    for source, page in sources().items():
        path = ROOT / source
        yield (
            source,
            page,
            notebooks.markdown(path, folder / page) if path.suffix == ".ipynb" else path.read_text("utf-8"),
        )
    yield "docs/gallery.md", "gallery.md", gallery.page()
    for page, text in reference.pages().items():
        yield f"docs/{page}", page, f"---\nsearch:\n  boost: 4\n---\n{text}"  # a name leads to its entry first


def stage(folder: Path) -> dict[str, str]:
    """Writes all pages to a folder; returns public name -> its place in the reference."""
    shutil.rmtree(folder, ignore_errors=True)
    homes = reference.homes_of(reference.sections())
    texts = {page: (source, text) for source, page, text in _texts(folder)}
    places = {source: page for page, (source, _) in texts.items()}
    for page, (source, text) in texts.items():
        target = folder / page
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(with_names(with_links(text, source, page, places), page, homes), encoding="utf-8")
    docs = ROOT / "docs"
    for kind in ("svg", "png"):
        for picture in docs.rglob(f"*.{kind}"):
            target = folder / picture.relative_to(docs)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(picture, target)
    shutil.copy(docs / "site/extra.css", folder)
    return homes
