"""The repository itself: what stands at the top, how long a file may be, and what no line may name."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from size import BUDGETS, LINES_A_FILE, lines, measure

ROOT = Path(__file__).parent.parent
TOP_LEVEL = {
    *("hybridml", "hybridml_compiler", "tests", "benchmarks", "notebooks", "docs", "examples"),
    *("pyproject.toml", "Makefile", "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE"),
    *(".ci", ".gitignore", ".pre-commit-config.yaml"),
}
# A path of one machine, or a package index of one place: neither means anything to a reader elsewhere.
MACHINE_PATH = re.compile(r"(?<![\w.~$})/-])/(?:work|root|tmp|home|Users|opt|mnt)\b(?!\()")
PACKAGE_INDEX = re.compile(r"https?://\S*/(?:simple|whl)\b")


def committed() -> list[Path]:
    """The files under version control; in an unpacked archive, the files that stand in their place."""
    if not (ROOT / ".git").exists():
        found = [path for name in sorted(TOP_LEVEL) for path in (ROOT / name, *(ROOT / name).rglob("*"))]
        return [path for path in found if path.is_file() and "__pycache__" not in path.parts]
    listing = subprocess.run(
        ["git", "-c", f"safe.directory={ROOT}", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    # A file that is deleted in the working tree is still listed until the deletion is committed.
    return [path for path in (ROOT / name for name in listing.stdout.split("\0") if name) if path.is_file()]


def test_top_level_is_the_agreed_list() -> None:
    found = {path.relative_to(ROOT).parts[0] for path in committed()}
    assert found == TOP_LEVEL, f"missing: {sorted(TOP_LEVEL - found)}; not agreed: {sorted(found - TOP_LEVEL)}"


def test_files_are_one_room() -> None:
    long = {str(path.relative_to(ROOT)): lines(path) for path in committed() if path.suffix == ".py"}
    long = {name: count for name, count in long.items() if count > LINES_A_FILE}
    assert not long, f"over {LINES_A_FILE} lines, so two rooms by now: {long}"


def test_folders_are_within_their_budgets() -> None:
    over = {folder: count for folder, (_, count) in measure().items() if count > BUDGETS[folder]}
    assert not over, f"over the budget in tests/size.py: {over}. Simplify, or raise the budget and say why."


def naming(pattern: re.Pattern[str]) -> list[str]:
    found = []
    for path in committed():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:  # an image or an archive
            continue
        for number, line in enumerate(text.splitlines(), 1):
            if pattern.search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()[:120]}")
    return found


@pytest.mark.parametrize("pattern", [MACHINE_PATH, PACKAGE_INDEX], ids=["machine path", "package index"])
def test_no_line_names_one_machine(pattern: re.Pattern[str]) -> None:
    found = naming(pattern)
    assert not found, "\n".join(found)


def test_the_patterns_find_what_they_are_for() -> None:
    places = [
        "/".join(["", "work", "main"]),
        '"' + "/".join(["", "tmp", "x"]) + '"',
        "/".join(["", "home", "me", "a.py"]),
    ]
    assert all(MACHINE_PATH.search(place) for place in places)
    harmless = ["a/tmp/b", "~/opt/x", "https://host/home/page", "$(ROOT)/work", "path / root", "./home/x"]
    assert not any(MACHINE_PATH.search(place) for place in harmless)
    assert PACKAGE_INDEX.search("https:" + "//host/whl/cpu")
