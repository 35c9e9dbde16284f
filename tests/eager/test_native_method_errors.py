"""Native methods meet exceptions, wrong arguments, programs that change methods, and the end of a process."""

from __future__ import annotations

import gc
import operator
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from types import FrameType
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml.core import aliasing, dispatch, native_methods, source_location
from hybridml.core.tensor import Tensor
from hybridml_compiler.errors import CompileWarning

pytestmark = pytest.mark.usefixtures("native")


@contextmanager
def interrupted(function: Any) -> Iterator[None]:
    """The first call of a function is interrupted, as by a signal's handler."""

    def interrupt(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code is function.__code__:
            raise KeyboardInterrupt

    sys.setprofile(interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            yield
    finally:
        sys.setprofile(None)


def _outcome(function: Callable[..., Any], *given: Any) -> str:
    try:
        return repr(function(*given))
    except Exception as error:
        return f"{type(error)} {error}".replace("Tensor.", "").partition("\n")[0]


def _said(program: str) -> list[str]:
    program = "import hybridml as hm\n" + program
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()


@pytest.mark.parametrize(
    "write",
    [
        lambda x: operator.iadd(x, 1.0),
        lambda x: operator.setitem(x, slice(None), x._array + 1.0),
        lambda x: [operator.setitem(x, 0, 1.0), operator.setitem(x, 1, 1.0)],
    ],
)
def test_a_write_that_is_interrupted_has_not_been_made(write: Callable[[Tensor], Any]) -> None:
    x = hm.zeros(2)
    source_location.known_user[0] = None  # so that the line is asked for in Python
    with interrupted(source_location.stamped):
        write(x)
    assert x.tolist() == [0.0, 0.0]
    write(x)
    assert x.tolist() == [1.0, 1.0]


def test_interrupts_while_views_are_noted() -> None:
    x = hm.ones(5)
    views = []
    with interrupted(aliasing.forget):
        for _ in range(1000):
            views.append(x[0:2])
    assert 0 < len(views) < 1000 and x[0:2].tolist() == [1.0, 1.0]


def test_parts_of_slices_are_asked_once() -> None:
    class Stop:
        calls = 0

        def __index__(self) -> int:
            self.calls += 1
            if self.calls == 1:
                raise KeyboardInterrupt
            return 2

    x, stop = hm.ones(5), Stop()
    with pytest.raises(KeyboardInterrupt):
        x[0:stop]
    assert stop.calls == 1 and x[0:stop].tolist() == [1.0, 1.0]


@pytest.mark.parametrize("given", [(), (0,), (0, 1.0, 2), range(2_000_000)], ids=len)
def test_a_wrong_number_of_arguments(given: Sequence[Any]) -> None:
    x = hm.ones(3)
    with pytest.raises(TypeError):
        Tensor.__setitem__(x, *given)


@pytest.mark.parametrize("call", [[], None, b"__call__", "reduce_all"])
def test_calls_of_functions_that_have_no_such_name(call: Any) -> None:
    given = (hm.ones(3), np.add, call, hm.ones(3), hm.ones(3))
    assert _outcome(Tensor.__array_ufunc__, *given) == _outcome(native_methods.fallbacks["__array_ufunc__"], *given)


def test_tensors_are_used_at_the_very_end_of_a_process() -> None:
    program = (
        "import os, sys\n"
        "for k in range(2000): hm.ones(2)[0]\n"
        "class Last:\n"
        "    x = hm.ones(4)\n"
        "    def __del__(self, write=os.write):\n"
        "        self.x + self.x; self.x[0]; write(1, b'done')\n"
        "sys.keep = Last()"
    )
    assert _said(program) == ["done"]


def test_methods_of_the_program_are_left_alone() -> None:
    program = (
        "old, calls = hm.Tensor.__add__, []\n"
        "hm.Tensor.__add__ = lambda x, y: calls.append(0) or old(x, y)\n"
        "hm.Tensor.__getitem__ = lambda x, key: 7\n"
        "from hybridml.core import native_methods\n"
        "native_methods.install()\n"
        "x = hm.ones(2)\n"
        "for k in range(9): x + x; x * x\n"
        "print(len(calls), type(hm.Tensor.__mul__).__name__, x[0])"
    )
    assert _said(program) == ["9", "wrapper_descriptor", "7"]


def test_what_cannot_be_installed_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    python, x = native_methods.fallbacks["__getitem__"], hm.ones(3)
    for error, left in ((RecursionError(), True), (OSError(), False)):

        def fails(compiles: bool, error: Exception = error) -> bool:
            raise error

        monkeypatch.setattr(dispatch, "installers", [fails])
        monkeypatch.setattr(dispatch, "_left", 1e-9)
        with nullcontext() if left else pytest.warns(CompileWarning, match="without native methods"):
            assert float(python(x, 0)) == 1.0
        assert bool(dispatch._left) is left


def test_equal_code_of_two_files() -> None:
    x = hm.zeros(2)
    for name in ("one_program.py", "another_program.py"):
        exec(compile("for _ in range(3): x[0] = 3.0", name, "exec"), {"x": x})
        assert name in source_location.overwritten_at(x._version)


def test_a_view_of_a_finalizer_while_another_is_made() -> None:
    class Cycle:
        def __init__(self) -> None:
            self.own = self

        def __del__(self) -> None:
            seen.append(x[0:1])

    threshold = gc.get_threshold()
    try:
        for k in range(1, 8):  # the collection comes with one of the objects that a view takes
            gc.collect()
            seen: list[Tensor] = []
            x = hm.zeros(2)
            gc.disable()
            Cycle()
            gc.set_threshold(gc.get_count()[0] + k, 1000, 1000)
            gc.enable()
            view = x[1:]
            gc.set_threshold(*threshold)
            gc.collect()
            assert all(v._version is x._version for v in (view, *seen))
            assert len(seen) == 1
    finally:
        gc.set_threshold(*threshold)
        gc.enable()
