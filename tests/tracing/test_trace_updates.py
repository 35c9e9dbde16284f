"""Numbers that a traced function updates: programs of any value, and the state that eager code leaves."""

from __future__ import annotations

import dataclasses
import threading
import warnings
from collections.abc import Callable
from typing import Any

import pytest

import hybridml as hm
from hybridml_compiler.errors import TraceError

COUNT = 0


class Box:
    def __init__(self) -> None:
        self.n, self.total, self.best, self.log = 0, 0.0, float("inf"), {"loss": 0.0, "steps": 0}

    def bump(self, by: Any = 1) -> None:
        self.n += by


class Slotted:
    __slots__ = ("n",)

    def __init__(self) -> None:
        self.n = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    n: int = 3


class Net(hm.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.steps = 0

    def forward(self, x: hm.Tensor) -> hm.Tensor:
        self.steps += 1
        return x * self.steps


Made = tuple[Callable[[hm.Tensor], Any], Callable[[], Any]]
PROGRAMS: dict[str, tuple[Callable[[], Made], int]] = {}  # name -> what makes (program, state), compiled programs


def program(compiles: int) -> Callable[[Callable[[], Made]], Callable[[], Made]]:
    def add(make: Callable[[], Made]) -> Callable[[], Made]:
        PROGRAMS[make.__name__] = make, compiles
        return make

    return add


@program(1)
def attribute() -> Made:
    box = Box()

    def f(x: hm.Tensor) -> Any:
        box.n += 1
        return x * box.n

    return f, lambda: box.n


@program(1)
def module() -> Made:
    net = Net()
    return net.forward, lambda: net.steps


@program(1)
def slot() -> Made:
    box = Slotted()

    def f(x: hm.Tensor) -> Any:
        box.n += 2
        return x + box.n

    return f, lambda: box.n


@program(1)
def variable_of_an_enclosing_function() -> Made:
    total, n = 0.0, 0

    def f(x: hm.Tensor) -> Any:
        nonlocal total, n
        loss = (x * x).sum()
        total += loss.item()
        n += 1
        return loss * (total / n)

    return f, lambda: (total, n)


@program(1)
def global_variable() -> Made:
    def f(x: hm.Tensor) -> Any:
        global COUNT
        COUNT += 1
        return x - COUNT

    def state() -> Any:
        return COUNT

    globals()["COUNT"] = 0
    return f, state


@program(1)
def items() -> Made:
    log = {"steps": 0, "loss": 0.0, "name": "run"}

    def f(x: hm.Tensor) -> Any:
        log["steps"] += 1
        log["loss"] = 0.9 * log["loss"] + 0.1 * x.sum().item()
        return x * log["loss"]

    return f, lambda: log


@program(1)
def new_items() -> Made:
    log: dict[str, Any] = {}

    def f(x: hm.Tensor) -> Any:
        log["loss"] = x.sum().item()
        log["last"] = x * 2
        return x + 1

    return f, lambda: {key: value if key == "loss" else value.tolist() for key, value in log.items()}


@program(1)
def methods_and_loops() -> Made:
    box = Box()

    def f(x: hm.Tensor) -> Any:
        for _ in range(3):
            box.bump()
        box.bump(2)
        box.total = box.total + x.mean().item() * box.n
        return x * box.total

    return f, lambda: (box.n, box.total)


@program(2)
def one_way_of_two() -> Made:
    box = Box()

    def f(x: hm.Tensor) -> Any:
        if x.sum() > 2:
            box.n += 1
        return x * box.n

    return f, lambda: box.n


@program(2)
def the_best() -> Made:
    box = Box()

    def f(x: hm.Tensor) -> Any:
        box.best = min(box.best, x.sum().item())
        return x + 0

    return f, lambda: box.best


@program(2)
def another_type() -> Made:
    box = Box()

    def f(x: hm.Tensor) -> Any:
        box.n += 0.5
        return x * box.n

    return f, lambda: box.n


@program(1)
def what_is_returned() -> Made:
    box = Box()

    def f(x: hm.Tensor) -> Any:
        before = box.n
        box.n = before + 1
        return x * 1, before, box.n, box.n is before, isinstance(box.n, int)

    return f, lambda: box.n


def plain(found: Any) -> Any:
    if isinstance(found, tuple | list):
        return [plain(part) for part in found]
    return found.tolist() if isinstance(found, hm.Tensor) else (type(found), found)


def calls(make: Callable[[], Made], style: Callable[[Any], Any]) -> tuple[Any, Any]:
    fn, state = make()
    run = style(fn)
    found = [(plain(run(hm.tensor([1.0, k]))), plain([*state().items()] if isinstance(state(), dict) else state()))
             for k in (0.5, 1.5, -1.0, 2.0, 0.0)]  # fmt: skip
    return found, run


@pytest.mark.parametrize("name", PROGRAMS)
def test_updates(name: str, trace: Any) -> None:
    make, compiles = PROGRAMS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found, traced = calls(make, trace)
    assert found == calls(make, lambda fn: fn)[0]
    assert traced.cache_info().compiles == compiles


def test_a_counter_that_steers_python_runs_eagerly(trace: Any) -> None:
    def make() -> Made:
        box = Box()

        def f(x: hm.Tensor) -> Any:
            box.n += 1
            return x * sum(range(box.n))

        return f, lambda: box.n

    with pytest.warns(UserWarning, match="changes n .*run eagerly"):
        found, traced = calls(make, trace)
    assert found == calls(make, lambda fn: fn)[0] and traced.cache_info().compiles == 1


def test_an_error_leaves_the_count(trace: Any) -> None:
    box = Box()

    @trace
    def f(x: hm.Tensor) -> hm.Tensor:
        box.n += 1
        if x.sum() > 10:
            raise ValueError("too large")
        box.n += 1
        return x * box.n

    for expected, value in ((2, 1.0), (4, 2.0), (5, 20.0), (7, 3.0), (8, 30.0)):
        if value > 10:
            with pytest.raises(ValueError, match="too large"):
                f(hm.tensor(value))
        else:
            assert f(hm.tensor(value)).item() == value * expected
        assert box.n == expected and type(box.n) is int


def test_the_number_may_change_elsewhere(trace: Any) -> None:
    box = Box()

    @trace
    def f(x: hm.Tensor) -> hm.Tensor:
        box.n += 1
        return x * box.n

    one = hm.tensor(1.0)
    assert [f(one).item() for _ in range(3)] == [1.0, 2.0, 3.0]
    box.n = 1 << 40  # beyond what programs compute with
    with pytest.warns(UserWarning, match="changes n .*run eagerly"):
        assert f(one).item() == 2.0**40 and box.n == (1 << 40) + 1
    box.n = 7
    assert f(one).item() == 8.0
    del box.n
    with pytest.raises(AttributeError):
        f(one)


def test_strict_calls_it_an_error() -> None:
    box = Box()

    @hm.trace(strict=True)
    def f(x: hm.Tensor) -> hm.Tensor:
        box.n += 1
        return x * box.n

    with pytest.raises(TraceError, match="changes n"):
        f(hm.tensor(1.0))
    assert box.n == 0


def test_two_functions_and_threads_share_a_counter(trace: Any) -> None:
    """Each call counts; none sees what stands for the number while another one is traced."""
    box, lock = Box(), threading.Lock()

    def f(x: hm.Tensor) -> hm.Tensor:
        box.n += 1
        return x * 2

    def run(fn: Any) -> None:
        for _ in range(50):
            with lock:
                fn(hm.tensor(1.0))

    threads = [threading.Thread(target=run, args=(trace(f),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert box.n == 200 and type(box.n) is int


def test_gradients(trace: Any) -> None:
    box = Box()

    @trace
    def f(x: hm.Tensor) -> hm.Tensor:
        box.n += 1
        return (x * x * box.n).sum()

    x = hm.tensor([1.0, 2.0], requires_grad=True)
    for k in range(1, 5):
        x.grad = None
        f(x).backward()
        assert x.grad is not None and x.grad.tolist() == [2.0 * k, 4.0 * k]


def test_another_object_that_refuses_assignments(trace: Any) -> None:
    box, settings = Box(), Frozen()

    @trace
    def f(x: hm.Tensor) -> hm.Tensor:
        box.n += 1
        return x * settings.n * box.n

    assert [f(hm.tensor(1.0)).item() for _ in range(4)] == [3.0, 6.0, 9.0, 12.0]
    assert settings == Frozen() and box.n == 4 and f.cache_info().compiles == 1


def test_other_functions_see_the_number_that_a_module_counts(trace: Any) -> None:
    net = Net()
    count, read = trace(net.forward), trace(lambda x: x * len(range(net.steps)))
    for k in range(1, 6):
        count(hm.tensor(1.0))
        assert read(hm.tensor(1.0)).item() == k
