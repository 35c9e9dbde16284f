"""The tests near a change: ``make test-near``.

The change is all that differs from the merge base with main, committed or not. Near it are the tests of its rooms,
which are named as the room (`tests/nn/`, `tests/test_fft.py`), the examples in its docstrings, the tests that import a
changed module, and those of the rooms that do, if these are few; near a template are the tests of its room. Prints
them, and hands them to pytest with the arguments that follow.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import networkx as nx
import pytest

from docs.house import COMPILER, FRONT, modules

ROOT = Path(__file__).parent.parent
MOST_USERS = 3  # rooms beyond a changed module's own: of more, `make test` is not far
ALWAYS = ("test_tiny.py", "test_architecture.py", "test_repository.py")
EXAMPLES = "test_docs.py::test_docstring_examples"  # of one module, by its name
# Tests of what is no module of the packages, by the beginning of its path.
OTHERS = {
    "docs/": ("test_docs.py", "test_trust.py", "test_site.py", "test_coming_from.py"),
    "README.md": ("test_docs.py",),
    "benchmarks/": ("test_benchmarks.py", "test_roofline.py", "test_trust.py"),
    "hybridml_examples/": ("test_examples.py", "test_networks.py", "test_study.py"),
    "notebooks/": ("test_notebooks.py",),
    f"{FRONT}/": ("test_docstrings.py", "test_surface.py"),
    f"{COMPILER}/ops/": ("autograd/test_autograd_rows.py", "tracing/test_trace_rows.py"),  # which run the whole table
    "tests/support/typed_program.py": ("test_surface.py",),
    "tests/golden/": ("passes", "schedule", "graph"),
    "tests/machines.py": ("test_machines.py",),
}
EVERY = ("pyproject.toml", "Makefile", "tests/conftest.py")  # what all tests are run by


def git(*arguments: str) -> list[str]:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.split("\0" if "-z" in arguments else None) if done.returncode == 0 else []


def changed(base: str | None) -> list[str]:
    """Paths that differ from the merge base with `base` (main, or that of origin): commits, working tree, new files."""
    for name in [base] if base else ["main", "origin/main"]:
        if found := git("merge-base", name, "HEAD"):
            paths = git("diff", "--name-only", "-z", found[0]) + git("ls-files", "-z", "--others", "--exclude-standard")
            return sorted(filter(None, paths))
    raise SystemExit(f"no commit {base or 'main'} to compare with: name one, as in `make test-near BASE=HEAD~3`")


def room_of(module: str) -> str:
    return module.split(".")[1] if "." in module else "__init__"


def near(paths: Iterable[str], graph: nx.DiGraph) -> tuple[set[str], list[str]]:
    """Files and folders of `tests/`, and a line for each changed file whose tests these are not all."""
    found, notes = set(ALWAYS), []
    for path in paths:
        found.update(test for start, tests in OTHERS.items() if path.startswith(start) for test in tests)
        package, name = path.split("/")[0], Path(path).name
        if path in EVERY:
            notes.append(f"all tests are run by {path}: `make test`")
        if package not in (FRONT, COMPILER, "tests"):
            continue
        if not path.endswith(".py"):
            if package != "tests":  # data of a room, such as templates
                room = room_of(path.replace("/", "."))
                found |= {room, f"test_{room}.py"}
            continue
        module = ".".join(Path(path).with_suffix("").parts).removesuffix(".__init__")
        if module in graph and package != "tests":
            found.add(f"{EXAMPLES}[{module}]")
        importers = set(graph.predecessors(module)) if module in graph else set()
        for face in [m for m in importers if "." in m and module.startswith(f"{m}.")]:
            importers |= set(graph.predecessors(face))  # which take it from its package
        if package == "tests":
            if name.startswith("test_"):
                found.add(path.removeprefix("tests/"))
            if module in graph:
                importers = nx.ancestors(graph, module)
        else:
            found |= {room_of(module), f"test_{room_of(module)}.py"}
            users = {room_of(m) for m in importers if not m.startswith("tests.")} - {room_of(module), "__init__"}
            if len(users) <= MOST_USERS:
                found |= users | {f"test_{user}.py" for user in users}
            else:
                notes.append(f"{path} is used by {len(users)} other rooms: `make test` tests them all")
        tests = (m.split(".")[1:] for m in importers if m.startswith("tests."))
        found |= {f"{'/'.join(parts)}.py" for parts in tests if parts[-1].startswith("test_")}
    return {test for test in found if (ROOT / "tests" / test.partition("::")[0]).exists()}, notes


def main(arguments: list[str]) -> int:
    paths = changed(os.environ.get("BASE"))
    tests, notes = near(paths, modules(ROOT, FRONT, COMPILER, "tests"))
    within = {test for test in tests if {test.split("/")[0], test.partition("::")[0]} & (tests - {test})}
    chosen = [f"tests/{test}" for test in sorted(tests - within)]
    print(f"{len(paths)} changed files:", *chosen, sep="\n  ")
    print(*notes, sep="\n", flush=True)
    return pytest.main([*chosen, *arguments])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
