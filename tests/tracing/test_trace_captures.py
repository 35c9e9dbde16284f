"""Ways to change Python under a traced function that leave every variable as it was: none makes a program stale."""

from __future__ import annotations

import abc
import array
import collections.abc
import ctypes
import dataclasses
import functools
import importlib
import operator
import pathlib
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from tests.support.as_eager import Made, observe

# Users still change forms in place, though NumPy 2.5 asks them not to.
pytestmark = pytest.mark.filterwarnings("ignore:Setting the (shape|dtype) on a NumPy array:DeprecationWarning")

T = hm.tensor
CASES: dict[str, Callable[[], tuple[Callable[[hm.Tensor], Any], list[Callable[[], Any]]]]] = {}


def case(make: Callable[[], Any]) -> Callable[[], Any]:
    CASES[make.__name__] = make
    return make


def _set(target: Any, name: str, value: Any) -> Callable[[], None]:
    return lambda: setattr(target, name, value)


def _put(target: Any, key: Any, value: Any) -> Callable[[], None]:
    return lambda: target.__setitem__(key, value)


class Holder:
    value = 2.0

    def times(self) -> float:
        return self.value


class Other:
    value = 5.0

    def times(self) -> float:
        return 7.0


# -- bytes


@case
def a_bytearray() -> Any:
    data = bytearray([2])
    return lambda x: x * data[-1], [_put(data, 0, 5), lambda: data.append(7), lambda: data.pop()]


@case
def an_array_of_the_standard_library() -> Any:
    data = array.array("d", [2.0])
    return lambda x: x * data[0], [_put(data, 0, 5.0)]


@case
def a_memoryview() -> Any:
    data = bytearray([2])
    view = memoryview(data)
    return lambda x: x * view[0], [_put(data, 0, 5)]


@case
def a_large_buffer() -> Any:
    data = bytearray(100_000)
    return lambda x: x * (1 + data[77_777]), [_put(data, 77_777, 5)]


@case
def a_large_buffer_with_gaps() -> Any:
    data = bytearray(100_000)
    view = memoryview(data)[1::2]
    return lambda x: x * (1 + view[38_888]), [_put(data, 77_777, 5)]


@case
def a_value_of_ctypes() -> Any:
    value = ctypes.c_double(2.0)
    return lambda x: x * value.value, [_set(value, "value", 5.0)]


@case
def an_array_in_a_tuple() -> Any:
    arrays = (np.array([2.0, 3.0]),)
    return lambda x: x * arrays[0].max(), [_put(arrays[0], 0, 9.0)]


@case
def an_array_as_a_default() -> Any:
    held = np.array([2.0, 3.0])

    def f(x: hm.Tensor, held: np.ndarray = held) -> hm.Tensor:
        return x * held.max()

    return f, [_put(held, 0, 9.0)]


@case
def an_array_of_a_subclass() -> Any:
    held = np.ma.masked_array([2.0, 3.0])
    return lambda x: x * held.max(), [_put(held, 0, 9.0)]


@case
def the_form_of_an_array() -> Any:
    held, read = np.arange(4.0), np.ones(4)
    return (
        lambda x: (x[0] * hm.asarray(held)).sum() + read.shape[0] + held.ndim,
        [_set(held, "shape", (2, 2)), _set(read, "shape", (2, 2)), _set(held, "dtype", np.int64)],
    )


# -- names that are no names of variables or attributes


@case
def a_format_string() -> Any:
    o = types.SimpleNamespace(v=2.0)
    return lambda x: x * float("{0.v}".format(o)), [_set(o, "v", 5.0)]  # noqa: UP030, UP032


@case
def a_format_string_in_a_variable() -> Any:
    o, text = types.SimpleNamespace(v=2.0), "{o.v:.1f}"
    return lambda x: x * float(text.format(o=o)), [_set(o, "v", 5.0)]


@case
def getters_in_variables() -> Any:
    o = Holder()
    get, call, bound, name = operator.attrgetter("value"), operator.methodcaller("times"), getattr, "".join(["value"])
    part = functools.partial(getattr, o, name)
    return lambda x: x * get(o) + call(o) * 10 + bound(o, name) * 100 + part() * 1000, [_set(o, "value", 5.0)]


@case
def a_bound_method_of_a_dict() -> Any:
    table = {"a": 2.0}
    get = table.get
    return lambda x: x * get("a"), [_put(table, "a", 5.0)]


# -- classes


@case
def a_property_of_a_metaclass() -> Any:
    factor = {"a": 2.0}

    class Meta(type):
        weight = 1.0

        @property
        def scale(cls) -> float:
            return cls._scale * factor["a"]  # type: ignore[attr-defined,no-any-return]

    class C(metaclass=Meta):
        _scale = 2.0

        def times(self) -> Any:
            return type(self).scale * type(self).weight

    o = C()
    return lambda x: x * C.scale + o.times(), [
        _set(C, "_scale", 5.0),
        _put(factor, "a", 3.0),
        _set(Meta, "weight", 7.0),
    ]


@case
def another_class() -> Any:
    one, two, three = (type("Own", (Holder,), {})() for _ in range(3))
    three.value = 3.0  # in the object itself
    return (
        lambda x: x * one.value + two.times() + three.times(),
        [_set(o, "__class__", Other) for o in (one, two, three)],
    )


@case
def another_class_of_a_module() -> Any:
    class Twice(hm.nn.Module):
        def forward(self, x: hm.Tensor) -> hm.Tensor:
            return x * 2

    class Thrice(hm.nn.Module):
        def forward(self, x: hm.Tensor) -> hm.Tensor:
            return x * 3

    model = hm.nn.Sequential(Twice(), hm.nn.Linear(2, 2, bias=False))
    model.eval()
    return lambda x: model[0](x), [_set(model[0], "__class__", Thrice)]


@case
def other_bases() -> Any:
    class Base:
        pass

    class Own(Holder, Base):
        pass

    o = Own()
    return lambda x: x * o.value, [_set(Own, "__bases__", (Other, Base))]


@case
def registered_classes() -> Any:
    class Kind(abc.ABC):  # noqa: B024
        pass

    class Below(Kind):
        pass

    class A:
        pass

    class B:
        pass

    a, b = A(), B()
    scale = lambda o: 2 if isinstance(o, Kind) else 1  # noqa: E731
    return lambda x: x * scale(a) * 3 * scale(b), [lambda: Kind.register(A), lambda: Below.register(B)]


@case
def registered_with_python() -> Any:
    class A:
        pass

    a, mapping = A(), collections.abc.Mapping
    return lambda x: x * (5 if isinstance(a, mapping) else 2), [lambda: mapping.register(A)]


@case
def a_class_made_by_exec() -> Any:
    space: dict[str, Any] = {"hm": hm}
    exec("class C:\n  w = 0.5\n  t = {'k': 1}\ndef f(x): return x * C.w * C.t['k']", space)
    return space["f"], [_set(space["C"], "w", 2.0), lambda: space["C"].t.update(k=5)]


@case
def a_class_made_by_a_library() -> Any:
    made = dataclasses.make_dataclass("Made", [("w", float, 2.0)])
    return lambda x: x * made.w, [_set(made, "w", 5.0)]  # type: ignore[attr-defined]


def _never_stale(make: Callable[[], Any], trace: Any) -> Any:
    def values(f: Any, changes: list[Callable[[], Any]]) -> list[Any]:
        x, seen = T([1.0, 2.0]), []
        for change in (lambda: None, *changes):
            change()
            seen += [f(x).tolist() for _ in range(4)]
        return seen

    eager = values(*make())
    assert all(a != b for a, b in zip(eager[::4], eager[4::4], strict=False))  # each change can be seen
    fn, changes = make()
    traced = trace(fn)
    assert values(traced, changes) == eager
    return traced


@pytest.mark.parametrize("name", CASES)
def test_never_stale(name: str, trace: Any) -> None:
    traced = _never_stale(CASES[name], trace)
    assert traced.cache_info().compiles > 1  # and not eager


# -- installed packages


@pytest.fixture
def installed(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], Any]]:
    site = tmp_path / "site-packages"
    site.mkdir()
    monkeypatch.syspath_prepend(str(site))
    names: list[str] = []

    def install(name: str, text: str) -> Any:
        (site / f"{name}.py").write_text(text)
        names.append(name)
        return importlib.import_module(name)

    yield install
    for name in names:
        sys.modules.pop(name, None)


def test_what_is_named_of_installed_packages(trace: Any, installed: Callable[[str, str], Any]) -> None:
    text = (
        "SCALE = 2.0\nTABLE = {'k': 2.0}\nclass Config:\n    scale = 2.0\n    table = {'k': 2.0}\n    calls = 0\n"
        "config = Config()\ndef counted(x):\n    Config.calls += 1\n    return x * 1\n"
    )

    def make() -> Any:
        lib = installed("hybridml_test_lib", text)
        importlib.reload(lib)
        changes = [
            _set(lib, "SCALE", 3.0), _put(lib.TABLE, "k", 5.0), _set(lib.Config, "scale", 7.0),
            _put(lib.Config.table, "k", 11.0), _set(lib.config, "scale", 13.0),
        ]  # fmt: skip
        return (
            lambda x: (
                lib.counted(x) * lib.SCALE * lib.TABLE["k"] * lib.Config.scale
                + lib.config.scale * lib.Config.table["k"]
            ),
            changes,
        )

    assert _never_stale(make, trace).cache_info().compiles == 6  # what the program does not name is free to change


def test_installed_packages_that_use_hybridml(trace: Any, installed: Callable[[str, str], Any]) -> None:
    text = (
        "import hybridml as hm\nSCALE = 2.0\nclass Layer:\n    k = 2.0\n    def __call__(self, x):\n"
        "        return hm.tanh(x) * SCALE * self.k\n"
    )

    def make() -> Any:
        lib = installed("hybridml_test_user", text)
        importlib.reload(lib)
        layer = lib.Layer()
        return lambda x: layer(x), [_set(lib, "SCALE", 3.0), _set(lib.Layer, "k", 5.0)]

    _never_stale(make, trace)


# -- what the function itself changes


def test_buffers_that_the_function_writes() -> None:
    def make() -> Made:
        data, numbers = bytearray(3), array.array("i", [0])
        gaps = memoryview(data)[::2]

        def f(x: hm.Tensor) -> hm.Tensor:
            data[0] += 1
            gaps[1] += 2
            numbers.append(data[0])
            return x * data[0] + sum(numbers) + gaps[1]

        return f, [(T([1.0]),)] * 3, lambda: (bytes(data), list(numbers))

    expected, seen = observe(make, lambda fn: fn), observe(make, hm.trace)
    assert seen[:2] == expected[:2] and len(seen[2]) == 1


def test_a_class_that_the_function_assigns() -> None:
    def make() -> Made:
        o = Holder()

        def f(x: hm.Tensor) -> hm.Tensor:
            y = x * o.value
            o.__class__ = Other  # type: ignore[assignment]
            return y

        return f, [(T([1.0]),)] * 3, lambda: type(o).__name__

    expected, seen = observe(make, lambda fn: fn), observe(make, hm.trace)
    assert seen[:2] == expected[:2] and len(seen[2]) == 1


# -- the form of an array


def test_the_form_of_an_array_is_not_that_of_a_tensor(trace: Any) -> None:
    w, array = T([1.0, 2.0, 3.0, 4.0]), np.arange(4.0)
    other = hm.from_numpy(array)

    def step(x: hm.Tensor) -> hm.Tensor:
        w.add_(x)
        return w * other

    f = trace(step)
    for _ in range(3):
        f(hm.ones((4,)))
    for shown in (w.numpy(), np.asarray(w), array):
        shown.shape = (2, 2)
        shown.flags.writeable = False
        assert f(hm.ones((4,))).shape == step(hm.ones((4,))).shape == w.shape == other.shape == (4,)
    assert w.tolist() == [10.0, 11.0, 12.0, 13.0] and w.numpy().flags.writeable


def test_a_form_that_the_function_changes() -> None:
    def make() -> Made:
        held = np.arange(4.0)

        def f(x: hm.Tensor) -> hm.Tensor:
            held.resize((2, 2) if held.ndim == 1 else (4,), refcheck=False)
            return x * held.shape[0]

        return f, [(T([1.0]),)] * 3, lambda: held.shape

    expected, seen = observe(make, lambda fn: fn), observe(make, hm.trace)
    assert seen[:2] == expected[:2] and len(seen[2]) == 1
