"""Numbers in dicts, lists and tuples are inputs of a traced program from their second value on."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

import hybridml as hm
from tests.support.as_eager import Made, observe

CONFIG: dict[str, Any] = {}


class Settings:
    def __init__(self) -> None:
        self.table = {"a": 2.0, "pair": (1.0, 2)}


class Model(hm.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.config = {"scale": 2.0, "pair": (1.0, 2)}

    def forward(self, x: hm.Tensor) -> hm.Tensor:
        return x * self.config["scale"] + self.config["pair"][0]


@pytest.fixture
def x() -> hm.Tensor:
    return hm.tensor([1.0, 2.0])


def _helper(x: hm.Tensor) -> hm.Tensor:
    return x * CONFIG["rate"] + CONFIG["inner"]["list"][1]


def _agree(trace: Any, program: Callable[[hm.Tensor], Any], x: hm.Tensor, change: Callable[[int], Any]) -> Any:
    traced = trace(program)
    for k in range(12):
        change(k)
        for _ in range(3):
            assert traced(x).tolist() == program(x).tolist()
    return traced


def test_a_dict_in_a_variable(trace: Any, x: hm.Tensor) -> None:
    CONFIG.clear()
    CONFIG.update(rate=0.1, count=3, inner={"list": [1.0, 2]}, name="adam")
    f = trace(lambda x: _helper(x) * CONFIG["count"])

    for k in range(58):
        CONFIG["rate"], CONFIG["count"], CONFIG["inner"]["list"][1] = 0.1 * k, k + 1, k
        for _ in range(3):
            assert f(x).tolist() == (_helper(x) * CONFIG["count"]).tolist()
    assert f.cache_info().compiles == 2
    CONFIG["name"] = "sgd"  # guarded no longer than it is there
    CONFIG["rate"] = 7  # an int
    assert f(x).tolist() == (_helper(x) * CONFIG["count"]).tolist()
    CONFIG["rate"] = True
    assert f(x).tolist() == (_helper(x) * CONFIG["count"]).tolist()


def test_lists_and_tuples(trace: Any, x: hm.Tensor) -> None:
    numbers, pair, empty = [2.0, 3], (2.0, 3, "a"), (0.5,)

    def change(k: int) -> None:
        nonlocal pair
        numbers[:], pair = [k * 1.5, k], (k + 0.5, k, "a")

    f = _agree(trace, lambda x: x * numbers[0] + sum(numbers) * pair[0] + pair[1] * empty[0], x, change)
    assert f.cache_info().compiles == 2
    for other in ([1.0], [1.0, 2, 3], [1.0, 2.0], ["a", 2]):
        numbers[:] = other
        for _ in range(2):
            try:
                expected = (x * numbers[0] + sum(numbers) * pair[0] + pair[1] * empty[0]).tolist()
            except TypeError:
                with pytest.raises(TypeError):
                    f(x)
            else:
                assert f(x).tolist() == expected


def test_tuples_of_another_form(trace: Any, x: hm.Tensor) -> None:
    pair: Any = (1.0, 2)
    f, program = trace(lambda x: x * sum(pair)), lambda x: x * sum(pair)
    for pair in ((1.5, 2), (2.5, 3), (2.5,), (2.5, 3, 4), (3.5, 4), (1, 2.0), [1.0, 2], (4.5, 5)):  # noqa: B007
        for _ in range(3):
            assert f(x).tolist() == program(x).tolist()


def test_attributes(trace: Any, x: hm.Tensor) -> None:
    settings, model = Settings(), Model()

    def change(k: int) -> None:
        settings.table["a"], settings.table["pair"] = k + 0.5, (k * 2.0, k)
        model.config["scale"], model.config["pair"] = k + 0.25, (k * 3.0, 2)

    def program(x: hm.Tensor) -> hm.Tensor:
        return x * settings.table["a"] + settings.table["pair"][0] * settings.table["pair"][1] + model(x)

    assert _agree(trace, program, x, change).cache_info().compiles == 2
    assert type(settings) is Settings and all(type(v) in (float, tuple) for v in settings.table.values())


def test_one_dict_in_two_places(trace: Any, x: hm.Tensor) -> None:
    settings = Settings()
    table, outer = settings.table, {"inner": settings.table}

    def change(k: int) -> None:
        table["a"] = k + 0.5

    f = _agree(trace, lambda x: x * table["a"] * settings.table["a"] + outer["inner"]["a"], x, change)
    assert f.cache_info().compiles == 2

    def hidden(x: hm.Tensor, table: Any = table) -> hm.Tensor:  # nothing stands between a default and its readers
        return x * table["a"] * settings.table["a"]

    with pytest.warns(UserWarning, match="another value was found"):
        assert _agree(trace, hidden, x, change).cache_info().compiles > 2


def test_values_that_steer(trace: Any, x: hm.Tensor) -> None:
    table = {"n": 2, "scale": 1.0}

    def program(x: hm.Tensor) -> hm.Tensor:
        for _ in range(table["n"]):  # type: ignore[call-overload]
            x = x * table["scale"]
        return x if table["scale"] > 3.0 else -x

    def change(k: int) -> None:
        table["n"], table["scale"] = k % 2, 1.0 + k % 4

    _agree(trace, program, x, change)


def test_entries_that_come_and_go(trace: Any, x: hm.Tensor) -> None:
    table = {"a": 1.0, "b": 2.0}

    def change(k: int) -> None:
        table["a"] = k + 0.5
        table["c"] = 1.0
        if k % 4 == 3:
            del table["c"]

    _agree(trace, lambda x: x * sum(table.values()) + len(table), x, change)


def _made() -> dict[str, Callable[[], Made]]:
    def calls(step: Callable[[int], Any]) -> list[Any]:
        def call(k: int) -> Callable[[], Any]:
            return lambda: (step(k), (hm.tensor([1.0, 2.0]),))[1]

        return list(map(call, range(5)))

    def writes() -> Made:
        table = {"rate": 1.0, "steps": 0}

        def f(x: Any) -> Any:
            table["steps"] += 1
            return x * table["rate"]

        return f, calls(lambda k: table.update(rate=k + 0.5)), lambda: dict(table)

    def returns() -> Made:
        table = {"rate": 1.0}
        return lambda x: (x * table["rate"], table, [table]), calls(lambda k: table.update(rate=k + 0.5)), lambda: table

    def keeps() -> Made:
        table, settings = {"rate": 1.0}, Settings()

        def f(x: Any) -> Any:
            settings.table = table  # type: ignore[assignment]
            return x * table["rate"]

        return f, calls(lambda k: table.update(rate=k + 0.5)), lambda: settings.table is table

    def grows() -> Made:
        log = [1.0]

        def f(x: Any) -> Any:
            log.append(2.0)
            return x * log[0]

        return f, calls(lambda k: log.__setitem__(0, k + 0.5)), lambda: list(log)

    def copies() -> Made:
        table = {"rate": 1.0, "list": [1.0, 2]}

        def f(x: Any) -> Any:
            other = copy.deepcopy(table)
            other["rate"] = other["rate"] * 2  # type: ignore[operator]
            return x * other["rate"] + json.loads(json.dumps(table))["rate"], {**table}

        return f, calls(lambda k: table.update(rate=k + 0.5)), lambda: dict(table)

    return {name: make for name, make in locals().items() if callable(make) and name != "calls"}


@pytest.mark.parametrize("name", _made())
def test_containers_stay_what_they_are(name: str) -> None:
    make = _made()[name]
    expected, seen = observe(make, lambda fn: fn), observe(make, hm.trace)
    assert seen[:2] == expected[:2]
