"""The command line, in processes of its own: what each command prints and writes, and how it ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hybridml import __main__

ROOT = Path(__file__).parent.parent
PROGRAM = """\
import sys
import neighbour
import hybridml as hm

x = hm.arange(8.0)

@hm.trace
def step(x, scale=neighbour.SCALE):
    return (hm.exp(x * scale) + 1).sum()

def plain():
    return hm.log(x + 1)

if __name__ == "__main__":
    print(sys.argv[1:], float(step(x)))
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    (tmp_path / "neighbour.py").write_text("SCALE = 0.5\n")
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return path


def run(*arguments: object, status: int = 0) -> str:
    """The output of a command: its stdout where it succeeds, its stderr where it is to fail."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "hybridml", *map(str, arguments)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stderr if status else done.stdout


@pytest.mark.parametrize("name", ["doctor", "compare", "profile", "run", "cache", "demo"])
def test_help_of_each_command_says_what_it_does(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["--help"], [name, "--help"]):
        with pytest.raises(SystemExit):
            __main__.main(arguments)
    overview, _, own = capsys.readouterr().out.partition(f"usage: python -m hybridml {name}")
    assert name in overview and own


def test_doctor() -> None:
    assert "a traced program" in run("doctor")


def test_compare_calls_a_function_with_the_arguments_given(program: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    found = json.loads(run("compare", f"{program}:step(x, scale=2.0)", "--repeats", 2, "--json", "--html", page))
    assert found["name"] == "step" and found["repeats"] == 2 and found["traced"]["kernels"] == 1
    assert "step" in page.read_text()
    assert run("compare", "--repeats", 2, f"{program}:plain").startswith("plain ")


def test_compare_says_why(program: Path) -> None:
    assert "Where the time goes" in run("compare", "--why", "--repeats", 2, f"{program}:plain")


def test_compare_runs_a_script_in_both_styles(program: Path) -> None:
    printed = run("compare", program, "a", "--", "-b")
    assert "eager" in printed and printed.endswith("printed: the same 1 lines\n")
    program.write_text(
        "import hybridml as hm\nprint(hm.trace(lambda x: x)(hm.ones(1)) is None)\nimport os\nprint(os.getpid())\n"
    )
    assert "printed: line 2 is" in run("compare", program)


def test_profile_of_a_function_and_of_a_script(program: Path, tmp_path: Path) -> None:
    assert "exp" in run("profile", f"{program}:step(x)")
    trace = tmp_path / "trace.json"
    printed = run("profile", program, "a", "--trace", trace)
    assert printed.startswith("['a'] ") and "call that compiles" in printed
    assert json.loads(trace.read_text())["traceEvents"]


def test_run_under_a_stance(program: Path) -> None:
    program.write_text(
        "import hybridml as hm\nf = hm.trace(lambda x: x)\nf(hm.ones(1))\nprint(f.cache_info().compiles)"
    )
    assert run("run", "--stance", "eager", program) == "0\n"
    assert run("run", program, "--json") == "1\n"


def test_cache_is_shown_and_emptied(program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HYBRIDML_CACHE_DIR", str(tmp_path / "cache"))
    run("run", program)
    assert run("cache", "path").strip() == str(tmp_path / "cache" / "objects")
    assert " 0 entries" not in run("cache")
    assert " 0 entries" in run("cache", "clear")
    monkeypatch.setenv("HYBRIDML_CACHE_DIR", "off")
    assert "in memory only" in run("cache", "path")


@pytest.mark.parametrize(
    ("target", "status", "words"),
    [
        ("none.py", 2, "no file 'none.py' here; give a script"),
        (":step", 1, "missing a required argument: 'x'; give its arguments"),
        (":step(", 1, "is no expression"),
        (":x", 1, "is of type Tensor; give a function"),
    ],
)
def test_what_cannot_be_run_is_told(program: Path, target: str, status: int, words: str) -> None:
    where = target if target.endswith(".py") else f"{program}{target}"
    assert words in run("compare", where, status=status)


def test_a_script_that_fails_fails_the_comparison(program: Path) -> None:
    program.write_text("raise SystemExit(3)")
    done = subprocess.run(
        [sys.executable, "-m", "hybridml", "compare", program], capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 1 and "ended with status 3 eagerly" in done.stdout
