"""The benchmark program from end to end, without peers and with the shortest measurements: it must run, not be fast."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks import compare, ours, worker
from benchmarks.workloads import WORKLOADS


def test_every_workload_has_a_function_and_known_candidates() -> None:
    for name, workload in WORKLOADS.items():
        assert set(workload.candidates) <= set(worker.CANDIDATES)
        assert workload.kind == "import" or callable(getattr(ours, name))


@pytest.mark.parametrize("name", [n for n, w in WORKLOADS.items() if w.kind == "steady" and len(w.candidates) > 2])
def test_the_styles_agree_on_smaller_inputs(name: str) -> None:
    arrays = WORKLOADS[name].arrays()
    small = {k: a[:64] if a.ndim == 1 and len(a) > 4096 else a[:8] if len(a) == 4096 else a for k, a in arrays.items()}
    results = []
    for style in ("eager", "traced"):
        case = getattr(ours, name)(small, style)
        found = []
        for _ in range(2):
            case.call()
            found += [a.copy() for a in case.read()]
        case.reset()
        case.call()
        assert case.reset is bool or case.read()[0] == pytest.approx(found[0], rel=1e-5), "reset goes back to the start"
        results.append(found)
    assert compare.difference(*results) <= WORKLOADS[name].tolerance


def test_a_run_writes_what_it_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "results.json"
    arguments = ["--workloads", "tiny_call,first_tiny,import", "--peers", "", "--repeats", "1", "--seconds", "0.01"]
    assert compare.main([*arguments, "--json", str(path)]) == 0
    found = json.loads(path.read_text())
    assert found["command"].split()[-2:] == ["--seconds", "0.01"], "the place of the file is left away"
    assert found["versions"]["numpy"] == np.__version__
    assert found["workloads"]["import"]["candidates"]["hybridml eager"]["loaded"] == []
    for workload in found["workloads"].values():
        for candidate in workload["candidates"].values():
            assert candidate["lower_quartile"] <= candidate["median"] <= candidate["upper_quartile"]
    assert "tiny_call: x*2+1" in capsys.readouterr().out


def test_a_candidate_that_is_wrong_is_not_timed(tmp_path: Path) -> None:
    with compare.Process("hybridml eager", 1, str(tmp_path)) as process:
        entry = compare.check(WORKLOADS["add_16"], process, [np.zeros(16, np.float32)] * worker.CHECKED_CALLS)
        assert "not timed" in entry.note
        with pytest.raises(compare.Failure, match="AttributeError"):
            process.ask(load="no such workload", results="")


def test_difference() -> None:
    a = np.array([1.0, 2.0], np.float32)
    assert compare.difference([a], [a + np.float32(0.5)]) == 0.25
    assert np.isnan(compare.difference([a], [a[:1]]))


@pytest.mark.parametrize("arguments", [["--workloads", "none"], ["--peers", "none"]])
def test_unknown_names_are_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        compare.options_of(arguments)
    assert "none not known; there are" in capsys.readouterr().err
