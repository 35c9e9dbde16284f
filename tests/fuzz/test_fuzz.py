"""The fuzzers run, find planted defects, and their runner tells a process that dies from one that finds nothing."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from hybridml.io import checkpoints as io
from tests.fuzz import checkpoints

RUNNER = importlib.import_module("tests.fuzz.__main__")
Capture = pytest.CaptureFixture[str]


def test_damaged_checkpoints_are_refused() -> None:
    cases, found = checkpoints.run(0.3, 20_000)
    assert cases > 0 and not found, found


@pytest.mark.parametrize(
    ("planted", "words"),
    [
        ({"_checksum": lambda arrays, notes: "0", "_checksum_of_notes": lambda notes: "0"}, "other values"),
        ({"_broken": lambda path, why: KeyError(why)}, "Traceback"),
    ],
)
def test_planted_defects_are_found(monkeypatch: pytest.MonkeyPatch, planted: dict[str, Any], words: str) -> None:
    for name, value in planted.items():
        monkeypatch.setattr(io, name, value)
    found = [text for seed in range(50, 65) for text in checkpoints.run(0, seed)[1]]
    assert any(re.search(words, text) for text in found)
    seed = re.search(r"--seed (\d+)", found[0])
    assert seed is not None and checkpoints.run(0, int(seed[1]))[1] == found[:1]  # what is printed repeats it


def test_all_kinds_end_with_a_line_of_counts(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    assert RUNNER.main(["all", "--minutes", "0", "--seed", "3", "--kinds", "checkpoints,kills"]) == 0
    assert capsys.readouterr().out == "fuzz: 0 min each, seed 3; checkpoints 1, 0 wrong; kills 1, 0 torn\n"


def test_a_process_that_dies_is_a_finding(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setattr(sys, "executable", "false")
    assert RUNNER.main(["all", "--minutes", "0", "--seed", "3", "--kinds", "programs"]) == 1
    said = capsys.readouterr().out
    assert "programs --seed 3: the process ended with 1 in no case yet" in said
    assert said.splitlines()[-1] == "fuzz: 0 min each, seed 3; programs 0, 1 differ"


def test_one_program_is_repeated_by_its_number(capsys: Capture) -> None:
    assert RUNNER.main(["programs", "--program", "3"]) == 0
    assert capsys.readouterr().out == "0 of 1 programs differ\n"
    with pytest.raises(SystemExit):
        RUNNER.main(["all", "--kinds", "nothing"])
    assert "no kind nothing; choose from programs" in capsys.readouterr().err
