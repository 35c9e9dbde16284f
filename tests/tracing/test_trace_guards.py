"""What a traced program has read of Python is checked at each call: a compiled program is never stale."""

from __future__ import annotations

import collections
import os
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml import nn

FACTOR = 2.0


class Config:
    factor = 2.0

    def __init__(self) -> None:
        self.scale = 2.0
        self.steps = 0
        self.table = {"a": 2.0}

    def times(self, x: hm.Tensor) -> hm.Tensor:
        return x * FACTOR

    @property
    def power(self) -> float:
        return FACTOR

    @staticmethod
    def plain(x: hm.Tensor) -> hm.Tensor:
        return x * FACTOR


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.items = [2.0]
        self.table = {"a": {"b": 2.0}}
        self.config = Config()
        self.count = 0

    def forward(self, x: hm.Tensor) -> hm.Tensor:
        return x * self.items[0] * self.table["a"]["b"] * self.config.scale * FACTOR


class Slotted:
    __slots__ = ("factor",)


def _put(target: Any, key: Any, value: Any) -> Callable[[], None]:
    return lambda: target.__setitem__(key, value)


def _set(target: Any, name: str, value: Any) -> Callable[[], None]:
    return lambda: setattr(target, name, value)


def _global(value: float) -> Callable[[], None]:
    return _put(globals(), "FACTOR", value)


def _cases() -> dict[str, Callable[[], tuple[Callable[[hm.Tensor], hm.Tensor], list[Callable[[], Any]]]]]:
    """name -> () -> (a function, what is done between its calls)."""

    def module_containers() -> Any:
        m = Scaled()
        changes = [_put(m.items, 0, 3.0), _put(m.table["a"], "b", 5.0), _set(m.config, "scale", 7.0), _global(11.0)]
        return m.forward, changes

    def called_module() -> Any:
        m = nn.Sequential(Scaled())
        return lambda x: m(x), [_global(3.0), _put(m[0].items, 0, 5.0)]

    def python_module() -> Any:
        config = types.ModuleType("config")
        config.factor, config.times = 2.0, lambda x: x * FACTOR
        return lambda x: config.times(x) * config.factor, [_set(config, "factor", 3.0), _global(5.0)]

    def class_attribute() -> Any:
        kind = type("Kind", (Config,), {})
        c = kind()
        changes = [_set(kind, "factor", 3.0), _set(c, "factor", 5.0), _set(kind, "times", lambda self, x: x * 7)]
        return lambda x: c.times(x) * c.factor, changes

    def class_itself() -> Any:
        kind = type("Kind", (), {"factor": 2.0})
        return lambda x: x * kind.factor, [_set(kind, "factor", 3.0)]

    def methods() -> Any:
        c = Config()
        return lambda x: c.times(x) * c.power + c.plain(x), [_global(3.0)]

    def function_in_dict() -> Any:
        table = {"f": lambda x: x * FACTOR}
        return lambda x: table["f"](x), [_global(3.0), _put(table, "f", lambda x: x * 5)]

    def function_attribute() -> Any:
        def times(x: hm.Tensor) -> hm.Tensor:
            return x * times.factor

        times.factor = 2.0
        return lambda x: times(x), [_set(times, "factor", 3.0)]

    def slots() -> Any:
        s = Slotted()
        s.factor = 2.0
        return lambda x: x * s.factor, [_set(s, "factor", 3.0)]

    def other_containers() -> Any:
        some, queue = {2.0}, collections.deque([2.0])
        return lambda x: x * sum(some) + sum(queue), [lambda: some.add(3.0), lambda: queue.append(5.0), queue.popleft]

    def list_of_tensors() -> Any:
        held = [hm.tensor([float(k), 1.0]) for k in range(30)]
        more = [hm.tensor([5.0, 7.0])]
        changes = [
            _put(held, 3, more[0]), lambda: held.append(more[0]), held.pop, held.reverse,
            lambda: held.append(held.pop(0)), lambda: held[4].add_(1.0),
            lambda: held.extend(more * 100), held.clear, lambda: held.extend(more),
        ]  # fmt: skip
        return lambda x: sum([(k + 1) * t for k, t in enumerate(held)], x), changes

    def list_in_a_variable() -> Any:
        held = [hm.tensor([2.0])]

        def swap() -> None:
            nonlocal held
            held = [hm.tensor([3.0])]

        return lambda x: x * held[0], [swap, lambda: held.insert(0, hm.tensor([5.0]))]

    def equal_objects() -> Any:
        table = {"a": 1.5, "b": [100.5]}
        same = [_put(table, "c", 0.0), _put(table, "a", float("2.5")), _put(table["b"], 0, float("200.25"))]
        return lambda x: x * table["a"] + table["b"][0] + len(table), same

    def read_only_view() -> Any:
        table = {"a": 1.5, "b": [100.5]}
        view = types.MappingProxyType(table)
        changes = [_put(table, "a", 2.5), _put(table["b"], 0, 200.25), _put(table, "c", 0.0)]
        return lambda x: x * view["a"] + view["b"][0] + len(view), changes

    def absent_keys() -> Any:
        table: dict[str, float] = {}
        return lambda x: x * table.get("a", 2.0), [_put(table, "a", 3.0), table.clear, _put(table, "a", 5.0)]

    def long_list() -> Any:
        long, layers = [1.0] * 200, [nn.Dropout(1.0) for _ in range(150)]
        return lambda x: layers[-1](x) + sum(long), [_put(long, 150, 3.0), layers[-1].eval]

    def any_key() -> Any:
        key = object()
        table = {key: 2.0, (1, 2): 3.0}
        return lambda x: x * table[key] * table[1, 2], [_put(table, key, 5.0), _put(table, (1, 2), 7.0)]

    def reflection() -> Any:
        c = Config()
        name = "".join(["sca", "le"])
        return lambda x: x * getattr(c, name), [_set(c, "scale", 3.0)]

    def read_by_numpy() -> Any:
        array, table = np.array([2.0, 3.0]), {"a": np.ones(2)}
        changes = [_put(array, 0, 5.0), _put(table["a"], 1, 4.0), _put(table, "a", np.full(2, 9.0))]
        return lambda x: x * array.max() + float(np.sum(table["a"])), changes

    def namespace() -> Any:
        options = types.SimpleNamespace(factor=2.0)
        return lambda x: x * options.factor, [_set(options, "factor", 3.0)]

    def an_attribute_that_is_not_there() -> Any:
        c, other = Config(), Config()

        def f(x: hm.Tensor) -> hm.Tensor:
            return x * getattr(c, "by", 1.0) * (2 if hasattr(other, "doubled") else 1)

        return f, [_set(c, "by", 3.0), _set(other, "doubled", True)]

    def an_attribute_that_may_be_missing() -> Any:
        c = Config()

        def f(x: hm.Tensor) -> hm.Tensor:
            c.found = x.sum()  # what the function adds itself is no change
            try:
                return x * c.by
            except AttributeError:
                return x

        return f, [_set(c, "by", 3.0)]

    def every_attribute() -> Any:
        c = types.SimpleNamespace(a=1.0)
        return lambda x: x * sum(vars(c).values()), [_set(c, "a", 2.0), _set(c, "b", 3.0)]

    def a_global_that_is_not_there() -> Any:
        globals().pop("LATE", None)

        def f(x: hm.Tensor) -> hm.Tensor:
            try:
                return x * LATE
            except NameError:
                return x

        return f, [_put(globals(), "LATE", 3.0), lambda: globals().pop("LATE")]

    def keys_of_a_long_dict() -> Any:
        table = dict.fromkeys(range(150), 1.0)
        return lambda x: x * (3.0 if 200 in table else 2.0), [lambda: table.update({200: table.pop(149)})]

    def a_default_array() -> Any:
        def times(x: hm.Tensor, by: Any = np.ones(2)) -> hm.Tensor:  # noqa: B008
            return x * float(by.sum())

        return lambda x: times(x), [_set(times, "__defaults__", (np.full(2, 3.0),))]

    return {name: case for name, case in locals().items() if callable(case)}


@pytest.mark.parametrize("name", _cases())
def test_never_stale(name: str, trace: Any) -> None:
    def values(style: Callable[[Any], Any]) -> list[list[float]]:
        globals()["FACTOR"] = 2.0
        fn, changes = _cases()[name]()
        f, x, seen = style(fn), hm.tensor([1.0, 2.0]), []
        for change in (lambda: None, *changes):
            change()
            seen += [f(x).tolist() for _ in range(4)]
        return seen

    try:
        eager = values(lambda fn: fn)
        assert all(a != b for a, b in zip(eager[::4], eager[4::4], strict=False))  # each change can be seen
        assert values(trace) == eager
    finally:
        globals()["FACTOR"] = 2.0


def test_equal_objects_of_another_identity_are_no_change(trace: Any) -> None:
    table, held = {"a": 1.5}, [1e20, "".join(["a", "b"])]
    f, x = trace(lambda x: x * table["a"] + held[0] + len(held[1])), hm.tensor([1.0])
    for k in range(12):
        assert f(x).tolist() == hm.tensor([1.5 + 1e20 + 2]).tolist()
        if k % 4 == 3:
            table["a"], held[0], held[1] = float("1.5"), float("1e20"), "".join(["a", "b"])
    assert f.cache_info().compiles == 1
    table["a"] = 2.5
    assert f(x).tolist() == hm.tensor([2.5 + 1e20 + 2]).tolist() and f.cache_info().compiles == 2


def test_modes_and_gradients_are_switched_between_direct_calls(trace: Any) -> None:
    w = hm.tensor([2.0])
    f, x = trace(lambda x: x * w), hm.tensor([3.0])
    for _ in range(4):
        assert not f(x).requires_grad
    w.requires_grad_()
    for _ in range(4):
        assert f(x).requires_grad
        with hm.no_grad():
            assert not f(x).requires_grad
    w.requires_grad_(False)
    for _ in range(4):
        assert not f(x).requires_grad
    outer = trace(lambda x: f(x) + 1)
    assert outer(x).tolist() == [7] and f(x).tolist() == [6]
    assert f(x=x).tolist() == [6] and f(hm.tensor([1.0, 2.0])).tolist() == [2, 4] and f(x).tolist() == [6]


def test_recorded_calls_straight_to_the_native_entry(trace: Any) -> None:
    """Captured tensors want gradients, arguments do not: every call has a history of its own."""
    params = [hm.tensor([float(k), 1.0], requires_grad=True) for k in range(1, 5)]

    def forward(x: hm.Tensor, scale: float) -> tuple[hm.Tensor, hm.Tensor]:
        for p in params:
            x = x * p * scale
        return x, (params[0] + 1).detach()

    def gradients(f: Any) -> list[Any]:
        found: list[Any] = []
        calls = [f(hm.tensor([k, 2.0]), 0.5 + k) for k in range(5)]
        for (y, plain), weight in zip(calls, (1.0, 2.0, 3.0, 4.0, 5.0), strict=True):
            for p in params:
                p.grad = None
            (y * weight).sum().backward()
            found.append(([p.grad.tolist() for p in params], y.tolist(), plain.tolist(), plain.requires_grad))
        return found

    assert gradients(trace(forward)) == gradients(forward)
    f, x = trace(forward), hm.tensor([1.0, 2.0])
    for _ in range(4):
        y, _ = f(x, 1.0)
    with hm.no_grad():
        params[1] += 1
    with pytest.raises(hm.GradientError, match=r"modified|in place|changed"):
        y.sum().backward()


def test_function_argument(trace: Any) -> None:
    factor = 2.0

    def times(x: hm.Tensor) -> hm.Tensor:
        return x * factor

    f, x = trace(lambda g, x: g(x)), hm.tensor([1.0])
    assert f(times, x).tolist() == [2]
    factor = 3.0
    assert f(times, x).tolist() == [3]


def test_what_a_hook_reads(trace: Any) -> None:
    w, factor = hm.tensor([1.0], requires_grad=True), [2.0]
    w.register_hook(lambda g: g * factor[0])

    @trace
    def gradient(x: hm.Tensor) -> hm.Tensor:
        w.grad = None
        (w * x).sum().backward()
        return w.grad

    x = hm.tensor([1.0])
    assert gradient(x).tolist() == [2]
    factor[0] = 3.0
    assert gradient(x).tolist() == [3]


def test_what_the_code_does_not_name_moves_freely(trace: Any) -> None:
    c = Config()
    f, x = trace(lambda x: x * c.scale), hm.tensor([1.0])
    for _ in range(4):
        assert f(x).tolist() == [2]
        c.steps += 1
        c.table["a"] += 1
    assert f.cache_info().compiles == 1


T = [1.0]


def test_a_global_that_is_named_as_an_attribute_moves_freely(trace: Any) -> None:
    def f(x: hm.Tensor) -> hm.Tensor:
        return x.T * 2.0

    def g(x: hm.Tensor, *names: str) -> hm.Tensor:
        return x.T * globals()[names[0]][0]

    fast, by_name = trace(f), trace(g)
    x = hm.ones((2, 3))
    fast(x), by_name(x, "T")
    T[0] = 3.0
    assert fast(x).tolist() == [[2.0] * 2] * 3 and not fast.retraces
    assert by_name(x, "T").tolist() == [[3.0] * 2] * 3


def test_a_class_gets_an_attribute(trace: Any) -> None:
    class Plain:
        pass

    o, x = Plain(), hm.tensor([1.0])
    f = trace(lambda x: x * getattr(Plain, "k", 1.0))
    g = trace(lambda x: x * (3.0 if hasattr(o, "k") else 1.0))
    assert f(x).tolist() == f(x).tolist() == g(x).tolist() == g(x).tolist() == [1]
    Plain.k = 5.0  # type: ignore[attr-defined]
    assert f(x).tolist() == [5]
    assert g(x).tolist() == [3]
    del Plain.k  # type: ignore[attr-defined]
    assert f(x).tolist() == g(x).tolist() == [1]


def test_a_trace_gives_its_class_an_attribute(trace: Any) -> None:
    class Cache:
        pass

    def scaled(x: hm.Tensor) -> hm.Tensor:
        if not hasattr(Cache, "doubled"):
            Cache.doubled = x * 2  # type: ignore[attr-defined]
        return x * Cache.doubled  # type: ignore[attr-defined]

    f, x = trace(scaled), hm.tensor([1.0])
    assert [f(x).tolist() for _ in range(3)] == [[2], [2], [2]] and f.cache_info().compiles == 2
    assert Cache.doubled.tolist() == [2]  # type: ignore[attr-defined]
    Cache.doubled = 3.0  # type: ignore[attr-defined]
    assert f(x).tolist() == [3]


def test_functions_replaced_in_place(trace: Any) -> None:
    def scaled(x: hm.Tensor, a: float = 2.0, *, b: float = 1.0) -> hm.Tensor:
        return x * (a * b)

    def whole(x: hm.Tensor, c: float = 1.0) -> hm.Tensor:
        return scaled(x) * c

    f, x = trace(whole), hm.tensor([1.0])
    assert f(x).tolist() == f(x).tolist() == [2]
    scaled.__defaults__ = (5.0,)
    assert f(x).tolist() == f(x).tolist() == [5]
    scaled.__kwdefaults__ = {"b": 3.0}
    assert f(x).tolist() == f(x).tolist() == [15]
    scaled.__code__ = (lambda x, a, b: x + a).__code__
    scaled.__defaults__, scaled.__kwdefaults__ = (1.0, 1.0), None
    assert f(x).tolist() == f(x).tolist() == [2]
    whole.__defaults__ = (2.0,)
    assert f(x).tolist() == f(x).tolist() == [4]
    whole.__code__ = (lambda x, c: scaled(x) - c).__code__
    assert f(x).tolist() == [0]


def test_environment_variables(trace: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    f = trace(lambda x: x * float(os.environ.get("HYBRIDML_TEST_FACTOR", "1")))
    g = trace(lambda x: x * float(os.getenv("HYBRIDML_TEST_FACTOR", "1")))
    x = hm.tensor([1.0])
    for value in ("2", "3", "3"):
        monkeypatch.setenv("HYBRIDML_TEST_FACTOR", value)
        assert f(x).tolist() == g(x).tolist() == [float(value)]
    assert f.cache_info().compiles == 2
    monkeypatch.delenv("HYBRIDML_TEST_FACTOR")
    assert f(x).tolist() == g(x).tolist() == [1]
