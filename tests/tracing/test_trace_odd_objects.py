"""Objects that say they are something else, and containers that contain themselves."""

from __future__ import annotations

import unittest.mock
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hybridml as hm

T = hm.tensor


class Says:
    """Says that it is a tensor, and is none."""

    value = 2.0

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return hm.Tensor


def _mock(spec: type, **attributes: Any) -> Any:
    return unittest.mock.Mock(spec=spec, **attributes)


OBJECTS: dict[str, Callable[[], Any]] = {
    "tensor": lambda: _mock(hm.Tensor, ndim=2),
    "array": lambda: _mock(np.ndarray, ndim=2),
    "float": lambda: _mock(float, real=2),
    "module": lambda: _mock(hm.nn.Linear, in_features=2),
    "says": Says,
}


@pytest.mark.parametrize("name", OBJECTS)
def test_objects_that_say_they_are_something_else(name: str, trace: Any) -> None:
    o, x = OBJECTS[name](), T([1.0, 2.0])
    inside, table = [o], {o: 1}
    programs: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
        (lambda x: x * 2 if o is not None else x, (x,)),
        (lambda x, o: x * len(inside) + len(table), (x, o)),
        (lambda x, o: (x * 2, o, [o]), (x, o)),
        (lambda x: (x * 2, o, inside), (x,)),
        (lambda x, *, o: x * 2, (x,)),
    ]
    for program, args in programs:
        names = {"o": o} if program.__kwdefaults__ is None and program.__code__.co_kwonlyargcount else {}
        traced, expected = trace(program), program(*args, **names)
        for _ in range(3):
            found = traced(*args, **names)
            first, *others = found if isinstance(found, tuple) else (found,)
            assert first.tolist() == (expected[0] if isinstance(expected, tuple) else expected).tolist()
            assert all(a is b or a == b for a, b in zip(others, expected[1:], strict=True)) if others else True
        assert traced.cache_info().compiles == 1
    if name in ("tensor", "array", "says"):
        for style in (lambda fn: fn, trace):
            with pytest.raises(hm.DTypeError, match="must be a tensor, an array or a number"):
                style(lambda x, o: hm.tanh(o))(x, o)
    if name == "says":
        assert [trace(lambda x: x * o.value)(x).tolist() for _ in range(2)] == [[2.0, 4.0]] * 2


def test_containers_that_contain_themselves(trace: Any) -> None:
    around: list[Any] = []
    around.append(around)
    assert trace(lambda: around)() is around

    def makes(x: hm.Tensor) -> Any:
        made: dict[str, Any] = {"x": x * 2}
        made["all"] = [made, around]
        return made

    f = trace(makes)
    for k in range(3):
        found = f(T([float(k)]))
        assert found["all"][0] is found and found["all"][1] is around and found["x"].tolist() == [2.0 * k]
    assert f.cache_info().compiles == 1
    given: list[Any] = [T([3.0])]
    given.append((given,))
    g = trace(lambda a: a[1][0][0] * 2)
    assert [g(given).tolist() for _ in range(3)] == [[6.0]] * 3


def test_a_tuple_that_contains_itself() -> None:
    def makes(x: hm.Tensor) -> Any:
        inside: list[Any] = [x * 2]
        made = (x, inside)
        inside.append(made)
        return made

    f = hm.trace(makes)
    with pytest.warns(UserWarning, match="returns a container that contains itself"):
        for _ in range(3):
            found = f(T([1.0]))
            assert found[1][1] is found and found[1][0].tolist() == [2.0]
    with pytest.raises(hm.TraceError, match="contains itself"):
        hm.trace(makes, strict=True)(T([1.0]))
