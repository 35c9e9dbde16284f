"""Eight threads and forked children for a moment each; `make stress` does the same for minutes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hybridml.tracing.python_state import guards

ROOT = Path(__file__).parent.parent.parent
# In processes of their own: a crash must be seen, and first calls are first in a fresh process only.
GROUPS = (
    ("first_calls",),
    ("retraces", "gradients", "random_numbers", "checkpoints", "optimizers"),
    ("eager_operations", "saves_and_loads", "settings"),
    ("forks",),
)


@pytest.mark.parametrize("names", GROUPS, ids=lambda names: names[0])
def test_threads_get_what_one_would(names: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "tests.stress.scenarios", "0", *names]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.count("held for 1 rounds") == len(names)


def test_code_of_functions_that_are_gone_is_forgotten() -> None:
    code = compile("def f(): return x", "once.py", "exec")
    before = sys.getrefcount(code)
    guards._names(code)
    for k in range(guards._MOST_CODES):
        guards._names(compile(f"def f(): return x{k}", f"{k}.py", "exec"))
    assert sys.getrefcount(code) == before
