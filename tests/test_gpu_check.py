"""The script for a machine with a GPU, on one without: its lines run, and its page is that of its results."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

import hybridml as hm
from benchmarks import gpu_check, gpu_page
from benchmarks.gpu import right
from benchmarks.gpu.device import Check
from tests.support.cuda import needs_nvrtc


@pytest.mark.skipif(hm.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu_check.main(["--json", str(tmp_path / "gpu.json")]) == 0
    said = capsys.readouterr().out
    assert said.startswith("no GPU to check: ") and said.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.slow  # 40 s
@needs_nvrtc
def test_its_checks_run(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """All but those of other programs, on the simulated device and with tiny sizes; a check that fails is told."""
    monkeypatch.setitem(gpu_check.CHECKS, "broken", lambda check: {"never": 1 // 0})
    path = tmp_path / "gpu.json"
    names = ["rows", "streams", "bandwidth", "products", "attention", "launches", "training", "broken"]
    arguments = ["--device", "cuda:sim", "--small", "--only", ",".join(names), "--json", str(path)]
    assert gpu_check.main(arguments) == 0
    record = json.loads(path.read_text())
    checks = record["checks"]
    assert list(checks) == names and capsys.readouterr().out.count("\n") == len(names)
    assert (
        checks["rows"]["wrong"] == {} and checks["rows"]["the bits of the simulator"] == checks["rows"]["results"] > 8
    )
    assert checks["streams"]["two streams"] is True
    assert min(entry["GB/s"] for entry in checks["bandwidth"].values() if isinstance(entry, dict)) > 0
    assert all(checks["attention"][f"1 x 2 x 16 x 8, {dtype}"]["traced"] > 0 for dtype in ("float32", "bfloat16"))
    assert len(checks["products"]) == 7 and checks["launches"]["launches"] > 1
    styles = checks["training"]["mlp, float32"]
    assert styles["traced"]["losses"] == pytest.approx(styles["eager"]["losses"]) and styles["traced"]["ms"] > 0
    assert checks["broken"]["failed"][-1].startswith("ZeroDivisionError")
    page = gpu_page.results(record)
    assert (
        "simulated GPU (sm_80)" in page and "| mlp, float32 |" in page and "`broken` failed: ZeroDivisionError" in page
    )
    assert "results of 12 operations" in page and "Streams, two streams: right." in page


@needs_nvrtc
def test_a_measurement_that_fails_is_told_beside_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def milliseconds(self: Check, call: Any) -> float:
        fails = next(turns)
        if fails:
            raise RuntimeError("no such instruction\nand more")
        return 1.0

    turns, path = cycle([False, True, False]), tmp_path / "gpu.json"
    monkeypatch.setattr(Check, "milliseconds", milliseconds)
    arguments = ["--device", "cuda:sim", "--small", "--only", "bandwidth,attention", "--json", str(path)]
    assert gpu_check.main(arguments) == 0
    record = json.loads(path.read_text())
    found = [entry["GB/s"] for entry in record["checks"]["bandwidth"].values() if isinstance(entry, dict)]
    assert found[1] == "RuntimeError: no such instruction" and min(found[0], found[2]) > 0
    assert "RuntimeError: no such instruction |" in gpu_page.results(record)


def test_rows_are_checked_where_nothing_runs_tests() -> None:
    program = (
        "import sys\nsys.modules['pytest'] = sys.modules['hypothesis'] = None\n"
        "import time\nfrom benchmarks.gpu.device import Check\nfrom benchmarks.gpu.right import rows, suite\n"
        "check = Check('reference', True, time.monotonic() - 1)\n"
        "print(rows(check)['wrong'], suite(check))"
    )
    run = subprocess.run([sys.executable, "-c", program], cwd=gpu_check.ROOT, capture_output=True, text=True)
    assert run.stdout.strip() == "{} {'left out': 'pytest and hypothesis not installed'}", run.stderr


def test_checks_that_have_no_time_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "gpu.json"
    arguments = ["--device", "cuda:sim", "--seconds", "-1", "--only", "rows,training", "--json", str(path)]
    assert gpu_check.main(arguments) == 0
    checks = json.loads(path.read_text())["checks"]
    assert [checks[name]["left out"] for name in ("rows", "training")] == ["no time", "no time"]


@needs_nvrtc
def test_the_programs_for_the_sanitizer() -> None:
    right.programs("cuda:sim")


def test_the_page_has_the_results_that_there_are() -> None:
    record = json.loads(gpu_page.RESULTS.read_text()) if gpu_page.RESULTS.exists() else None
    page = gpu_page.PAGE.read_text(encoding="utf-8")
    assert page.split(gpu_page.BEGIN)[1].split(gpu_page.END)[0].strip() == gpu_page.results(record)
