"""Containers that traced functions fill, wherever they lie: compiled calls leave what eager code leaves."""

from __future__ import annotations

import collections
import copy
import threading
import warnings
from collections.abc import Callable
from typing import Any

import pytest

import hybridml as hm

Step = Callable[..., Any]
STEPS: dict[str, tuple[Step, int]] = {}  # name -> the method of a user's class, compiled programs; 0: runs eagerly


def step(compiles: int) -> Callable[[Step], Step]:
    def add(fn: Step) -> Step:
        STEPS[fn.__name__] = fn, compiles
        return fn

    return add


class Box:
    flag = False

    def __init__(self) -> None:
        self.lines: list[Any] = []
        self.n, self.mode = 0, "train"
        self.log: dict[str, Any] = {"a": [], "b": [1, 2], "n": 0}
        self.last = collections.deque([0.0], maxlen=3)
        self.counts = collections.Counter[str]()
        self.groups = collections.defaultdict[Any, list[Any]](list)
        self.ordered = collections.OrderedDict[str, Any](x=1)
        self.nested: list[list[Any]] = [[], [0]]
        self.history: dict[Any, Any] = {}
        self.alias, self.fixed = self.log["a"], ([],)

    def record(self, name: str, *values: Any) -> None:
        self.log[name].extend(values)


@step(1)
def items(self: Any, x: Any) -> Any:
    self.log["a"].append(x.sum().item())
    self.nested[1] += [x.mean().item()]
    self.last.append(x.detach())
    self.last.appendleft(1)
    return x * len(self.log["b"])


@step(1)
def by_helpers_and_variables(self: Any, x: Any) -> Any:
    values = self.log["a"]
    values.append(x.sum().item())
    self.record("a", len(x), *(v.item() for v in x))
    for name, value in self.log.items():
        if name != "n":
            value.append(name)
    return x * 1


@step(1)
def texts(self: Any, x: Any) -> Any:
    name = "b"
    self.log["a"].append(f"loss {x.sum().item():.2f}")
    self.log[name].append({"text": f"mean {x.mean():.2f}"})
    self.nested[0].append(str(x[0].item()))
    return x * 1


@step(0)
def texts_that_are_read(self: Any, x: Any) -> Any:
    self.log["a"].append(f"loss {x.sum().item():.2f}")
    return x * len(self.log["a"][-1])


@step(1)
def emptied_first(self: Any, x: Any) -> Any:
    self.log["a"].clear()
    self.log["a"].append(x.sum().item())
    return self.log["a"]


@step(2)
def counts(self: Any, x: Any) -> Any:
    self.counts["steps"] += 1
    self.counts["sum"] += x.sum().item()
    self.log["n"] += 1
    return x * self.counts["steps"]


@step(2)
def made_at_the_first_call(self: Any, x: Any) -> Any:
    self.history.setdefault("losses", []).append(x.sum().item())
    self.groups["a"].append(x[0].item())
    self.groups[x.shape] += [x[1].item()]
    return x * self.history.setdefault("rate", 2)


@step(1)
def assigned(self: Any, x: Any) -> Any:
    self.history.update(loss=x.sum().item(), n=1)
    self.history |= {"more": x * 2}
    for name in ("p", "q"):
        self.history[name] = x.mean().item()
    return x * 1


@step(2)
def ordered(self: Any, x: Any) -> Any:
    self.ordered["x"] = x.sum().item()
    self.ordered["y"] = 1
    self.ordered.move_to_end("x")
    return list(self.ordered)


@step(2)
def the_best(self: Any, x: Any) -> Any:
    if x.sum().item() > self.history.get("best", -1.0):
        self.history["best"] = x.sum().item()
        self.history["weights"] = {"x": x.clone()}
    return x * 1


@step(2)
def one_of_two(self: Any, x: Any) -> Any:
    if x.sum() > 3:
        self.log["a"].append(x.sum().item())
    else:
        self.log["b"].append(x.sum().item())
        self.n += 1
    return x * self.n


@step(3)
def flags(self: Any, x: Any) -> Any:
    self.flag = not self.flag
    return x * (2 if self.flag else 3)


@step(2)
def modes(self: Any, x: Any) -> Any:
    y = x * (2 if self.mode == "eval" else 5)
    self.mode = "eval"
    z = y * (2 if self.mode == "eval" else 5)
    self.mode = "train" if self.mode != "eval" else "eval"
    return z


@step(1)
def modes_set_and_left(self: Any, x: Any) -> Any:
    self.mode = "eval"
    y = x * (2 if self.mode == "eval" else 5)
    self.mode = "train"
    return y


@step(0)
def its_length(self: Any, x: Any) -> Any:
    self.log["a"].append(x.sum().item())
    return x * len(self.log["a"])


@step(0)
def the_one_before(self: Any, x: Any) -> Any:
    before = self.log["a"][-1] if self.log["a"] else 0.0
    self.log["a"].append(x.sum().item())
    return x * before


@step(0)
def their_mean(self: Any, x: Any) -> Any:
    self.last.append(x.sum().item())
    return sum(self.last) / len(self.last)


@step(0)
def by_another_name(self: Any, x: Any) -> Any:
    self.log["a"].append(x.sum().item())
    return x * len(self.alias)


@step(0)
def in_a_tuple(self: Any, x: Any) -> Any:
    self.fixed[0].append(x.sum().item())
    return x * 1


@step(0)
def taken_out(self: Any, x: Any) -> Any:
    self.last.append(x.sum().item())
    return self.last.popleft()


@step(0)
def sorted_in_place(self: Any, x: Any) -> Any:
    self.log["a"].append(-x.sum().item())
    self.log["a"].sort()
    return x * 1


@step(0)
def exchanged(self: Any, x: Any) -> Any:
    self.log["a"], self.log["b"] = self.log["b"], self.log["a"]
    self.log["a"].append(x.sum().item())
    return x * 1


@step(0)
def replaced(self: Any, x: Any) -> Any:
    self.log["a"].append(x.sum().item())
    self.log["a"] = []
    self.log["a"].append(2.0)
    return x * 1


@step(0)
def kept_elsewhere(self: Any, x: Any) -> Any:
    self.lines = self.log["a"]
    self.log["a"].append(x.sum().item())
    return x * 1


@step(0)
def copied(self: Any, x: Any) -> Any:
    self.log["a"].append(x.sum().item())
    return copy.copy(self.log["a"]), copy.deepcopy(self.log), [*self.log["a"]], str(self.log["a"]) != "[]"


@step(0)
def given_to_the_library(self: Any, x: Any) -> Any:
    self.log["a"].append(x * 1)
    return hm.stack(self.log["a"]).sum()


@step(0)
def another_key_each_time(self: Any, x: Any) -> Any:
    self.n += 1
    self.history[self.n] = x.sum().item()
    return x * 1


@step(0)
def another_text_each_time(self: Any, x: Any) -> Any:
    self.mode = self.mode + "."
    return x * len(self.mode)


@step(0)
def by_another_thread(self: Any, x: Any) -> Any:
    thread = threading.Thread(target=lambda: self.log["a"].append(1))
    thread.start()
    thread.join()
    self.log["a"].append(x.sum().item())
    return x * 1


def plain(found: Any) -> Any:
    if isinstance(found, hm.Tensor):
        return found.tolist()
    if isinstance(found, dict):
        return type(found), [(key, plain(value)) for key, value in found.items()]
    if isinstance(found, list | tuple | collections.deque):
        return type(found), [plain(part) for part in found]
    return type(found), found


def run(method: Step, style: Callable[[Any], Any]) -> tuple[Any, Any, list[str]]:
    box, found = type("Net", (Box,), {"step": method})(), []
    call = style(box.step)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for k in range(12):
            out = call(hm.tensor([1.0, 0.5, k]))
            found.append((plain(out), out is box.log["a"], plain(vars(box))))
    return found, call, [str(warning.message) for warning in warned]


@pytest.mark.parametrize("name", STEPS)
def test_containers(name: str, trace: Any) -> None:
    method, compiles = STEPS[name]
    expected = run(method, lambda fn: fn)[0]
    found, traced, warned = run(method, trace)
    assert found == expected
    if compiles:
        assert not warned and traced.cache_info().compiles == compiles
    else:
        assert any("run eagerly" in text for text in warned)


def test_an_error_leaves_what_was_filled_before_it(trace: Any) -> None:
    def run(style: Callable[[Any], Any]) -> Any:
        box = Box()

        def f(x: hm.Tensor) -> hm.Tensor:
            box.log["a"].append(x.item())
            box.counts["calls"] += 1
            if x > 2:
                raise ValueError("too large")
            box.history["last"] = x
            box.mode = "eval"
            return x * box.counts["calls"]

        call, found = style(f), []
        for k in (3.0, 1.0, 2.0, 4.0, 0.0, 5.0, 1.5):
            try:
                found.append(plain(call(hm.tensor(k))))
            except ValueError as error:
                found.append(str(error))
            found.append(plain(vars(box)))
        return found

    assert run(trace) == run(lambda fn: fn)


def test_the_container_may_be_another(trace: Any) -> None:
    box = Box()

    @trace
    def f(x: hm.Tensor) -> hm.Tensor:
        box.log["a"].append(x.item())
        return x * 1

    for k in range(3):
        f(hm.tensor(float(k)))
    first, box.log["a"] = box.log["a"], ["new"]
    for k in range(3):
        f(hm.tensor(float(k)))
    box.log["a"].pop()
    f(hm.tensor(9.0))
    assert first == [0.0, 1.0, 2.0] and box.log["a"] == ["new", 0.0, 1.0, 9.0]


def test_other_functions_see_the_mode_that_compiled_calls_set(trace: Any) -> None:
    net = hm.nn.Sequential(hm.nn.Linear(1, 1), hm.nn.Dropout(0.5))

    def evaluate(x: hm.Tensor) -> hm.Tensor:
        net.eval()
        return net(x) * 0 + 1

    leave, mode = trace(evaluate), trace(lambda x: x * (2 if net.training else 3))
    for _ in range(3):
        net.train()
        assert mode(hm.tensor([1.0])).tolist() == [2]
        assert leave(hm.tensor([1.0])).tolist() == [1] and not net.training
        assert mode(hm.tensor([1.0])).tolist() == [3]


def test_strict_calls_it_an_error() -> None:
    box = Box()

    @hm.trace(strict=True)
    def f(x: hm.Tensor) -> hm.Tensor:
        box.log["a"].append(x.item())
        return x * 1

    with pytest.raises(hm.TraceError, match="changes a"):
        f(hm.tensor(1.0))
    assert box.log["a"] == []
