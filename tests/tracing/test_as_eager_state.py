"""State as eager code leaves it: objects, iterators, contexts, errors, output and files around a traced function."""

from __future__ import annotations

import contextlib
import contextvars
import functools
import itertools
import operator
import os
import pathlib
import posixpath
import pprint
import sys
import tempfile
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml.tracing.python_state.builtin_patches import patches
from tests.support.as_eager import Made, observe

T = hm.tensor
COMPILED: dict[str, Callable[[], Made]] = {}  # and nothing is said
EAGER: dict[str, Callable[[], Made]] = {}


def compiled(make: Callable[[], Made]) -> Callable[[], Made]:
    COMPILED[make.__name__] = make
    return make


def eager(make: Callable[[], Made]) -> Callable[[], Made]:
    EAGER[make.__name__] = make
    return make


def calls() -> list[Any]:
    return [(T([1.0, 2.0]),), (T([3.0, -4.0]),), (T([5.0, 6.0]),)]


class Thing:
    scale = 1.0

    def __init__(self, value: Any = 1.0) -> None:
        self.value = value
        self.seen: list[Any] = []

    @property
    def twice(self) -> Any:
        return self.value * 2

    @functools.cached_property
    def kept(self) -> Any:
        return self.value * 3

    def __getitem__(self, key: Any) -> Any:
        return vars(self)[key]


def moving(step: Callable[[], Any]) -> list[Any]:
    """Calls with something changed before each."""

    def call() -> Any:
        step()
        return (T([1.0, 2.0]),)

    return [call] * 4


@compiled
def a_property() -> Made:
    thing = Thing()
    return lambda x: x * thing.twice + thing["value"], moving(lambda: setattr(thing, "value", thing.value + 1))


@compiled
def a_class_variable() -> Made:
    class Own(Thing):
        pass

    thing = Own()
    return lambda x: x * thing.scale, moving(lambda: setattr(Own, "scale", Own.scale + 1))


@compiled
def a_context_variable() -> Made:
    variable = contextvars.ContextVar("variable", default=1.0)
    return lambda x: x * variable.get(), moving(lambda: variable.set(variable.get() + 1))


@compiled
def behind_a_weak_reference() -> Made:
    thing = Thing()
    known = weakref.ref(thing)

    def read(x: Any) -> Any:
        found = known()
        assert found is not None
        return x * found.value

    return read, moving(lambda: setattr(thing, "value", thing.value + 1)), lambda: thing.value


@compiled
def a_variable_that_a_library_reads() -> Made:
    os.environ["HML_TEST_DIR"] = "1"
    return (
        lambda x: x * len(posixpath.expandvars("$HML_TEST_DIR")),
        moving(lambda: os.environ.update(HML_TEST_DIR=os.environ["HML_TEST_DIR"] + "1")),
    )


@compiled
def defaults() -> Made:
    def f(x: Any, *, factor: Any = [1.0, 2.0]) -> Any:  # noqa: B006
        return x * factor[0]

    factor = f.__kwdefaults__["factor"]
    return f, moving(lambda: operator.setitem(factor, 0, factor[0] + 1))


@compiled
def a_decorator_that_counts() -> Made:
    names: list[str] = []

    def counted(fn: Any) -> Any:
        @functools.wraps(fn)
        def wrapper(*args: Any) -> Any:
            names.append(fn.__name__)
            return fn(*args)

        return wrapper

    @counted
    def f(x: Any) -> Any:
        return x * 2

    return f, calls(), lambda: list(names)


@compiled
def a_context_manager_that_logs() -> Made:
    log: list[str] = []

    @contextlib.contextmanager
    def entered() -> Iterator[float]:
        log.append("in")
        yield 2.0
        log.append("out")

    def f(x: Any) -> Any:
        with entered() as scale, contextlib.suppress(ZeroDivisionError):
            return x * scale

    return f, calls(), lambda: list(log)


@compiled
def generators_inside() -> Made:
    def parts(x: Any) -> Iterator[Any]:
        for k in range(3):
            yield x * k

    return lambda x: (sum(parts(x)), functools.reduce(operator.mul, parts(x + 1)), [*x], next(parts(x))), calls()


@compiled
def errors_and_updates() -> Made:
    def f(x: Any) -> Any:
        try:
            if x.sum() < 0:
                raise ValueError(f"negative: {x.sum().item()}")
        except ValueError as error:
            return str(error)
        finally:
            x += 1
        return x

    return f, calls()


@compiled
def raised_errors() -> Made:
    log: list[int] = []

    def f(x: Any) -> Any:
        x += 1
        log.append(1)
        assert x.sum() > 0, "negative"
        if x.sum() > 10:
            raise KeyError(x.sum().item())
        return x

    return f, calls(), lambda: list(log)


@compiled
def printed() -> Made:
    def f(x: Any) -> Any:
        print("x", x, [x.sum()], x.max().item(), sep="|")
        y = x * 2
        x += 1
        print(y)
        return y

    return f, calls()


@compiled
def printed_texts() -> Made:
    def f(x: Any) -> Any:
        print(f"{x.sum().item():.3f} {x}")
        return x if x.sum() > 0 else print("no")

    return f, calls()


@eager
def counters() -> Made:
    count = itertools.count()
    return lambda x: x * next(count), calls()


@eager
def cycles() -> Made:
    cycle = itertools.cycle([1.0, 2.0])
    return lambda x: x * next(cycle), calls()


@eager
def generators() -> Made:
    numbers = (float(k) for k in range(10))
    return lambda x: x * next(numbers), calls(), lambda: next(numbers)


@compiled
def counts_by_number() -> Made:
    counts: dict[Any, int] = {}

    def f(x: Any, key: Any) -> Any:
        counts[key] = counts.get(key, 0) + 1
        return x * counts[key]

    return f, [(T([1.0]), key) for key in (1, 2, 1.5, 3, 2.5, 1, 1.5)], lambda: counts


@eager
def objects_that_hold() -> Made:
    thing = Thing(None)

    def f(x: Any) -> Any:
        thing.value = Thing(x * 2)
        return x

    return f, calls(), lambda: thing.value and thing.value.value


@compiled
def cached_tensors() -> Made:
    thing = Thing(T([2.0]))
    return lambda x: x * thing.kept, calls(), lambda: sorted(vars(thing))


@eager
def files() -> Made:
    path = pathlib.Path(tempfile.mkdtemp()) / "log"

    def f(x: Any) -> Any:
        with open(path, "a") as file:
            file.write("line\n")
        return x * 2

    return f, calls(), lambda: path.read_text()


@eager
def paths() -> Made:
    path = pathlib.Path(tempfile.mkdtemp()) / "log"
    path.write_text("")

    def f(x: Any) -> Any:
        path.write_text(path.read_text() + "l")
        return x * path.stat().st_size

    return f, calls(), lambda: path.read_text()


@eager
def threads() -> Made:
    found: list[int] = []

    def f(x: Any) -> Any:
        thread = threading.Thread(target=lambda: found.append(1))
        thread.start()
        thread.join()
        return x * len(found)

    return f, calls(), lambda: list(found)


@eager
def standard_output() -> Made:
    def f(x: Any) -> Any:
        sys.stdout.write("line\n")
        return x * 2

    return f, calls()


@eager
def printed_by_a_library() -> Made:
    def f(x: Any) -> Any:
        pprint.pprint([x])
        return x * 2

    return f, calls()


@eager
def warned() -> Made:
    def f(x: Any) -> Any:
        warnings.warn("careful", stacklevel=1)
        return x * 2

    return f, calls()


@pytest.mark.parametrize("name", [*COMPILED, *EAGER])
def test_state_is_left_as_by_eager_code(name: str) -> None:
    make = COMPILED.get(name) or EAGER[name]
    expected = observe(make, lambda fn: fn)
    seen = observe(make, hm.trace)
    assert seen[:2] == expected[:2]
    assert bool(seen[2]) is (name in EAGER), seen[2]


def test_what_cannot_be_set_back_is_an_error() -> None:
    numbers = (float(k) for k in range(10))
    f = hm.trace(lambda x, a: x * next(numbers) * len(a.tobytes()))
    with pytest.raises(hm.TraceError, match="cannot be set back: numbers"):
        f(T([1.0]), np.ones(1))
    taken = iter([1.0, 2.0, 3.0])
    g = hm.trace(lambda x, a: x * next(taken) * len(a.tobytes()))
    with pytest.warns(UserWarning, match="by NumPy alone"):
        assert [g(T([1.0]), np.ones(1)).item() for _ in range(3)] == [8.0, 16.0, 24.0]


def test_names_are_those_of_python_after_a_trace() -> None:
    def f(x: Any) -> Any:
        return x * 2 if type(x) is hm.Tensor else print(x)

    hm.trace(f)(T([1.0]))
    assert "type" not in globals() and "print" not in globals()
    assert os.environ.__class__.__getitem__.__qualname__ == "_Environ.__getitem__"
    assert os.environ.encodekey.__module__ == "os"


def test_variables_that_a_library_reads_are_noted_after_many_traces() -> None:
    """Python 3.13 does not see the 1001st change of a class in code that it has specialised."""

    def read() -> str:
        return posixpath.expandvars("$HML_TEST_DIR")

    fn, calls, *_ = a_variable_that_a_library_reads()
    for _ in range(600):
        with patches((), ()):
            read()
        for _ in range(20):
            read()
    f = hm.trace(fn)
    for call in calls:
        args = call()
        assert f(*args).tolist() == fn(*args).tolist()


def test_threads_that_trace_one_module_at_once() -> None:
    failed: list[BaseException] = []

    def traced(x: Any, n: Any) -> Any:
        return (x * n if type(n) is float else x), type(x).__name__, os.environ.get("HOME")

    def work() -> None:
        try:
            for _ in range(5):
                f = hm.trace(lambda x, n: traced(x, n))
                for n in (1.0, 2.0, 3, 4):
                    assert f(T([2.0]), n)[0].item() == (2.0 * n if isinstance(n, float) else 2.0)
                    assert f(T([2.0]), n)[1:] == traced(T([2.0]), n)[1:]
        except BaseException as error:
            failed.append(error)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failed and "type" not in globals()


def test_one_element_of_a_large_array_that_numpy_reads() -> None:
    weights = np.ones(200_000)

    def program(x: hm.Tensor) -> hm.Tensor:
        return x * float(weights.sum())

    traced, x = hm.trace(program), hm.ones((3,))
    for place in (0, 77_777, 199_999, 3):
        weights[place] += 4.0
        assert traced(x).tolist() == program(x).tolist()
