"""The repository itself: what stands at the top, how long a file may be, and what lines may name."""

from __future__ import annotations

import ast
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.size import BUDGETS, FILES_A_FOLDER, LINES_A_FILE, MANY_FILES, crowded, lines, measure

ROOT = Path(__file__).parent.parent
TOP_LEVEL = {
    *("hybridml", "hybridml_compiler", "tests", "benchmarks", "notebooks", "docs", "hybridml_examples"),
    *("pyproject.toml", "Makefile", "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE"),
    *(".ci", ".gitignore", ".pre-commit-config.yaml"),
}
# A path of one machine, or a package index of one place: neither means anything to a reader elsewhere.
MACHINE_PATH = re.compile(r"(?<![\w.~$})/-])/(?:work|root|tmp|home|Users|opt|mnt)\b(?!\()")
PACKAGE_INDEX = re.compile(r"https?://\S*/(?:simple|whl)\b")
# Files and modules of ours, wherever pages, comments and docstrings name them.
FILE = re.compile(r"(?<![\w.*<>/-])(?:[\w-]+/)*[\w-]+\.py\b(?!:\d)")
MODULE = re.compile(r"\bhybridml(?:_compiler)?(?:\.[a-z_]\w*)+")
FOLDER = re.compile(r"`((?:hybridml|hybridml_compiler)/[\w/]+)`")
LISTED = re.compile(r"^(\w+)\.py  ", re.MULTILINE)  # a line for a file in the docstring of its folder
# Folders of tests that are named as no room of the packages.
OTHER_TESTS = {
    "support": "what tests share",
    "golden": "texts that the compiler prints, which tests compare with",
    "fuzz": "random programs, damaged files, interrupts and kills: run for minutes too",
    "stress": "threads and forked children: run for minutes too",
}
TEST_MODULE = re.compile(r"^\s*(?:from|import) (?:tests|[\w.]*\.)?(?:test_\w+|conftest)\b", re.MULTILINE)
NOTE = re.compile(r"\[Note: ([^\]]*)")  # up to the end of the line, so that a name which is broken is no heading
HEADING = re.compile(r"^#+ \[Note: (.*)\]$", re.MULTILINE)
OTHERS = {"file.py", "path/to/file.py", "array_api_tests/test_fft.py"}  # an example, and a file of another project


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
    over = {folder: count for folder, (_, count) in measure().items() if count > BUDGETS[folder].lines}
    assert not over, f"over the budget in tests/size.py: {over}. Simplify; a raise says what was deleted for it."


def test_folders_have_few_files_side_by_side() -> None:
    many = {folder: count for folder, count in crowded().items() if folder not in MANY_FILES}
    assert not many, f"over {FILES_A_FOLDER} files, so a room of their own for some: {many}"


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


def texts() -> Iterator[tuple[str, str]]:
    """The place and the text of each line that may name files of ours."""
    for path in committed():
        name = str(path.relative_to(ROOT))
        if path.suffix == ".md" or (path.suffix == ".py" and not name.startswith("tests/")):
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                yield f"{name}:{number}", line


def exists(dotted: str) -> bool:
    try:
        pkgutil.resolve_name(dotted)
    except (ImportError, AttributeError):
        return False
    return True


def test_files_and_modules_that_are_named_exist() -> None:
    parts = [path.relative_to(ROOT).parts for path in committed()]
    known = {"/".join(path[k:]) for path in parts for k in range(len(path))} | OTHERS
    known |= {f"{name}.py" for name in sys.stdlib_module_names}
    found = list(texts())
    named = [(place, name) for place, line in found if ".py" in line for name in FILE.findall(line)]
    dotted = [(place, name) for place, line in found if "hybridml" in line for name in MODULE.findall(line)]
    folders = [(place, name) for place, line in found for name in FOLDER.findall(line)]
    there = {name: name in known for _, name in named} | {name: exists(name) for _, name in dotted}
    there |= {name: (ROOT / name).is_dir() for _, name in folders}
    wrong = [f"{place}: {name}" for place, name in [*named, *dotted, *folders] if not there[name]]
    assert not wrong, "no such file or module:\n" + "\n".join(wrong)


def test_notes_that_are_named_are_headings_and_the_reverse() -> None:
    """Measurements are in docs/notes/, under headings that the code names."""
    headings = [
        name for path in (ROOT / "docs/notes").glob("*.md") for name in HEADING.findall(path.read_text("utf-8"))
    ]
    named = {(place, name) for place, line in texts() for name in NOTE.findall(line) if name != "..."}
    lost = sorted(f"{place}: {name}" for place, name in named if name not in headings)
    assert not lost, f"no heading of a page in docs/notes: {lost}"
    unnamed = set(headings) - {name for place, name in named if ".py:" in place}
    assert not unnamed, f"headings that no code names: {sorted(unnamed)}"
    assert len(headings) == len(set(headings))


def test_folders_that_list_their_files_list_all() -> None:
    for path in committed():
        if path.name == "__init__.py":
            listed = set(LISTED.findall(ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""))
            files = {file.stem for file in path.parent.glob("*.py")} - {"__init__"}
            assert not listed or listed == files, f"{path.relative_to(ROOT)}: {sorted(listed ^ files)}"


def test_folders_of_tests_are_named_as_rooms() -> None:
    found = {path.name for path in (ROOT / "tests").iterdir() if any(path.glob("*[!c]"))}
    rooms = {path.stem for package in ("hybridml", "hybridml_compiler") for path in (ROOT / package).iterdir()}
    others = found - rooms
    assert others == OTHER_TESTS.keys(), f"not named as a room: {sorted(others ^ OTHER_TESTS.keys())}"


def test_no_file_imports_a_test() -> None:
    """What two tests need is in `tests/support/`."""
    files = sorted((ROOT / "tests").rglob("*.py"))
    found = [str(path.relative_to(ROOT)) for path in files if TEST_MODULE.search(path.read_text("utf-8"))]
    assert not found
    assert all(map(TEST_MODULE.search, ("from test_a import b", "import test_a", "from tests.core.test_a import b")))


def test_generated_pages_are_up_to_date() -> None:
    run = subprocess.run([sys.executable, "-m", "docs.generate", "--check"], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
