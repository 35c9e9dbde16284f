"""Guards tell apart what Python does: the order of a dict, signs of zeros, True and 1, None and nothing at all."""

from __future__ import annotations

import math
from collections import ChainMap, OrderedDict
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import numpy as np
import pytest

import hybridml as hm

Case = tuple[Callable[[Any], Any], Callable[[], Any]]  # a function, and a change that eager calls of it see
NAMES = globals()
GIVEN: Any = None
WAYS: ContextVar[Any] = ContextVar("WAYS")


def _two(kind: Callable[[Any], Any] = dict) -> Any:
    return kind([("double", lambda v: v * 2), ("inc", lambda v: v + 1)])


class Table(dict):
    pass


def _cases() -> dict[str, Callable[[], Case]]:
    """name -> () -> a case."""

    def steps(kind: Callable[[Any], Any], change: Callable[[Any], Any]) -> Callable[[], Case]:
        def make() -> Case:
            table = _two(kind)

            def f(x: hm.Tensor) -> hm.Tensor:
                for step in table.values():
                    x = step(x)
                return x

            return f, lambda: change(table)

        return make

    def again(table: Any) -> None:
        table["double"] = table.pop("double")

    def attributes_in_order() -> Case:
        class Steps:
            pass

        steps = Steps()
        vars(steps).update(_two())

        def f(x: hm.Tensor) -> hm.Tensor:
            for step in vars(steps).values():
                x = step(x)
            return x

        return f, lambda: again(vars(steps))

    def variable(was: Any, now: Any, by: Callable[[Any], float]) -> Callable[[], Case]:
        def make() -> Case:
            NAMES["GIVEN"] = was
            return lambda x: x * by(GIVEN), lambda: NAMES.update(GIVEN=now)

        return make

    def item(was: Any, now: Any, by: Callable[[Any], float]) -> Callable[[], Case]:
        def make() -> Case:
            table = {"a": was}
            return lambda x: x * by(table["a"]), lambda: table.update(a=now)

        return make

    def items_of_a_set(was: Any, now: Any, by: Callable[[Any], float]) -> Callable[[], Case]:
        def make() -> Case:
            some = {was}
            return lambda x: x * by(next(iter(some))), lambda: (some.clear(), some.add(now))

        return make

    def key(was: Any, now: Any, by: Callable[[Any], float]) -> Callable[[], Case]:
        def make() -> Case:
            table = {was: "a"}
            return lambda x: x * by(next(iter(table))), lambda: (table.clear(), table.update({now: "a"}))

        return make

    def default(was: Any, now: Any, by: Callable[[Any], float]) -> Callable[[], Case]:
        def make() -> Case:
            def times(x: hm.Tensor, given: Any = was) -> hm.Tensor:
                return x * by(given)

            return lambda x: times(x), lambda: setattr(times, "__defaults__", (now,))

        return make

    def sign(value: Any) -> float:
        return math.copysign(2.0, value)

    def kind(value: Any) -> float:
        return 7.0 if type(value) is bool else 2.0

    zeros = {
        "float": (0.0, -0.0, sign),
        "float32": (np.float32(0), np.float32(-0.0), sign),
        "longdouble": (np.longdouble(0), np.longdouble(-0.0), sign),
        "complex": (complex(0.0, 1), complex(-0.0, 1), lambda z: sign(z.real)),
        "tuple": ((0.0,), (-0.0,), lambda t: sign(t[0])),
        "frozenset": (frozenset((0.0,)), frozenset((-0.0,)), lambda s: sign(*s)),
        "nan": (math.nan, -math.nan, sign),
        "kind_in_tuple": ((1,), (True,), lambda t: kind(t[0])),
        "kind_in_frozenset": (frozenset((1,)), frozenset((True,)), lambda s: kind(*s)),
        "unit": (np.datetime64(1, "s"), np.datetime64(1000, "ms"), lambda t: float(len(str(t)))),
    }
    values = {
        f"{place.__name__}_{name}": place(*case)
        for place in (variable, item, default, items_of_a_set, key)
        for name, case in {**zeros, "kind": (1, True, kind)}.items()
    }

    def gone_variable() -> Case:
        NAMES["GIVEN"] = None

        def f(x: hm.Tensor) -> hm.Tensor:
            return x + (1 if GIVEN is None else 2)

        return f, lambda: NAMES.pop("GIVEN")

    def gone_item() -> Case:
        table: dict[str, Any] = {"a": None, "b": 1}
        return lambda x: x * (2 if "a" in table else 3), lambda: (table.pop("a"), table.update(c=None))

    def gone_attribute() -> Case:
        class Thing:
            pass

        thing = Thing()
        thing.by = None  # type: ignore[attr-defined]
        return lambda x: x * (2 if thing.by is None else 3), lambda: delattr(thing, "by")  # type: ignore[attr-defined]

    def new_attribute() -> Case:
        class Thing:
            by = None

        class Other(Thing):
            pass

        return lambda x: x * (2 if "by" in vars(Other) else 3), lambda: setattr(Other, "by", None)

    def new_variable() -> Case:
        NAMES.pop("GIVEN", None)

        def f(x: hm.Tensor) -> hm.Tensor:
            try:
                return x * (2 if GIVEN is None else 3)
            except NameError:
                return x * 5

        return f, lambda: NAMES.update(GIVEN=None)

    def context_variable() -> Case:
        token = WAYS.set(None)
        return lambda x: x * WAYS.get(2) if WAYS.get(2) else x, lambda: WAYS.reset(token)

    return {
        "dict": steps(dict, again),
        "dict_subclass": steps(Table, again),
        "OrderedDict": steps(OrderedDict, again),
        "OrderedDict_move_to_end": steps(OrderedDict, lambda table: table.move_to_end("double")),
        "ChainMap": steps(lambda items: ChainMap(dict(items)), lambda table: again(table.maps[0])),
        **values,
        **{
            make.__name__: make
            for make in (
                attributes_in_order, gone_variable, gone_item, gone_attribute, new_attribute, new_variable,
                context_variable,
            )
        },
    }  # fmt: skip


CASES = _cases()


@pytest.mark.parametrize("calls", [1, 4])  # the guards are read by Python, then by native code
@pytest.mark.parametrize("name", CASES)
def test_a_change_that_equality_does_not_see(name: str, calls: int, trace: Any) -> None:
    def values(style: Callable[[Any], Any]) -> list[Any]:
        fn, change = CASES[name]()
        f, x, seen = style(fn), hm.tensor([2.0]), []
        for step in (lambda: None, change):
            step()
            for _ in range(calls):
                try:
                    seen.append(f(x).tolist())
                except (NameError, AttributeError) as error:
                    seen.append(type(error))
        return seen

    try:
        eager = values(lambda fn: fn)
        assert eager[0] != eager[-1]
        assert values(trace) == eager
    finally:
        NAMES.pop("GIVEN", None)


def test_a_trace_that_orders_a_dict_anew(trace: Any) -> None:
    def values(style: Callable[[Any], Any]) -> Any:
        table = {"double": lambda v: v * 2, "inc": lambda v: v + 1, "halve": lambda v: v / 2}

        def f(x: hm.Tensor) -> hm.Tensor:
            for step in table.values():
                x = step(x)
            first = next(iter(table))
            table[first] = table.pop(first)
            return x

        g = style(f)
        return [(g(hm.tensor([2.0])).tolist(), list(table)) for _ in range(5)]

    with pytest.warns(UserWarning, match="table"):
        found = values(trace)
    assert found == values(lambda fn: fn)


def test_an_equal_dict_is_no_change(trace: Any) -> None:
    table, x = {"".join(["a", "b"]): 1.5, (1, 2.5): 2.5}, hm.tensor([1.0])
    f = trace(lambda x: x * sum(table.values()))
    for k in range(8):
        assert f(x).tolist() == [4]
        if k % 4 == 3:
            table.clear()
            table.update({"".join(["a", "b"]): 1.5, (1, float("2.5")): 2.5})
    assert f.cache_info().compiles == 1
