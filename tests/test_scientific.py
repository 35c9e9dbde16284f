"""The benchmark of loops and arrays: what a run records, and that nothing which fails is hidden or counted."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks import array_programs, measure, scientific
from benchmarks.array_worker import Source
from benchmarks.process import Process
from hybridml_examples.study.process import Failure
from hybridml_examples.study.timing import memory

SHORT = ["--rounds", "1", "--seconds", "0.001", "--threads", "1"]


def test_a_run_records_what_it_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "scientific.json"
    asked = ["pagerank", "ocean_mixing", "--candidates", "numpy,hybridml traced as np"]
    assert scientific.main([*asked, *SHORT, "--json", str(path)]) == 0
    found = json.loads(path.read_text())
    assert found["command"].startswith("python -m benchmarks.scientific pagerank ocean_mixing")
    assert found["programs"].keys() == {"pagerank", "ocean_mixing"} and found["preset"] == "S"
    for candidates in found["programs"].values():
        assert candidates.keys() == {"numpy", "hybridml traced as np"}
        for facts in candidates.values():
            assert facts["note"] == "" and 0 < facts["median"] and 0 < facts["first_call"]
            assert facts["difference"] <= scientific.TOLERANCE["float64"] and facts["samples"] == 1
            assert 0 < facts["memory"] or not memory()
    assert found["summary"]["speed"]["numpy / hybridml traced as np"]["programs"] == 2
    assert found["summary"]["failed"]["hybridml traced as np"] == 0
    assert "| pagerank | " in capsys.readouterr().out


def test_failures_are_told_and_not_counted() -> None:
    good = {"note": "", "warnings": [], "median": 0.002, "first_call": 0.01, "memory": 5 << 20}
    fast, wrong = good | {"median": 0.001, "memory": 9 << 20}, {"note": "differs by 1", "warnings": []}
    programs = {
        "one": {"numpy": good, "hybridml traced": fast, "numba n": wrong, "numba np": fast, "jax": wrong},
        "two": {"numpy": good, "hybridml traced": {"note": "no answer in 60 s", "warnings": []}},
    }
    lines = list(scientific.report(programs, {"numpy": good, "hybridml traced": good | {"memory": 6 << 20}}))
    assert "| one | 2.00 ms | - | - | 1.00 ms | - | 1.00 ms | differs | 10.0 ms | - |" in lines
    assert "| two | 2.00 ms | - | - | time-out | - | - | - | - | - |" in lines
    assert "- one, numba n: differs by 1" in lines and "- two, hybridml traced: no answer in 60 s" in lines
    assert "| numpy / hybridml traced | 2.00 | 1 | 0 | 2 one |" in lines
    assert "| hybridml traced | 1 | 10.0 ms | 10.0 ms one | 1 | 3 MiB one | 1 MiB |" in lines


def test_a_result_that_is_wrong_or_late_is_not_timed(tmp_path: Path) -> None:
    program = next(program for program in scientific.own_programs() if program.name == "vertical_sweep")
    prepared = scientific.Prepared(program, {"n": 3, "levels": 4}, 1e-8, tmp_path)
    prepared.write("float32")
    with Process("numpy", 1, str(tmp_path), module="array_worker") as process:
        assert prepared.load(process).note == "" and prepared.expected[0].dtype == np.float32
        prepared.expected[0] = prepared.expected[0] + np.float32(0.1)
        assert prepared.load(process).note.startswith("differs by ")
    endless = tmp_path / "endless.py"
    endless.write_text("def endless():\n    while True:\n        pass\n")
    with Process("numpy", 1, str(tmp_path), module="array_worker", patience=5.0) as process:
        process.ask()
        process.patience = 0.1
        with pytest.raises(Failure, match=r"no answer in 0\.1 s"):
            process.ask(load=Source(str(endless), "endless", [], {}), inputs=str(tmp_path / "inputs.npz"), results="")


def test_programs_of_a_checkout_of_npbench(tmp_path: Path) -> None:
    folder = tmp_path / "npbench" / "benchmarks" / "polybench" / "twice"
    folder.mkdir(parents=True)
    (tmp_path / "bench_info").mkdir()
    (folder / "twice.py").write_text("import numpy as np\ndef initialize(N):\n    return np.arange(N, dtype=float)\n")
    (folder / "twice_numpy.py").write_text("def kernel(N, x):\n    x *= 2\n")
    init = {"func_name": "initialize", "input_args": ["N"], "output_args": ["x"]}
    about = {"module_name": "twice", "relative_path": "polybench/twice", "func_name": "kernel", "init": init}
    about |= {"parameters": {"S": {"N": 3}}, "input_args": ["N", "x"]}
    (tmp_path / "bench_info" / "twice.json").write_text(json.dumps({"benchmark": about}))
    (program,) = scientific.polybench(tmp_path)
    assert program.name == "polybench twice" and "jax" not in program.files
    prepared = scientific.Prepared(program, program.presets["S"], 1e-8, tmp_path)
    prepared.write("float64")
    with Process("numpy", 1, str(tmp_path), module="array_worker") as process:
        entries = measure.measure_rounds(prepared, {"numpy": process}, 1, 0.001)
    assert entries["numpy"].samples
    assert [a.tolist() for a in prepared.expected] == [[0.0, 2.0, 4.0]], "what a program writes into is a result"


def test_own_programs_have_every_version_that_is_written() -> None:
    files = {program.name: program.files for program in scientific.own_programs()}
    assert len(files) == len(array_programs.PROGRAMS) == 10
    assert all("jax" in of for of in files.values())
    assert sum("numba loops" in of for of in files.values()) == 3
