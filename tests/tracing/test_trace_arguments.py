"""Calls that native code takes with more than plain tensors in place: arguments that are updated, memory with gaps,
keywords and containers. All do what eager code does, whatever the calls before were."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml.core.tensor import Tensor
from hybridml.tracing.specialize.errors import TraceWarning


def one_element(w: Any, v: Any) -> None:
    w[1] = v[0]


def a_slice(w: Any, v: Any) -> Any:
    w[1:3] = v[1:3]
    return w


def both(w: Any, v: Any) -> Any:
    w *= 2
    v += w
    return w


def shifted(w: Any, v: Any) -> Any:
    w[1:] = w[:-1] + v[1:]
    return w, w + 1


def by_sum(w: Any, v: Any) -> Any:
    w += 1
    if w.sum() > 20:
        w *= v
    return w


def views(w: Any, v: Any) -> Any:
    w[0] = 5.0
    return {"part": w[1:], "given": v, "number": w.sum()}


def reads(w: Any, v: Any) -> Any:
    return [w.sum() * v, v[1:3], w]


def _pairs(dtype: str) -> Iterator[tuple[Tensor, Tensor]]:
    """Operands: apart, the same, parts of one memory, with gaps, read-only, of another size, wanting gradients."""

    def make(n: int) -> Tensor:
        return hm.asarray(np.arange(1, n + 1).astype(dtype))

    whole = make(12)
    yield make(6), make(6)
    yield whole, whole
    yield whole[:6], whole[2:8]
    yield whole[:6], whole[6:]
    yield make(12)[::2], make(6)
    yield make(6), make(12)[::2]
    yield make(6)[::-1], make(6)
    array = np.arange(6).astype(dtype)
    yield hm.asarray(array), hm.asarray(array)
    yield hm.asarray(array), hm.asarray(array[::-1])
    fixed = np.arange(6).astype(dtype)
    fixed.flags.writeable = False
    yield hm.asarray(fixed), make(6)
    yield make(6), hm.asarray(fixed)
    yield make(9), make(9)
    if dtype == "f4":
        yield make(6), make(6).requires_grad_()
    yield make(6), make(6)


def _shown(value: Any, given: tuple[Tensor, ...]) -> Any:
    """A result as bits, with the arguments that it is, and those whose memory it has."""
    if isinstance(value, Tensor):
        array = value._array
        shares = [np.shares_memory(array, t._array) for t in given]
        return array.dtype, array.shape, array.tobytes(), value.requires_grad, [value is t for t in given], shares
    if isinstance(value, dict):
        return {name: _shown(item, given) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value), [_shown(item, given) for item in value]
    return value


def _outcome(function: Callable[..., Any], given: tuple[Tensor, ...]) -> Any:
    stamps = [_stamp(t) for t in given]
    try:
        found = _shown(function(*given), given)
    except Exception as error:
        found = type(error)
    written = [_stamp(t) != before for t, before in zip(given, stamps, strict=True)]
    return found, [_shown(t, given) for t in given], written


def _stamp(t: Tensor) -> Any:
    return t._version[0] if isinstance(t._version, list) else t._version


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("function", [one_element, a_slice, both, shifted, by_sum, views, reads])
def test_updated_arguments(function: Callable[..., Any]) -> None:
    for dtype in ("f4", "i8"):
        traced = hm.trace(function)
        for often in (20, 2, 1):  # native code comes after some calls of one kind
            for k, (mine, theirs) in enumerate(zip(_pairs(dtype), _pairs(dtype), strict=True)):
                for _ in range(often if k == 0 else 2):
                    assert _outcome(traced, theirs) == _outcome(function, mine), (dtype, k)


def test_a_captured_tensor_that_is_passed_for_an_argument_that_is_updated() -> None:
    held = hm.tensor([1.0, 2.0])

    @hm.trace
    def grow(w: Any) -> Any:
        w += 1
        return held * w

    for _ in range(20):
        assert grow(hm.tensor([1.0, 2.0])).tolist() == [2.0, 6.0]
    assert grow(held).tolist() == [4.0, 9.0] and held.tolist() == [2.0, 3.0]
    assert grow(hm.tensor([1.0, 2.0])).tolist() == [4.0, 9.0]
    with pytest.warns(TraceWarning, match="shares memory with held"):
        assert grow(held[:]).tolist() == [9.0, 16.0]


def test_keywords_and_containers() -> None:
    def of(x: Any, batch: Any, *, scale: Any = 1.0, more: Any = ()) -> Any:
        return (x + batch["a"] * scale - batch["b"][0]) * (1.0 + len(more))

    traced = hm.trace(of)
    x, y, z = (hm.tensor([float(k), 1.0]) for k in range(3))
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        ((x, {"a": y, "b": [z]}), {"scale": 2.0}),
        ((x, {"a": y, "b": [z]}), {"scale": 3.0, "more": (1, 2)}),
        ((x, {"a": y, "b": [z]}), {"more": (1, 2), "scale": 3.0}),
        ((x, {"b": [z], "a": y}), {}),
        ((x, {"a": y, "b": (z,)}), {}),
        ((x, {"a": y, "b": [z, x]}), {}),
        ((x, {"a": x, "b": [x]}), {"scale": 2.0}),
        ((x[::1], {"a": y[:1], "b": [z]}), {"scale": 2.0}),
        ((), {"x": x, "batch": {"a": y, "b": [z]}}),
        ((x,), {"batch": {"a": y, "b": [z], "c": None}}),
    ]
    for often in (20, 1, 2):
        for args, named in calls:
            for _ in range(often):
                assert traced(*args, **named).tolist() == of(*args, **named).tolist()
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        traced(x)
    with pytest.raises(KeyError):
        traced(x, {"a": y})


def test_names_in_another_order() -> None:
    traced = hm.trace(lambda held, *, a, b: held["c"] - held["d"] * a / b)
    w, x, y, z = (hm.tensor([float(k)]) for k in range(1, 5))
    for _ in range(20):
        assert traced({"c": w, "d": x}, a=y, b=z).tolist() == [1.0 - 2.0 * 3.0 / 4.0]
    assert traced({"c": w, "d": x}, b=z, a=y).tolist() == [1.0 - 2.0 * 3.0 / 4.0]
    assert traced({"d": x, "c": w}, a=y, b=z).tolist() == [1.0 - 2.0 * 3.0 / 4.0]


def test_a_stale_value_names_the_line_of_the_call() -> None:
    @hm.trace
    def fill(*, of: Any, by: Any) -> None:
        of[0] = by

    x, by, w = hm.zeros(3), hm.tensor(2.0), hm.tensor([1.0, 2.0, 3.0], requires_grad=True)
    for _ in range(20):
        fill(of=x, by=by)
    y = w * x
    fill(of=x, by=by)  # this line
    with pytest.raises(hm.GradientError, match=r"test_trace_arguments\.py:\d+: fill\(of=x, by=by\)  # this line"):
        y.sum().backward()


def test_one_container_in_two_places() -> None:
    def add(a: Any, b: Any) -> Any:
        return a[0] + 2 * b[0]

    traced = hm.trace(add)
    one, other = [hm.tensor([1.0])], [hm.tensor([2.0])]
    for _ in range(20):
        assert traced(one, other).tolist() == [5.0]
    for _ in range(20):
        assert traced(one, one).tolist() == [3.0]
    assert traced(other, one).tolist() == [4.0]


class Meters(float):
    """A float with an operator of its own."""

    def __mul__(self, other: Any) -> Any:
        return other * 100.0

    __rmul__ = __mul__


def test_a_float_of_another_class_stays_one() -> None:
    def scale(x: hm.Tensor, by: float, also: float = 2.0) -> tuple[hm.Tensor, str]:
        return x * by * also + (1.0 if isinstance(by, Meters) else 2.0), type(by).__name__

    traced, x, own = hm.trace(scale), hm.ones(3), Meters(2.0)
    for by in (own, 2.0, own, own, own, np.float64(3.0), Meters(4.0), 4.0, own):
        for more in ({}, {"also": 3.0}, {"also": by}):
            (found, name), (expected, its) = traced(x, by, **more), scale(x, by, **more)
            assert (found.tolist(), name) == (expected.tolist(), its)


class Text(str):
    pass


@dataclasses.dataclass(frozen=True)
class Key:
    part: Any


SAME_KEYS: tuple[tuple[Any, ...], ...] = (
    (1, 1.0, True, np.int64(1), np.float64(1.0), Fraction(1), Decimal("1.0"), Decimal("1.00"), 1 + 0j),
    (0, 0.0, -0.0, False), (0j, -0j), ((1, 2), (True, 2), (1, 2.0)), (((0.0,),), ((-0.0,),)), ("a", Text("a")),
    (frozenset((1, 2)), frozenset((1.0, 2))), (Key(1), Key(True)), (Key((0.0,)), Key((-0.0,))),
)  # fmt: skip


@pytest.mark.parametrize("keys", SAME_KEYS, ids=str)
@pytest.mark.parametrize("kind", [dict, OrderedDict])
def test_keys_that_are_equal_are_not_the_same(keys: tuple[Any, ...], kind: Any) -> None:
    def shown(given: Any, *more: Any) -> tuple[Any, str]:
        return given["x"] * 2.0, repr([*given, *more]) + str(list(map(type, given)))

    traced, x = hm.trace(shown), hm.ones(3)
    for key in [key for key in keys for _ in range(4)] + [*keys, *keys]:
        found, name = traced(kind({"x": x, key: x}))
        assert found.tolist() == [2.0] * 3 and name == shown({"x": x, key: x})[1]
