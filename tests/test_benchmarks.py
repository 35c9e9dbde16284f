"""The benchmark program from end to end, without peers and with the shortest measurements: it must run, not be fast."""

from __future__ import annotations

import doctest
import inspect
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import (
    compare,
    eager,
    eager_operations,
    limits,
    measure,
    memory,
    models,
    ours,
    process,
    report,
    transforms,
    trust,
    worker,
)  # fmt: skip
from benchmarks.transformed import TRANSFORMS
from benchmarks.workloads import SCALING, WORKLOADS
from hybridml_examples.study.process import Failure

SMALL: dict[str, dict[str, int]] = {
    "linear_gelu": {"n": 32},
    "matmul_bf16": {"n": 32},
    "matmul_int8": {"n": 32},
    "attention": {"length": 16},
    "mlp_step": {"batch": 4, "width": 16},
    "gpt_step": {"batch": 2, "length": 8, "width": 64, "layers": 1, "vocabulary": 32},
    "lstm_step": {"batch": 2, "length": 3, "width": 8, "inputs": 4},
    "resnet_step": {"batch": 2, "side": 64, "classes": 10, "width": 4},
    "alexnet_step": {"batch": 1, "side": 64, "classes": 10, "hidden": 16},
    "ncf_step": {"batch": 8, "users": 20, "items": 10, "width": 8},
}


def test_every_workload_has_a_function_and_known_candidates() -> None:
    for name, workload in WORKLOADS.items():
        assert set(workload.candidates) <= set(worker.CANDIDATES)
        assert workload.kind == "import" or workload.training or callable(getattr(ours, name))
    assert all(sizes.keys() <= workload_sizes(name) for name, sizes in SMALL.items())
    assert all(size in workload_sizes(name) for name, size, _ in SCALING)


def workload_sizes(name: str) -> set[str]:
    make = WORKLOADS[name].training or WORKLOADS[name].inputs
    assert make is not None
    return set(inspect.signature(make).parameters)


STEADY = [n for n, w in WORKLOADS.items() if w.kind == "steady" and len(w.candidates) > 2]
DEEP = ("resnet_step", "alexnet_step")  # 6 s of compiling; the examples have a smaller ResNet


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if n in DEEP else n for n in STEADY])
def test_the_styles_agree_on_smaller_inputs(name: str) -> None:
    workload, sizes = WORKLOADS[name], SMALL.get(name, {})
    small = {k: smaller(a) if name not in SMALL else a for k, a in workload.arrays(**sizes).items()}
    results = []
    for style in ("eager", "traced"):
        case = workload.case(ours, small, style, **sizes)
        found = []
        for _ in range(2):
            case.call()
            found += [a.copy() for a in case.read()]
        case.reset()
        case.call()
        assert case.reset is bool or case.read()[0] == pytest.approx(found[0], rel=1e-5), "reset goes back to the start"
        results.append(found)
    assert measure.difference(*results) <= workload.tolerance


def smaller(a: np.ndarray) -> np.ndarray:
    """Fewer elements, rows or pixels; weights as they are."""
    if a.ndim == 4:
        return a[:1, :, :8, :8] if a.shape[-1] > 3 else a
    return a[:64] if a.ndim == 1 and a.size > 4096 else a[:8] if a.ndim and len(a) == 4096 else a


@pytest.mark.parametrize("module", ["alexnet", "gpt", "lstm", "mlp", "ncf", "resnet"])
def test_examples_of_the_models(module: str) -> None:
    found = doctest.testmod(models.model(module))
    assert found.attempted >= 1
    assert not found.failed


def test_a_run_writes_what_it_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "results.json"
    arguments = ["--only", "tiny_call,first_tiny,import", "--peers", "", "--repeats", "1", "--seconds", "0.01"]
    assert compare.main([*arguments, "--json", str(path)]) == 0
    found = json.loads(path.read_text())
    assert found["command"].split()[-2:] == ["--seconds", "0.01"], "the place of the file is left away"
    assert found["versions"]["numpy"] == np.__version__
    assert found["workloads"]["import"]["candidates"]["hybridml eager"]["loaded"] == []
    for workload in found["workloads"].values():
        for candidate in workload["candidates"].values():
            assert candidate["lower_quartile"] <= candidate["median"] <= candidate["upper_quartile"]
    assert "tiny_call: x*2+1" in capsys.readouterr().out


def test_a_run_that_is_not_asked_to_writes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    files = [*report.RESULTS.parent.iterdir(), report.PAGE, trust.PAGE]
    before = [(path.stat().st_mtime_ns, path.read_bytes()) for path in files]
    assert compare.main(["--only", "import", "--peers", "", "--repeats", "1", "--seconds", "0.01"]) == 0
    monkeypatch.setattr(trust, "ask", lambda name: {"version": "1", "rows": {}})
    monkeypatch.setattr(sys, "argv", ["trust", "--only", "hybridml"])
    assert trust.main() == 0
    assert [(path.stat().st_mtime_ns, path.read_bytes()) for path in files] == before
    assert set(report.RESULTS.parent.iterdir()) <= set(files)


def test_a_candidate_that_is_wrong_is_not_timed(tmp_path: Path) -> None:
    with measure.inputs_of(WORKLOADS["add_16"]) as inputs, process.Process("hybridml eager", 1, str(tmp_path)) as run:
        inputs.expected = [np.zeros(16, np.float32)] * worker.CHECKED_CALLS
        assert "not timed" in inputs.load(run).note
        with pytest.raises(Failure, match="KeyError"):
            run.ask(load="no such workload", inputs=str(inputs.path), results="", sizes={})


@pytest.mark.slow
def test_starts_and_growth_are_measured(tmp_path: Path) -> None:
    arguments = ["--only", "sum_squares", "--peers", "", "--sections", "start", "--json", str(tmp_path / "a.json")]
    assert compare.main(arguments) == 0
    found = json.loads((tmp_path / "a.json").read_text())["workloads"]["sum_squares"]["candidates"]
    assert all(0 < candidate["warm"] and 0 < candidate["cold"] for candidate in found.values())
    with measure.inputs_of(WORKLOADS["linear_gelu"], {"n": 64}) as inputs:
        with process.Process("hybridml traced", 1, str(tmp_path)) as run:
            entries = measure.measure_rounds(inputs, {"hybridml traced": run}, 1, 0.001)
    assert entries["hybridml traced"].samples
    assert entries["hybridml traced"].memory < 1 << 30


def test_limits_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SECONDS", 0.0)
    monkeypatch.setattr(limits, "PASSES", 1)
    found = limits.limits(1)
    known = {"gflops_1", "memory_gbs_1", "cache_gbs_1"} | ({"last_gbs_1"} if found["last_bytes"] else set())
    assert found.keys() == known | {"last_bytes"}
    assert all(found[key] > 0 for key in known)


def entry(**medians: float) -> dict[str, Any]:
    names = {"eager": "hybridml eager", "traced": "hybridml traced", "torch": "torch", "last": "torch channels_last"}
    found: dict[str, Any] = {
        names[who]: {"note": "", "median": seconds, "first_call": 0.5, "cold": 1.0, "warm": 0.25, "memory": 3 << 20}
        for who, seconds in medians.items()
    }
    found["hybridml traced"] |= {"best_peer_over_this": 2.0, "work": {"flops": 1e9, "bytes": 2e6}}
    return {"title": "Some step", "kind": "steady", "reach": 1.5, "candidates": found}


def test_the_page_of_a_run() -> None:
    record = {
        "command": "python -m benchmarks.compare",
        "date": "2030-01-02",
        "versions": {"numpy": "2.0"},
        "cpu": "Some CPU",
        "threads": 2,
        "limits": {"gflops_1": 100.0, "gflops_2": 200.0, "memory_gbs_1": 10.0, "memory_gbs_2": 20.0}
        | {"cache_gbs_1": 50.0, "cache_gbs_2": 90.0},
        "workloads": {
            "some_step": entry(eager=0.004, traced=0.01, torch=0.03, last=0.02),
            "tiny": {"title": "Tiny", "kind": "steady", "reach": 0.0}
            | {"candidates": {"jax": {"note": "", "median": 2e-6}, "torch": {"note": "differs by 1"}}},
        },
        "scaling": [
            {"workload": "some_step", "size": size, "value": value, "threads": 2, "median": {"jax": value / 100}}
            for size, value in (("batch", 8), ("batch", 16), ("threads", 1), ("threads", 2))
        ],
    }
    text = report.page(record)
    for row in (
        "| multiply-adds, GF/s | 100 | 200 |",
        "| Some step | 4.00 | 10.0 | 30.0 | 20.0 | **2.00** | 1.50 |",
        "| Some step | 5.00 |",  # eager: 20 ms over 4 ms
        "| Some step | 1.00 | 2.00 | 100 (50%) | 0.20 (1%) |",
        "| Some step | 1000 / 500 / 250 | 1000 / 500 / 250 | 1000 / 500 / 250 | 1000 / 500 / 250 |",
        "| Some step | 3 | 3 | 3 | 3 |",
        "| batch 16 | 160 ms |",
        "| Some step | 0.50 |",  # from one thread to two
        "| Tiny | 2.00 us |  |",
        "- tiny, torch: differs by 1",
    ):
        assert row in text.splitlines()


def test_difference() -> None:
    a = np.array([1.0, 2.0], np.float32)
    assert measure.difference([a], [a + np.float32(0.5)]) == 0.25
    assert measure.difference([a], [a + 0.5j]) == measure.difference([a + 0j], [a + 0.5j]) == 0.25
    assert np.isnan(measure.difference([a], [a[:1]]))


@pytest.mark.parametrize("arguments", [["--only", "none"], ["--peers", "none"]])
def test_unknown_names_are_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        compare.options_of(arguments)
    assert "none not known; there are" in capsys.readouterr().err


@pytest.mark.parametrize("operation", eager_operations.OPERATIONS, ids=lambda operation: operation.name)
def test_eager_operations_run(operation: eager_operations.Operation) -> None:
    way = "backward" if operation.wanted else "forward"
    assert eager.sums(eager.ready("hybridml", eager.Case(operation.name, "small", way))()) is not None


def test_eager_rows_become_a_table() -> None:
    cases = [
        eager.Case("relu", "small", "forward"),
        eager.Case("relu", "large", "forward"),
        eager.Case("mlp", "model", "training"),
    ]
    rows = [eager.Row(case, {"hybridml": 2e-6, "torch": 1e-6}, 2.0, "") for case in cases]
    text = eager.table(rows)
    assert text.count("2.00 (2.00 us)") == 3 and text.count("geometric mean") == 2


@pytest.mark.parametrize("name", [name for name, workload in TRANSFORMS.items() if workload.training is None])
def test_transforms_agree_eager_and_traced(name: str) -> None:
    workload = TRANSFORMS[name]
    styles = ["eager", "traced", *(["kernel"] if name == "chain" else [])]
    results = []
    first = 4096 if name == "chain" else 4
    arrays = {key: a[:first] if key in ("x", "y", "target") else a for key, a in workload.arrays().items()}
    for style in styles:
        case = workload.case(ours, arrays, style)
        case.call()
        results.append(case.read())
    for result in results[1:]:
        assert measure.difference(results[0], result) <= workload.tolerance


def test_ratios_are_of_the_medians_of_one_round() -> None:
    names = [transforms.OURS, transforms.BF16, "torch", "torch bf16"]
    rounds = dict(zip(names, [[2.0, 4.0], [1.0, 1.0], [6.0, 6.0], [3.0, 3.0]], strict=True))
    found = transforms.ratios(TRANSFORMS["gpt"], rounds)
    assert found["float32 / bf16"] == [2.0, 4.0]
    assert found["best peer's bf16 / bf16"] == [3.0, 3.0]
    assert found["best peer / hybridml"] == [3.0, 1.5]


def test_a_call_takes_the_memory_that_is_predicted() -> None:
    found = memory.in_this_process("mlp, of compare", "step")
    assert found["predicted"] > 1 << 23
    assert abs(found["counted"] / found["predicted"] - 1) <= 0.02
