"""Uncaught errors in a script, a thread, a notebook and a debugger: they show frames of the user and none of ours."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from contextlib import suppress
from pathlib import Path

import nbformat
import pytest

from hybridml.core.tracebacks import shortened
from tests.support.shown_errors import CASES, OURS, ROOT, SETUP, source, wrong_in

ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT)}
STYLES = {"eager": "lambda fn: fn", "traced": "hm.trace"}
# Each case in a process of its own, forked off where everything is imported: its error is the end of it.
ONE_OF = """
import os, sys
for case in range({count}):
    if (child := os.fork()) == 0:
        os.dup2(os.open(f"{{sys.argv[1]}}/{{case}}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
        show = sys.excepthook
        sys.excepthook = lambda *error: (show(*error), sys.stderr.flush(), os._exit(1))  # half of the time
        break
    os.waitpid(child, 0)
else:
    sys.exit()
"""


def script(path: Path, text: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A run of a program that is a file."""
    path.write_text(text, encoding="utf-8")
    command = [sys.executable, *arguments, str(path), str(path.parent)]
    env = ENVIRONMENT | environment
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False)


def in_scripts(folder: Path, style: str) -> dict[str, str]:
    """The text that each case writes to standard error."""
    branches = [f"if case == {k}:\n{textwrap.indent(source(case, style), '    ')}" for k, case in enumerate(CASES)]
    done = script(folder / "program.py", "\n".join([SETUP, ONE_OF.format(count=len(CASES)), *branches]))
    assert done.returncode == 0, done.stderr
    return {case.name: (folder / str(k)).read_text("utf-8") for k, case in enumerate(CASES)}


EXECUTE = """
import sys, nbformat
from nbclient import NotebookClient
notebook = nbformat.read(sys.argv[1], as_version=4)
NotebookClient(notebook, timeout=120, kernel_name="python3", allow_errors=True).execute()
nbformat.write(notebook, sys.argv[1])
"""


def in_notebook(folder: Path, cells: list[str]) -> list[nbformat.NotebookNode]:
    """The cells after a kernel has run them."""
    path = folder / "notebook.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells]), path)
    env = ENVIRONMENT | {"IPYTHONDIR": str(folder)}
    subprocess.run([sys.executable, "-c", EXECUTE, str(path)], env=env, check=True, timeout=300)
    found: list[nbformat.NotebookNode] = nbformat.read(path, as_version=4).cells
    return found


def error_of(cell: nbformat.NotebookNode) -> str:
    """The error under a cell, without colours and the lines round each line of a frame."""
    shown = [line for output in cell.outputs if output.output_type == "error" for line in output.traceback]
    lines = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(shown)).splitlines()
    return "\n".join(line for line in lines if not re.match(r" +\d+ |-+$|$", line))


def test_in_scripts(tmp_path: Path) -> None:
    shown = {style: in_scripts(tmp_path, text) for style, text in STYLES.items()}
    complaints = [wrong_in(shown[style][case.name], case) for style in STYLES for case in CASES]
    assert not any(complaints), "\n".join(complaints)
    lines = re.compile(r"line \d+|:\d+:")
    eager, traced = ({name: lines.sub("", text) for name, text in texts.items()} for texts in shown.values())
    assert eager == traced


TELLS_LINES = {
    "warning": """
import time
@hm.trace
def stamped(x):
    return hm.exp(x) * time.perf_counter()
stamped(x);
""",
    "retraces": """
@hm.trace
def steered(x):
    return hm.exp(x) if x.sum() > 0 else x
steered(x), steered(-x)
print(steered.retraces)
""",
    "explain": "print(hm.explain(steered, x))",
    "profile": "with hm.profile() as profile:\n    steered(x)\n    x + 1\nprint(profile)",
    "graph": "print([node.line for node in steered.graph])",
    "error": "def program(x):\n    return x[5]\nprogram(x)",
    "error, again": "def program(x):\n    return x[5]\nprogram(x)",
}


def test_in_a_notebook(tmp_path: Path) -> None:
    """Errors, and every text that tells a line: it tells the number of its cell, that of the last run where a cell is
    run again."""
    programs = [source(case, style) for case in CASES for style in STYLES.values()]
    cells = in_notebook(tmp_path, [SETUP, *TELLS_LINES.values(), *programs])[1:]
    shown = iter(map(error_of, cells[len(TELLS_LINES) :]))
    complaints = [wrong_in(next(shown), case) for case in CASES for _ in STYLES]
    assert not any(complaints), "\n".join(complaints)
    said = dict(zip(TELLS_LINES, (error_of(cell) + str(cell.outputs) for cell in cells), strict=False))
    wanted = {
        "warning": ["In [2]:5: TraceWarning", "In [2], line 4: return"],
        "retraces": ["In [3], line 3: return"],
        "explain": ["In [3], line 3: return"],
        "profile": ["In [5], line 3: x + 1"],
        "graph": ["In [3], line 3"],
        "error": ["In [7], line 2: return x[5]"],
        "error, again": ["In [8], line 2: return x[5]"],
    }
    wrong = [f"{what}: {words}" for what in said for words in wanted[what] if words not in said[what]]
    assert not wrong and "ipykernel" not in str(said), (wrong, said)


def test_in_a_thread(tmp_path: Path) -> None:
    body = "x.reshape(4, 5)"
    start = f"import threading\nthread = threading.Thread(target=lambda: {body})\nthread.start()\nthread.join()\n"
    shown = script(tmp_path / "program.py", SETUP + start).stderr
    assert "methods.py" not in shown and body in shown and "threading.py" in shown


CALLBACKS = {
    "scan": "def callback(carry, row):\n    raise ValueError('mine')\nhm.scan(callback, x, x)\n",
    "hook": "def callback(*_):\n    raise ValueError('mine')\nlayer = nn.ReLU()\n"
    "layer.register_forward_pre_hook(callback)\nnn.Sequential(layer)(x)\n",
    "forward": "class Mine(nn.Module):\n    def forward(self, x):\n        return callback(x)\n"
    "def callback(x):\n    raise ValueError('mine')\nnn.Sequential(nn.Sequential(Mine()))(x)\n",
    "data set": "class Rows:\n    def __len__(self):\n        return 3\n    def __getitem__(self, k):\n"
    "        return callback(k)\ndef callback(k):\n    raise ValueError('mine')\n"
    "list(hm.data.DataLoader(Rows()))\n",
}


@pytest.mark.parametrize("body", CALLBACKS.values(), ids=CALLBACKS)
def test_functions_of_the_user_that_ours_call(tmp_path: Path, body: str) -> None:
    shown = script(tmp_path / "program.py", SETUP + body).stderr
    assert "in callback" in shown and "ValueError: mine" in shown
    assert not OURS.search(shown), shown


def test_an_error_that_the_user_was_handling(tmp_path: Path) -> None:
    body = "try:\n    {}['mine']\nexcept KeyError:\n    x[hm.tensor([7])]\n"
    shown = script(tmp_path / "program.py", SETUP + body).stderr
    assert "KeyError: 'mine'" in shown and "OutOfBoundsError" in shown and shown.count("another exception") == 1
    assert not OURS.search(shown), shown


def test_all_frames_where_they_are_asked_for(tmp_path: Path) -> None:
    program = SETUP + "x.reshape(4, 5)\n"
    assert "methods.py" not in script(tmp_path / "program.py", program).stderr
    assert "methods.py" in script(tmp_path / "program.py", program, HYBRIDML_TRACEBACK="full").stderr


def test_all_frames_in_a_debugger(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(SETUP + "x.reshape(4, 5)\n", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-i", str(program)], input="import pdb; pdb.pm()\nwhere\nquit\n", env=ENVIRONMENT,
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert "methods.py" not in done.stderr and "methods.py" in done.stdout


def test_errors_that_met_no_frame_of_ours_are_as_they_were() -> None:
    with pytest.raises(KeyError) as caught, suppress(IndexError):
        {}["mine"]
    frames = caught.value.__traceback__
    with shortened(caught.value):
        assert caught.value.__traceback__ is frames
