"""Writes the documentation site to build/site/html: ``make site``.

Fails for links and anchors that lead nowhere, for names without an entry, and for what pages fetch from elsewhere.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import yaml

from docs.site import check, reference, stage

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build/site"


def navigation(pages: Path) -> str:
    """`mkdocs.yml` with the pages that are found: notebooks, notes, the reference."""

    def listed(folder: str) -> list[dict[str, str]]:
        return [{_title(path): f"{folder}/{path.name}"} for path in sorted((pages / folder).glob("*.md"))]

    face = [{title: f"reference/{page}.md"} for page, (title, _) in reference.FACE.items()]
    modules = [{title: f"reference/{page}.md"} for page, (title, _) in reference.MODULES.items()]
    parts = {
        "NOTEBOOKS": listed("notebooks"),
        "NOTES": listed("notes"),
        "REFERENCE": [
            "reference/index.md",
            {"hm": [{"Methods of tensors": "reference/tensor.md"}, *face]},
            {"Modules": modules},
            {"Tables": [{"Operations": "ops.md"}, {"Layers": "layers.md"}]},
        ],
    }
    text = (Path(__file__).parent / "mkdocs.yml").read_text("utf-8")
    for name, found in parts.items():
        text = text.replace(f": {name}\n", f": {yaml.safe_dump(found, default_flow_style=True, width=10**6).strip()}\n")
    return text


def _title(path: Path) -> str:
    heading = re.search(r"^# (.*)$", path.read_text("utf-8"), re.MULTILINE)
    return heading[1] if heading else path.stem


def main() -> int:
    homes = stage.stage(BUILD / "pages")
    (BUILD / "mkdocs.yml").write_text(navigation(BUILD / "pages"), encoding="utf-8")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--clean", "-f", str(BUILD / "mkdocs.yml")]
    # Its authors advertise their next generator at each build; the tree of pages is plain Markdown for any generator.
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    run = subprocess.run(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if run.returncode:  # --quiet would have no word for what is wrong
        print("".join(line for line in run.stdout.splitlines(keepends=True) if not line.startswith("INFO")))
        return run.returncode
    faults = check.faults(BUILD / "html", homes)
    for fault in faults:
        print(fault)
    if not faults:
        print(f"{len(homes)} names, {len(list((BUILD / 'html').rglob('*.html')))} pages: {BUILD / 'html/index.html'}")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
