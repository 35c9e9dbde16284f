"""The public surface: what `dir(hm)` offers, and nothing else."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml import arrays
from hybridml_compiler.ops.table import OPS

ROOT = Path(__file__).parents[1]
PROGRAM = ROOT / "tests/support/typed_program.py"
MODULES = {
    "amp", "autograd", "cuda", "data", "distributed", "distributions", "errors", "fft", "func", "functional", "io",
    "linalg", "metrics", "models", "nn", "optim", "random", "signal", "special", "testing", "training", "utils",
}  # fmt: skip
CONSTANTS = {
    "__array_api_version__", "__version__", "c_", "e", "inf", "mgrid", "nan", "newaxis", "ogrid", "pi", "r_",
}  # fmt: skip
INTERNAL = [op for op in OPS.values() if not op.public]


def kind(name: str, value: Any) -> str:
    if isinstance(value, types.ModuleType):
        return "public module" if name in MODULES else "internal module"
    if isinstance(value, np.dtype):
        return "dtype"
    if type(value).__module__ == "hybridml.interop.pytorch.hardware":
        return "hardware"
    return "callable" if callable(value) else "constant" if name in CONSTANTS else "unknown"


def test_every_public_name_is_for_users() -> None:
    kinds = {name: kind(name, getattr(hm, name)) for name in dir(hm)}
    assert not {name for name, found in kinds.items() if found in ("internal module", "unknown")}
    assert {name for name, found in kinds.items() if found == "public module"} == MODULES
    assert {*dir(hm)} - {*hm.__all__} == {"bool", "compile", "complex", "float", "int", "__version__"}
    assert {*hm.__all__} <= {*dir(hm)}
    assert len(set(hm.__all__)) == len(hm.__all__)
    private = {"__array_api_version__", "__array_namespace_info__", "__version__"}
    assert not {name for name in dir(hm) if name.startswith("_")} - private


def test_what_users_cannot_list_is_private_or_a_module_of_ours() -> None:
    """`import hybridml.core` must find what it names, so Python keeps submodules among the attributes."""
    hidden = {name: value for name, value in vars(hm).items() if name[0] != "_" and name not in dir(hm)}
    ours = {name: sys.modules.get(f"hybridml.{name}") for name in hidden}
    assert hidden == ours


@pytest.mark.parametrize("op", INTERNAL, ids=lambda op: op.name)
def test_rows_that_serve_others_have_no_public_name(op: Any) -> None:
    assert op.name not in dir(hm)
    assert not hasattr(hm, op.name) or getattr(hm, op.name) is not op.fn
    assert getattr(arrays, op.name) is op.fn  # inside, they are called by name
    assert op.method is None and op.operator is None


def test_the_typed_program_runs() -> None:
    spec = importlib.util.spec_from_file_location("typed_program", PROGRAM)
    assert spec is not None and spec.loader is not None
    program = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = program  # as classes of a program expect to find it
    try:
        spec.loader.exec_module(program)
        assert program.main() > 0.9
    finally:
        del sys.modules[spec.name]


def mypy(tmp_path: Path, program: str) -> str:
    """What mypy says of a program in strict mode."""
    file = tmp_path / "program.py"
    file.write_text(program, encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), str(file)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout


@pytest.mark.slow
def test_types_of_a_users_program(tmp_path: Path) -> None:
    wrong = (
        "hm.exp([1.0])\nhm.ones((2,)).summ()\nhm.after(1, 2)\nlength: int = hm.zeros((2,)).sum()\n"
        "hm.matmull(hm.ones((2,)))\nhm.nn.ReLU(3)\nhm.nn.Linear(2, 2)()\n"
        "hm.zeros(2, 3)\nhm.trace(abs)()\nhm.trace(strict=True)(abs)(1.0).upper()\n"
    )
    everything = "".join(f"hm.{name}\n" for name in dir(hm))
    assert "Success" in mypy(tmp_path, PROGRAM.read_text("utf-8") + everything)
    found = mypy(tmp_path, f"import hybridml as hm\n{wrong}")
    assert [line.rpartition("[")[2] for line in found.splitlines() if "error:" in line] == [
        "arg-type]", "attr-defined]", "attr-defined]", "assignment]", "attr-defined]", "arg-type]",
        "call-arg]", "arg-type]", "call-arg]", "attr-defined]",
    ], found  # fmt: skip
