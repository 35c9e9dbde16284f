"""Settings from the environment: every variable that the code reads is in the table, and does what the table says."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from hybridml_compiler import config, pipeline
from hybridml_compiler.graph.ir import Graph, graph_of
from hybridml_compiler.graph.rewrite import make
from hybridml_compiler.record import fields
from hybridml_compiler.targets.cpu.target import Cpu

ROOT = Path(__file__).parent.parent
SOURCES = [p for folder in ("hybridml", "hybridml_compiler") for p in sorted((ROOT / folder).rglob("*.py"))]


def test_every_variable_is_in_the_table() -> None:
    named = {name for path in SOURCES for name in re.findall(r"HYBRIDML_[A-Z0-9_]+", path.read_text("utf-8"))}
    told = {"HYBRIDML_RESTARTS"}  # to scripts, by the launcher
    assert named - told <= {flag.variable for flag in config.FLAGS}
    assert [flag.field for flag in config.FLAGS] == [*fields(config.Config)]
    assert config.Config() == config.Config(**{flag.field: flag.default for flag in config.FLAGS})


# The last three set some for workers, and read what launchers have told.
MAY_READ = ("config.py", "guards.py", "builtin_patches.py", "process.py", "run.py", "launched.py")


def test_the_environment_is_read_in_one_place() -> None:
    """Beside variables of the platform (XDG_CACHE_HOME, LOCALAPPDATA), where a CUDA toolkit says that it is, and what
    guards compare for the user's code."""
    platform = ("XDG_CACHE_HOME", "LOCALAPPDATA", "_TOOLKITS")
    for path in SOURCES:
        for line in path.read_text("utf-8").splitlines():
            if re.search(r"os\.(environ|getenv)", line) and path.name not in MAY_READ:
                assert any(name in line for name in platform), f"{path.name}: {line.strip()}"


def test_the_page_names_every_variable() -> None:
    page = (ROOT / "docs" / "configuration.md").read_text("utf-8")
    for flag in config.FLAGS:
        assert f"| `{flag.variable}` |" in page


def test_values_are_read() -> None:
    text = {"HYBRIDML_DEBUG": " 5 ", "HYBRIDML_CACHE_DIR": "off", "HYBRIDML_NUM_THREADS": "3", "HYBRIDML_VERIFY": "off"}
    assert config.read(text) == config.Config(5, "off", 3, False)
    assert config.read({}) == config.read({"HYBRIDML_DEBUG": "  "}) == config.Config()


@pytest.mark.parametrize(
    ("variable", "text"),
    [("HYBRIDML_DEBUG", "6"), ("HYBRIDML_DEBUG", "yes"), ("HYBRIDML_NUM_THREADS", "0"), ("HYBRIDML_VERIFY", "maybe")],
)
def test_a_wrong_value_is_reported_once_and_ignored(
    variable: str, text: str, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    monkeypatch.setattr(config, "_reported", set())
    assert config.read({variable: text}) == config.read({variable: text}) == config.Config()
    (warning,) = recwarn.list
    assert f"{variable}={text!r} is ignored; it takes" in str(warning.message)


def test_debug_levels_write_to_stderr(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    (x,) = graph_of([np.zeros(8, "f4")])
    graph = Graph((x,), (make("abs", make("negative", make("exp", x))),), "sample")
    marks = {
        1: "hybridml: sample: 3 nodes, 1 launches, 1 kernels, 64 bytes of traffic",
        2: "launch 0: kernel, 64 bytes of traffic",
        3: "    b0 = input 0, b1 = output 0"[2:],
        4: "define void @",
        5: "hybridml: sample: simplify\ngraph sample(",
    }
    for level in range(6):
        monkeypatch.setenv("HYBRIDML_DEBUG", str(level))
        pipeline.compile(graph)
        out, err = capsys.readouterr()
        assert not out
        for needed, text in marks.items():
            assert (text in err) == (needed <= level), f"level {level}: {text!r}\n{err}"


def test_verification_can_be_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("called")

    monkeypatch.setattr("hybridml_compiler.loops.verify.verify_kernel", refuse)
    monkeypatch.setattr(Cpu, "find", lambda self, key: None)  # what is found on disk has been checked before
    monkeypatch.setenv("HYBRIDML_VERIFY", "0")
    (x,) = graph_of([np.zeros(8, "f4")])
    graph = Graph((x,), (make("exp", x),))
    pipeline.compile(graph)
    monkeypatch.setenv("HYBRIDML_VERIFY", "1")
    with pytest.raises(AssertionError, match="called"):
        pipeline.compile(graph)
