"""The launches of workloads beside the limits of the machine: what is worked out, and one short run from end to end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from benchmarks import chart, limits_page, ours, report, roofline
from benchmarks.roofline import Machine, Measured, Spent
from benchmarks.workloads import WORKLOADS
from hybridml import nn
from hybridml.profiler.profile import Profile

MACHINE = Machine(gflops=100.0, memory_gbs=10.0, last_gbs=50.0, last_bytes=1e6)
LIMITS = {"last_bytes": 1e6} | {"gflops_2": 100.0, "memory_gbs_2": 10.0, "last_gbs_2": 50.0, "cache_gbs_2": 80.0}


def spent(name: str, ms: float, **more: Any) -> Spent:
    return Spent(name, **{"flops": 0.0, "bytes": 0.0, "times": [ms]} | more)


def test_the_machine_of_measured_limits() -> None:
    assert Machine.of(LIMITS, 2) == MACHINE
    without = {key: value for key, value in LIMITS.items() if key != "last_gbs_2"} | {"last_bytes": 0.0}
    assert Machine.of(without, 2).traffic(1e6) == pytest.approx(0.1), "no last cache is known: all is memory's"


def test_the_least_time_is_the_longer_of_two() -> None:
    assert MACHINE.traffic(5e5) == pytest.approx(0.01)
    assert MACHINE.traffic(3e6) == pytest.approx(0.02 + 0.2), "more than the last cache holds"
    assert spent("product", 1.0, flops=1e8, bytes=5e5).least(MACHINE) == pytest.approx(1.0)
    assert spent("sum", 1.0, flops=1e5, bytes=5e5).least(MACHINE) == pytest.approx(0.01)
    twice = spent("2 sums", 1.0, bytes=2e6, count=2)
    assert twice.least(MACHINE) == pytest.approx(0.04), "each finds the whole cache"


def test_launches_that_are_alike_are_one() -> None:
    found = roofline.alike(
        [
            spent("a", 1.0, flops=2.0, busy=[0.5]),
            spent("b", 1.5, busy=[1.2]),
            spent("a", 3.0, flops=2.0, busy=[2.5]),
            spent("b", 1.0, bytes=8.0, busy=[]),
        ]
    )
    assert [(one.name, one.count, one.ms, one.flops) for one in found] == [
        ("a", 2, 4.0, 4.0),
        ("b", 1, 1.5, 0.0),
        ("b", 1, 1.0, 0.0),
    ]
    assert found[0].waiting == pytest.approx(0.25)
    assert found[2].waiting is None


def launches_of(fn: Any, *args: hm.Tensor) -> list[Spent]:
    run = hm.trace(fn)
    run(*args)
    with hm.profile() as profile:
        run(*args)
    ((executable, _, _),) = profile.recording.launches
    return roofline.spent_on(executable.launches)


def test_what_launches_do() -> None:
    x = hm.ones((64, 64))
    (product,) = launches_of(lambda x: hm.exp(x @ x), x)
    assert (product.flops, product.polynomials) == (2.0 * 64**3, 64.0**2)
    image, weight = hm.ones((1, 64, 16, 16)), hm.ones((64, 64, 3, 3))
    found = launches_of(lambda x, w: nn.functional.conv2d(x, w, padding=1), image, weight)
    whole = 2.0 * 64 * 64 * 9 * 16 * 16
    counted = [one.flops for one in found if one.flops]
    assert counted in ([whole], [whole * 16 / 36]), "once, and by the multiplications of its algorithm"


def entry(**changes: Any) -> dict[str, Any]:
    """Of a workload that has an aim."""
    launches = [spent(f"kernel {k}", 1.0 / (k + 1), bytes=1e6) for k in range(limits_page.SHOWN + 2)]
    launches[0] = spent("matmul", 4.0, flops=2e8, bytes=4e5, polynomials=3e6, busy=[3.0])
    return roofline.described("gelu_chain", Measured(8.0, 9.0, launches), MACHINE) | changes


def record(*entries: str) -> dict[str, Any]:
    start = {"command": "python -m benchmarks.roofline", "date": "2030-01-02", "versions": {"numpy": "2.0"}}
    start |= {"cpu": "Some CPU", "threads": 2, "limits": LIMITS}
    return start | {"workloads": {name: entry(title=f"Some {name}") for name in entries}}


def compared(reach: float, peer: float) -> dict[str, Any]:
    """A record of times: of the workload `step`."""
    candidates = {"torch": {"median": peer}, "jax": {"median": 2 * peer}, "tensorflow": {"note": "not timed"}}
    candidates["hybridml traced"] = {"median": peer / 1.25, "best_peer_over_this": 1.25}
    return {"date": "2030-01-01", "workloads": {"step": {"reach": reach, "candidates": candidates}}}


def test_the_entry_of_a_workload() -> None:
    found = entry()
    assert (found["ms"], found["arithmetic_ms"]) == (8.0, 2.0)
    assert found["least_ms"] == pytest.approx(2.0 + 0.02 * (limits_page.SHOWN + 1))
    assert found["launches"][0]["waiting"] == 0.25
    text = "\n".join(roofline.lines("step", found, 1))
    assert "step: 8.00 ms a call (9.00 profiled)" in text
    assert f"{limits_page.SHOWN + 1} x others" in text


def test_the_page_of_limits() -> None:
    text = limits_page.page(record("step", "other"), compared(1.5, 0.010), "## What was tried\n\nMuch.\n").splitlines()
    for row in (
        "1 of 1 workloads.",
        "| Some step | 8.00 | 5.93 | 2.00 | 2.18 | 2.90 | 27% | 4.59 | 1.50 | 1.25 |",
        "| Some other | 8.00 | 5.93 | 2.00 | 2.18 | 2.90 | 27% |  |  |  |",  # which was not compared
        "| multiply-adds, GF/s | 100 |",
        "| matmul | 4.00 | 2.00 | 50% | 50.0 | 0.10 | 3.00 | 25% |",
        "| kernel 1 | 0.50 | 0.02 | 4% |  | 2.00 |  |  |",
        "### Some other",
    ):
        assert row in text
    assert text[-3:] == ["## What was tried", "", "Much."]


def test_an_aim_beyond_the_machine_is_said() -> None:
    text = limits_page.page(record("step"), compared(1.5, 0.003), "").splitlines()
    assert "0 of 1 workloads. Not in:" in text
    assert "- Some step (1.50, possible 1.38)" in text
    assert any(row.endswith("| 1.38 | **1.50** | 1.25 |") for row in text)


def test_a_short_run_writes_what_it_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(roofline, "limits", lambda n: {key.replace("2", str(n)): LIMITS[key] for key in LIMITS})
    small = {name: array[:8] for name, array in WORKLOADS["softmax"].arrays().items()}
    monkeypatch.setattr(type(WORKLOADS["softmax"]), "arrays", lambda self: small)
    path = tmp_path / "found.json"
    assert roofline.main(["softmax", "--seconds", "0.05", "--json", str(path)]) == 0
    found = json.loads(path.read_text())
    assert found["command"] == "python -m benchmarks.roofline softmax --seconds 0.05"
    assert found["versions"].keys() <= {"python", "hybridml", "numpy", "llvmlite", "numba"}
    softmax = found["workloads"]["softmax"]
    assert 0 < softmax["least_ms"] and 0 < softmax["ms"]
    assert softmax["launches"][0]["polynomials"] == 8 * 1024
    assert "softmax: " in capsys.readouterr().out


def test_the_largest_program_of_a_step_is_measured() -> None:
    sizes = {"batch": 4, "width": 16}
    workload = WORKLOADS["mlp_step"]
    case = workload.case(ours, workload.arrays(**sizes), "traced", **sizes)
    launches: list[Spent] = []
    case.call()
    for _ in range(2):
        calls = roofline.watched(case, 2, launches, threads=2)
        assert len(calls) >= 2
    assert {len(one.times) for one in launches} == {4}
    assert sum(one.flops for one in launches) >= 2.0 * 4 * (784 * 16 + 16 * 16 + 16 * 10)


def test_a_profile_has_room_for_its_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    assert roofline.most_calls(10, 2) == roofline.MOST
    assert roofline.most_calls(1000, 2) == (1 << 18) // (1000 * 9)
    assert roofline.most_calls(1 << 18, 2) == 1
    case = WORKLOADS["softmax"].case(ours, {"x": np.ones((8, 16), np.float32)}, "traced")
    monkeypatch.setattr(Profile, "lost", 3)
    with pytest.raises(RuntimeError, match="a profile of 2 calls has lost 3 of its records"):
        roofline.watched(case, 2, [], threads=2)


@pytest.mark.parametrize(("times", "warned"), [([1.1], False), ([1.3, 1.1], False), ([1.3, 1.3], True)])
def test_noisy_measurements_are_repeated(
    times: list[float], warned: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = [Measured(ms, 1.0, []) for ms in times]
    left = iter(found)
    monkeypatch.setattr(roofline, "measure", lambda *how: next(left))
    assert roofline.measure_quietly("softmax", 1.0, 2) is found[-1]
    assert ("warning: softmax takes 1.30 ms" in capsys.readouterr().out) == warned


def test_unknown_workloads_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        roofline.main(["none"])
    assert "none not known; there are" in capsys.readouterr().err


def test_the_page_is_that_of_the_results() -> None:
    results = json.loads(report.RESULTS.read_text(encoding="utf-8"))
    written = json.loads(limits_page.RESULTS.read_text(encoding="utf-8"))
    tried = limits_page.TRIED.read_text(encoding="utf-8")
    assert limits_page.PAGE.read_text(encoding="utf-8") == limits_page.page(written, results, tried)
    assert tried.startswith("## What was tried\n")
    assert chart.PICTURE.read_text(encoding="utf-8") == chart.chart(results)
