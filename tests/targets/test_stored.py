"""Whole programs on disk: another process runs them without compiling, and damage costs time only."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from hybridml_compiler import pipeline
from hybridml_compiler.graph.interpret import interpret
from hybridml_compiler.graph.ir import Graph, constant, graph_of
from hybridml_compiler.graph.rewrite import make
from hybridml_compiler.targets.cpu.program import StoredProgram
from hybridml_compiler.targets.cpu.runtime.linking import image

WHOLE = image.SUPPORTED  # elsewhere LLVM links, and only kernels are kept

# Kernels, a matrix product, a constant array, an output in the memory of an input, and an index that is checked.
PROGRAM = """
import sys, warnings
import numpy as np
from hybridml_compiler import pipeline
from hybridml_compiler.graph.ir import Graph, constant, graph_of
from hybridml_compiler.graph.rewrite import make
rng = np.random.default_rng(0)
arrays = [rng.standard_normal((300, 200), np.float32), rng.standard_normal((200, 100), np.float32), np.arange(7)]
x, w, rows = graph_of(arrays)
table = constant(rng.standard_normal((1, 100)).astype("f4"))
y = make("exp", make("add", make("matmul", x, w), table))
graph = Graph((x, w, rows), (y, make("negative", x), make("take", y, rows, axis=0)), "program")
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    program = pipeline.compile(graph, {1: 0})
found = "codegen" not in program.stats.milliseconds
from hybridml_compiler.targets.cpu.runtime import llvm_library
llvm = llvm_library.library.cache_info().currsize > 0
results = program(arrays)
import hashlib
digest = hashlib.sha256(b"".join(a.tobytes() for a in results)).hexdigest()
facts = [program.stats.nodes, program.stats.kernels, program.stats.arena_bytes]
print(found, llvm, len(caught), digest, facts, len(program.launches), program.ir.count("exp"), "define" in program.llvm)
arrays[2][3] = 300
try:
    program(arrays)
except IndexError:
    print("out of bounds")
"""


def run(directory: Path) -> list[str]:
    environment = {**os.environ, "HYBRIDML_CACHE_DIR": str(directory)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    line, refused = done.stdout.splitlines()
    assert refused == "out of bounds"
    return line.split(" ", 3)


def test_a_second_process_needs_no_compiler(tmp_path: Path) -> None:
    found, llvm, warnings, answer = run(tmp_path)
    assert (found, llvm, warnings) == ("False", "True", "0")
    found, llvm, warnings, again = run(tmp_path)
    assert (found, llvm, warnings) == (str(WHOLE), str(not WHOLE), "0")
    assert again == answer
    for path in tmp_path.rglob("*"):
        if path.is_file():
            path.write_bytes(path.read_bytes()[:-1])
    found, llvm, warnings, again = run(tmp_path)
    assert (found, llvm) == ("False", "True") and int(warnings) > 0
    assert again == answer


def graph() -> tuple[Graph, list[np.ndarray]]:
    arrays = [np.linspace(-1, 1, 77, dtype=np.float32)]
    (x,) = graph_of(arrays)
    return Graph((x,), (make("multiply", make("sin", x), constant(np.arange(77, dtype="f4"))),), "found"), arrays


@pytest.mark.parametrize("raw", [b"", b"junk" * 20, (5).to_bytes(8, "little") + b"[1, 2"], ids=["empty", "junk", "cut"])
def test_bytes_that_are_no_program_are_refused(raw: bytes) -> None:
    with pytest.raises(ValueError, match=r".*"):
        StoredProgram.unpack(raw)


def test_what_cannot_be_loaded_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    program, arrays = graph()
    expected = interpret(program, arrays)
    pipeline.compile(program)
    monkeypatch.setattr("hybridml_compiler.targets.cpu.program.find", lambda key: StoredProgram.unpack(b"nonsense" * 5))
    again = pipeline.compile(program)
    assert "codegen" in again.stats.milliseconds
    assert again(arrays)[0].tobytes() == expected[0].tobytes()


def test_programs_of_one_graph_have_their_own_code_and_stats() -> None:
    program, arrays = graph()
    one, other = pipeline.compile(program), pipeline.compile(program)
    assert one.step != other.step
    assert one(arrays)[0].tobytes() == other(arrays)[0].tobytes()
    stages = dict(other.stats.milliseconds)
    assert other.ir == one.ir and len(other.launches) == len(one.launches)
    assert other.stats.milliseconds == stages


def test_an_arena_may_be_given_away_while_a_call_begins() -> None:
    program, arrays = graph()
    executable = pipeline.compile(program)
    expected = executable(arrays)[0].tobytes()

    class Meanwhile:
        """Before this call has the lock, another thread builds the native entry."""

        def acquire(self, blocking: bool) -> bool:
            executable._arena = None
            return not blocking

        def release(self) -> None: ...

    executable._busy = Meanwhile()  # type: ignore[assignment]
    assert executable(arrays)[0].tobytes() == expected
