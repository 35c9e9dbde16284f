"""Programs that frameworks trace wrongly, each written in every place where Python lets a function be written.

A program is a piece of state, a function as statements and as an expression, and what its user does with it. What the
user sees must be what eager Python shows, from as few compilations as are said here.
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import nbformat
import pytest

import hybridml as hm

ROOT = Path(__file__).parent.parent.parent


@dataclass(frozen=True)
class Program:
    """`use` reads `f` (the function), `state()` and `put(value)`, and leaves what is seen in `seen`."""

    body: str  # of the function of x, the last line is what it returns
    expression: str
    use: str
    seen: Any
    compiles: int
    state: str = "None"
    takes: str = "x"


PROGRAMS: dict[str, Program] = {
    "a list that grows": Program(
        body="STATE.append(1)\nreturn x + 1",
        expression="STATE.append(1) or x + 1",
        use="seen = [f(hm.ones((2,))).tolist() for _ in range(3)] + [len(state())]",
        seen=[[2, 2], [2, 2], [2, 2], 3],
        compiles=1,
        state="[]",
    ),
    "a float that is rebound": Program(
        body="return x * STATE",
        expression="x * STATE",
        use="seen = []\nfor v in (2.0, 5.0):\n    put(v)\n    seen.append(f(hm.ones((1,))).item())",
        seen=[2, 5],
        compiles=1,
        state="1.0",
    ),
    "a branch on data": Program(
        body="if x.sum() > 0:\n    return x * 2\nreturn x - 1",
        expression="x * 2 if x.sum() > 0 else x - 1",
        use="seen = [f(hm.tensor([v, v])).tolist() for v in (1.0, -1.0, 2.0, -2.0)]",
        seen=[[2, 2], [-2, -2], [4, 4], [-3, -3]],
        compiles=2,
    ),
    "a function of NumPy": Program(
        body="return np.sin(x) + np.median(np.ones(3))",
        expression="np.sin(x) + np.median(np.ones(3))",
        use="seen = [round(f(hm.tensor([v])).item(), 5) for v in (0.5, 1.0)]",
        seen=[round(math.sin(v) + 1, 5) for v in (0.5, 1.0)],
        compiles=1,
    ),
    "a write to an argument": Program(
        body="x[0] = 5\nreturn x * 2",
        expression="(x.__setitem__(0, 5), x * 2)[1]",
        use="seen = []\nfor v in (1.0, 2.0):\n    t = hm.tensor([v, v])\n    seen += [f(t).tolist(), t.tolist()]",
        seen=[[10, 2], [5, 1], [10, 4], [5, 2]],
        compiles=1,
    ),
    "a gradient of a gradient": Program(
        body="y = x * x\nreturn (y * x).sum()",
        expression="(x * x * x).sum()",
        use="seen = [hm.grad(lambda t: hm.grad(f)(t).sum())(hm.tensor([v])).item() for v in (1.0, 2.0)]",
        seen=[6, 12],
        compiles=1,
    ),
    "floats as arguments": Program(
        body="return x * p + p / 2",
        expression="x * p + p / 2",
        use="seen = [f(hm.ones((1,)), v).item() for v in (1.0, 2.0, 3.0, 4.0, 5.0)]",
        seen=[1.5, 3.0, 4.5, 6.0, 7.5],
        compiles=1,
        takes="x, p",
    ),
    "random numbers": Program(
        body="return x + hm.random.uniform((3,))",
        expression="x + hm.random.uniform((3,))",
        use="hm.manual_seed(7)\nfound = [f(hm.zeros((3,))).tolist() for _ in range(2)]\nhm.manual_seed(7)\n"
        "seen = found == [hm.random.uniform((3,)).tolist() for _ in range(2)]",
        seen=True,
        compiles=1,
    ),
    "an error in the middle": Program(
        body="STATE.add_(1)\nif x.isnan().any():\n    raise ValueError('nan')\nreturn x + STATE",
        expression="(STATE.add_(1), 1 // int(not x.isnan().any()), x + STATE)[2]",
        use="seen = []\nfor v in (1.0, float('nan'), 2.0):\n    try:\n        seen.append(f(hm.tensor([v])).item())\n"
        "    except (ValueError, ZeroDivisionError):\n        seen.append('error')\nseen.append(state().item())",
        seen=[2, "error", 5, 3],
        compiles=1,
        state="hm.zeros(())",
    ),
}


def indented(text: str, by: int) -> str:
    return "\n".join(" " * by + line for line in text.splitlines())


ACCESS = "def state():\n    return STATE\ndef put(value):\n    {scope} STATE\n    STATE = value\n"


def as_function(p: Program) -> str:
    return f"STATE = {p.state}\n{ACCESS.format(scope='global')}@TRACE\ndef f({p.takes}):\n{indented(p.body, 4)}\n"


def as_lambda(p: Program) -> str:
    return f"STATE = {p.state}\n{ACCESS.format(scope='global')}f = TRACE(lambda {p.takes}: {p.expression})\n"


def as_module_method(p: Program) -> str:
    return (
        f"STATE = {p.state}\n{ACCESS.format(scope='global')}class Net(hm.nn.Module):\n"
        f"    def forward(self, {p.takes}):\n{indented(p.body, 8)}\nf = TRACE(Net())\n"
    )


def as_closure(p: Program) -> str:
    inner = f"STATE = {p.state}\n{ACCESS.format(scope='nonlocal')}def f({p.takes}):\n{indented(p.body, 4)}\n"
    return f"def make():\n{indented(inner, 4)}\n    return TRACE(f), state, put\nf, state, put = make()\n"


def from_a_generator(p: Program) -> str:
    inner = f"STATE = {p.state}\n{ACCESS.format(scope='nonlocal')}def f({p.takes}):\n{indented(p.body, 4)}\n"
    return f"def build():\n{indented(inner, 4)}\n    yield TRACE(f), state, put\nf, state, put = next(build())\n"


def by_exec(p: Program) -> str:
    return f"exec({as_function(p)!r}, globals())\n"


PLACES = [as_function, as_lambda, as_module_method, as_closure, from_a_generator, by_exec]
HEAD = "import numpy as np\nimport hybridml as hm\n"


def load(source: str, folder: Path) -> ModuleType:
    """A module of this source, in a file."""
    path = folder / "program.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location("program", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.__name__)
@pytest.mark.parametrize("name", PROGRAMS)
def test_everywhere(name: str, place: Any, tmp_path: Path, backend: str) -> None:
    p = PROGRAMS[name]
    source = place(p) + p.use
    eager = load(f"{HEAD}TRACE = lambda fn: fn\n{source}", tmp_path)
    assert eager.seen == p.seen
    traced = load(f"{HEAD}TRACE = hm.trace(backend={backend!r})\n{source}", tmp_path)
    assert traced.seen == p.seen
    f = traced.f.forward if isinstance(traced.f, hm.nn.Module) else traced.f
    assert f.cache_info().compiles == p.compiles


EXECUTE = """
import sys, nbformat
from nbclient import NotebookClient
source, target, folder = sys.argv[1:]
notebook = nbformat.read(source, as_version=4)
NotebookClient(notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": folder}}).execute()
nbformat.write(notebook, target)
"""


def test_in_notebook_cells(tmp_path: Path) -> None:
    show = "\nimport json\nprint(json.dumps([seen, f.cache_info().compiles]))"
    cells = [HEAD + "TRACE = hm.trace", *(as_function(p) + p.use + show for p in PROGRAMS.values())]
    # A cell that is run again with other code defines another function.
    cells += ["@hm.trace\ndef f(x):\n    return x * 2\ny = f(hm.ones((1,)))"]
    cells += ["@hm.trace\ndef f(x):\n    return x * 3\nseen = f(hm.ones((1,))).item()" + show]
    path, target = tmp_path / "programs.ipynb", tmp_path / "run.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in cells]), path)
    environment = os.environ | {"PYTHONPATH": str(ROOT), "IPYTHONDIR": str(tmp_path)}
    command = [sys.executable, "-c", EXECUTE, str(path), str(target), str(tmp_path)]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr[-4000:]
    outputs = [cell.get("outputs", ()) for cell in nbformat.read(target, as_version=4).cells]
    texts = ["".join(o.text for o in found if o.get("name") == "stdout") for found in outputs]
    printed = [text for text in texts if text]
    assert list(map(json.loads, printed)) == [*([p.seen, p.compiles] for p in PROGRAMS.values()), [3, 1]]
