"""The first call of a process imports what it needs ([Note: Compile time])."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hybridml_compiler.targets.cpu.runtime.linking import image

LATE = (
    *("llvmlite.binding", "llvmlite.ir", "numpy.random", "pkgutil"),
    *(f"hybridml_compiler.loops.{name}" for name in ("parse", "notation", "transcendental.exp", "transcendental.pow")),
    *("hybridml_compiler.schedule.text", "hybridml_compiler.targets.cpu.llvm.checked"),
)
PROGRAM = f"""
import sys
import hybridml as hm
print(hm.trace(lambda x: x * 2 + 1)(hm.ones(1)).item())
print([name for name in {LATE} if name in sys.modules])
print(hm.trace(lambda x: hm.exp(x) * 2)(hm.zeros(1)).item())
"""


@pytest.mark.skipif(not image.SUPPORTED, reason="a platform where LLVM links")
def test_what_a_program_does_not_use_is_not_imported(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM],
        env={**os.environ, "HYBRIDML_CACHE_DIR": str(tmp_path)}, cwd=Path(__file__).parents[2],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.stdout.splitlines() == ["3.0", "[]", "2.0"], done.stderr
