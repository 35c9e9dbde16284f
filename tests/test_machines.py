"""Runs of the suite as other machines: what is made of the lines that pytest closes with."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests import machines


@pytest.mark.parametrize(
    ("output", "status", "passed", "counts"),
    [
        ("....\n17666 passed, 30 skipped in 300.11s (0:05:00)\n", 0, True, "17666 passed, 30 skipped"),
        ("==== 3 passed in 0.12s ====\n", 0, True, "3 passed"),
        ("FAILED a.py::b[c] - assert 0\n1 failed, 3 passed in 2.00s\n", 1, False, "1 failed, 3 passed"),
        ("2 passed, 1 error in 2.00s\n", 1, False, "2 passed, 1 error"),
        ("3 deselected in 0.12s\n", 5, False, "3 deselected"),
        ("Fatal Python error: Illegal instruction\n", -4, False, "no result (exit -4)"),
    ],
)
def test_a_run_is_read(output: str, status: int, passed: bool, counts: str) -> None:
    outcome = machines.read(output, status)
    assert (outcome.passed, outcome.counts) == (passed, counts)
    assert outcome.failures == [line for line in output.splitlines() if line.startswith("FAILED")]


def test_configurations_are_told_to_the_libraries_and_to_the_suite() -> None:
    for configuration in machines.CONFIGURATIONS.values():
        assert configuration.environment()["OPENBLAS_CORETYPE"] == configuration.core
    narrow = machines.CONFIGURATIONS["avx2"]
    assert narrow.arguments() == ["--vectors=256"] and machines.CONFIGURATIONS["zen"].arguments() == []
    assert "X86_V3" not in narrow.environment().get("NPY_DISABLE_CPU_FEATURES", "").split()


def test_arguments_of_the_suite_stand_behind_two_dashes(capsys: pytest.CaptureFixture[str]) -> None:
    assert machines._split(["zen", "--", "-x", "tests"]) == (["zen"], ["-x", "tests"])
    assert machines._split(["zen"]) == (["zen"], [])
    with pytest.raises(SystemExit):
        machines.main(["486"])
    assert "no configuration 486" in capsys.readouterr().err


def test_the_suite_is_held_to_narrower_vectors() -> None:
    """Every module of the compiler is given the narrowed CPU, whoever has imported it by then."""
    program = """
from tests.support.cpus import hold_to
hold_to(128)
from hybridml_compiler.targets.registry import find_target
from hybridml_compiler.targets.cpu.runtime import jit
print(find_target().spec.vector_bits, jit.host_spec().vector_bits)
"""
    root = Path(__file__).parent.parent
    run = subprocess.run([sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["128", "128"]
