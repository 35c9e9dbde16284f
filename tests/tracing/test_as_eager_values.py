"""Values as eager code has them: types and identity of tensors, numbers, arrays and containers inside a trace."""

from __future__ import annotations

import collections
import copy
import dataclasses
import decimal
import functools
import json
import math
import numbers
import pickle
import statistics
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from tests.support.as_eager import Made, observe

T = hm.tensor
PROGRAMS: dict[str, tuple[Callable[[], Made], int]] = {}


def program(compiles: int, *calls: Any) -> Callable[[Any], Any]:
    """A function of `calls`; `compiles`: programs of it, 0 where it runs eagerly and says so."""

    def add(fn: Any) -> Any:
        PROGRAMS[fn.__name__] = (lambda: (fn, list(calls[0]() if callable(calls[0]) else calls[0]))), compiles
        return fn

    return add


def with_x(*values: Any) -> Callable[[], Iterable[tuple[Any, ...]]]:
    return lambda: [(T([1.0, 2.0]), value) for value in values]


def three() -> Iterable[tuple[Any, ...]]:
    return [(T([1.0, 2.0]),), (T([3.0, -4.0]),), (T([5.0, 6.0]),)]


def arrays() -> Iterable[tuple[Any, ...]]:
    return [(T([1.0, 2.0]), np.full(2, float(k))) for k in range(3)]


@program(1, with_x(1.5, 2.5, 3.5))
def float_types(x: Any, n: Any) -> Any:
    kinds = {float: "float", hm.Tensor: "tensor"}
    return x * n, type(n) is float, type(n).__name__, kinds[type(n)], kinds[type(x * n)], type(x) is hm.Tensor


@program(7, with_x(1, 2, 3, True, np.int64(2), np.int64(3), np.float64(2.0), np.bool_(True)))
def number_types(x: Any, n: Any) -> Any:
    return x * n, type(n), type(n) is int, type(n) in (int, bool), isinstance(n, int), isinstance(n, hm.Tensor), n * 2


@program(1, with_x(1.5, 2.5, 3.5))
def what_numbers_have(x: Any, n: Any) -> Any:
    return x * n, [hasattr(n, name) for name in ("shape", "item", "dtype", "is_integer", "sum")]


@program(8, with_x(1.5, 2.5, 1, 2, 3, "a", T([1.0]), np.ones(2), [3.0], {"k": 2.0}))
def matched(x: Any, n: Any) -> Any:
    match n:
        case hm.Tensor():
            return x * 2
        case int():
            return x * 3
        case float():
            return x * 4
        case str():
            return x * 5
        case np.ndarray():
            return x * 6
        case [a]:
            return x * a
        case {"k": k}:
            return x * k


@functools.singledispatch
def chosen(v: Any) -> str:
    return "other"


for kind in (float, int, hm.Tensor, np.ndarray):
    chosen.register(kind, lambda v, kind=kind: kind.__name__)


@program(6, with_x(1.5, 2.5, 1, 2, T([1.0]), np.ones(2), "a"))
def dispatched(x: Any, v: Any) -> Any:
    return x + 1, chosen(v)


@program(6, with_x(1.5, np.float64(2.0), 1, 2, np.int64(3), np.int64(4)))
def abstract_classes(x: Any, n: Any) -> Any:
    kinds = (numbers.Number, numbers.Real, numbers.Integral, collections.abc.Hashable)
    return [isinstance(n, kind) for kind in kinds], issubclass(type(n), float), isinstance(x, collections.abc.Sized)


@program(1, with_x(1.5, 2.5))
def classes_are_made(x: Any, n: Any) -> Any:
    return type("A", (), {"v": 3})().v, type(n)(2), isinstance(type(x), type), type(x) is type(x * 2), [type][0] is type


@program(1, with_x(1.5, 2.5, -3.5, 0.0, 1e200))
def arithmetic(x: Any, n: float) -> Any:
    return n**2, n**0.5, 2**n, n // 1, n % 1, divmod(n, 2), -n, abs(n), 1 / n, x * n


@program(6, with_x(1.5, 2.5, -3.5, math.nan, -0.0, 0.0))
def asked(x: Any, n: float) -> Any:
    compared = n > 2, n == 2.5, (n > 2) + (n > 1), (n > 2) is True, not n, [1, 2][n > 2]
    return (
        compared,
        f"{n:.2f} {n!r}",
        "%s %.3f" % (n, n),  # noqa: UP031
        n.hex(),
        {n: 1},
        complex(n),
        math.copysign(1, n),
    )


@program(1, with_x(1.5, -2.5, 4.0))
def complex_powers(x: Any, n: float) -> Any:
    return n**0.5, x


@program(4, with_x(1, 2, 3, 4))
def integers(x: Any, n: int) -> Any:
    parts = n**2, n // 2, n % 3, -n, n << 1, ~n, n / 2, n * 1.5, n > 1, n.bit_length(), str(n), [0] * n, n.real, hash(n)
    return parts, x * n


@program(2, with_x(1, 2, 3, 4, 5))
def general_integers(x: Any, n: int) -> Any:
    return x * n, x + (n + 1) * 2, type(n + 1) is int, 0.9**n * x


@program(0, with_x(1.5, 2.5))
def only_floats_will_do(x: Any, n: float) -> Any:
    return json.dumps({"n": n}), decimal.Decimal(n), statistics.mean([n, 2.0])


@program(3, with_x(np.float32(1.5), np.float32(2.5), np.float32(3.5)))
def numpy_float32(x: Any, s: Any) -> Any:
    return x * s, s * 2, s


@program(1, with_x(np.float64(1.5), np.float64(2.5), np.float64(0.0)))
def numpy_float64(x: Any, s: Any) -> Any:
    return x * s, s * 2, s, s.dtype, s.item(), type(s.item()), s + 1, isinstance(s, float), isinstance(s, np.generic)


@program(4, with_x(1.5, 2.5, 3, 4))
def numpy_of_numbers(x: Any, n: Any) -> Any:
    return np.sin(n), np.maximum(n, 2.0), np.float32(2) * n, n * np.float64(2), math.sqrt(n)


@program(1, arrays)
def arrays_and_tensors(x: Any, a: Any) -> Any:
    return (
        x * a,
        a,
        a.shape,
        len(a),
        a.dtype,
        isinstance(a, np.ndarray),
        isinstance(a, hm.Tensor),
        type(a) is np.ndarray,
    )


LAYER = hm.nn.Linear(2, 2)


@program(1, arrays)
def arrays_in_functions(x: Any, a: Any) -> Any:
    a32 = hm.asarray(a).astype(hm.float32)
    return (
        LAYER(a32),
        hm.exp(a),
        hm.nn.functional.relu(a),
        hm.sum(a, axis=0),
        hm.where(x > 0, x, a),
        a @ x,
        a + x,
        x > a,
    )


@program(1, lambda: [(np.full((2, 2), k, np.float32),) for k in range(3)])
def arrays_in_layers(a: Any) -> Any:
    return LAYER(a)


@program(1, lambda: [(np.full(2, k, np.float32),) for k in range(3)])
def tensors_of_arrays(a: Any) -> Any:
    t = hm.asarray(a)
    t += 1
    return a, t, hm.tensor(a)


@program(1, lambda: [(T([5.0, 6.0, 7.0]), np.array(k)) for k in ([0, 1], [2, 0], [1, 1])])
def indices_in_arrays(x: Any, i: Any) -> Any:
    return x[i]


for name, body in {
    "computed": lambda x, a: x * (a * 2 + 1),
    "an_element": lambda x, a: x * a[0],
    "a_method": lambda x, a: x * a.sum(),
    "flags": lambda x, a: (x, a.flags.c_contiguous),
    "bytes": lambda x, a: (x, a.tobytes()),
    "numpy": lambda x, a: x * np.asarray(a),
    "a_ufunc": lambda x, a: x * np.sin(a),
    "written": lambda x, a: (x, a.fill(7)),
    "iterated": lambda x, a: [x * v for v in a],
    "made": lambda x, a: (x, np.arange(3)),
    "of_a_tensor": lambda x, a: x.numpy(),
    "an_object": lambda x, a: functools.partial(max, x),
    "a_set": lambda x, a: ({1, 2}, x),
}.items():
    body.__name__ = f"array_{name}"
    program(int(name not in ("bytes", "flags", "of_a_tensor", "an_object", "a_set")), arrays)(body)


@program(0, lambda: [(T([1.0]), np.ma.array([1.0, 30.0], mask=[0, k > 0])) for k in range(3)])
def masked_arrays(x: Any, a: Any) -> Any:
    return x * a.mean()


@program(0, lambda: [(T([1.0]), np.array(["a", k])) for k in "bcd"])
def arrays_of_strings(x: Any, a: Any) -> Any:
    return x + 1, a, a[1]


SAME = [T([1.0])]


@program(2, lambda: [(T([2.0]), SAME, SAME), (T([2.0]), [T([1.0])], [T([1.0])]), (T([3.0]), SAME, SAME)])
def one_list_twice(x: Any, a: Any, b: Any) -> Any:
    return x * 2 if a is b else x * 3, a, b


@program(0, lambda: [(T([2.0]), part, part) for part in ([], [], [])])
def one_list_twice_changed(x: Any, a: Any, b: Any) -> Any:
    a.append(x)
    return len(b)


@program(1, lambda: [({"a": part, "b": part},) for part in ([T([1.0])], [T([2.0])])])
def one_list_inside(d: Any) -> Any:
    made = [d["a"][0] * 2]
    return d["a"] is d["b"], d, d["a"], made, (made,), SAME


class Attributes(dict[str, Any]):
    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.note = "given"

    def __getattr__(self, name: str) -> Any:
        return self[name]


@program(1, lambda: [(Attributes(x=T([float(k)])),) for k in range(3)])
def a_class_of_dicts(d: Any) -> Any:
    return d.x * 2, d.note, d, type(d), collections.Counter("abca"), collections.OrderedDict(b=1, a=d.x)


@dataclasses.dataclass
class Record:
    a: Any
    b: float = 2.0


@program(1, lambda: [(Record(T([1.0]), float(k)),) for k in range(3)])
def a_dataclass(d: Record) -> Any:
    return d, dataclasses.replace(d, a=d.a * d.b), d.b * 2


@program(1, three)
def returned_floats(x: Any) -> Any:
    return x * 2, float(x.sum()), {"max": float(x.max()), "all": [float((x > 1).sum())]}, x.shape[0]


@program(1, three)
def floats_behind_local_variables(x: Any) -> Any:
    a, b = x, x * 2
    return {"total": float(b.sum())}, float(a.max()), (a, b)


@program(3, three)
def floats_that_are_keys(x: Any) -> Any:
    return {float(x.sum()): "total"}


@program(3, three)
def floats_that_are_looked_at(x: Any) -> Any:
    return float(x.sum()) + 1, math.sqrt(abs(x).sum()), [float(v) for v in x], max(float(x.sum()), 2.0)


@program(1, lambda: [(T([float(k)]), 1) for k in range(3)])
def floats_of_a_call_inside(x: Any, again: int) -> Any:
    if again:
        return x * floats_of_a_call_inside(x, 0)
    return float(x.sum())


@program(1, three)
def texts(x: Any) -> Any:
    return f"{x} {x.sum():.2f} {x.shape}", str(x * 2), repr([x])


@program(3, three)
def copies(x: Any) -> Any:
    return copy.copy(x), copy.deepcopy([x]), pickle.loads(pickle.dumps(x)), x.tolist(), 3.0 in x


@program(2, three)
def orders(x: Any) -> Any:
    return sorted([x[1], x[0]], key=lambda t: t.item()), max(x[0], x[1]), len({x, x}), {x: 1}[x]


@pytest.mark.parametrize("name", PROGRAMS)
def test_values_are_those_of_eager_code(name: str) -> None:
    make, compiles = PROGRAMS[name]
    expected = observe(make, lambda fn: fn)
    seen = observe(make, hm.trace)
    assert seen[:2] == expected[:2]
    if not compiles:
        (said,) = seen[2]
        assert "test_as_eager_values.py" in said or "returns" in said or "changes what" in said
    else:
        assert not seen[2] and seen[3].cache_info().compiles == compiles, seen[3].cache_info()


def test_captured_arrays_that_numpy_reads() -> None:
    small, large, both = np.ones(2), np.ones(5000), np.ones(2, np.float32)
    f = hm.trace(lambda x: x * small.sum() + large.sum() + x * both + both.max())
    g = f.__wrapped__
    x = T([1.0, 2.0])
    for array in (small, large, both, small, both, large):
        array += 1
        assert f(x).tolist() == g(x).tolist()


def test_powers_are_those_of_python() -> None:
    random = np.random.default_rng(0)
    power = hm.trace(lambda a, b, x: (a**b, a**2, 2.0**b, x))
    for a, b in zip(np.exp(random.normal(size=300)).tolist(), random.normal(size=300).tolist(), strict=True):
        assert power(a, b, T([1.0]))[:3] == (a**b, a**2, 2.0**b)
    assert power.cache_info().compiles == 1
    for a, b in ((0.0, -1.0), (1e300, 2.0), (-8.0, 1 / 3)):
        outcomes = []
        for f in (power, power.__wrapped__):
            try:
                outcomes.append(f(a, b, T([1.0]))[0])
            except ArithmeticError as error:
                outcomes.append((type(error), str(error)))
        assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "complex64"])
def test_squares_are_products(dtype: str) -> None:
    x = hm.asarray((np.random.default_rng(0).standard_normal(4096) * 3).astype(dtype))
    square = hm.trace(lambda x, n: (x**2, x**n))
    for _ in range(2):
        for out in square(x, 2):
            assert out.numpy().tobytes() == (x**2).numpy().tobytes() == (x * x).numpy().tobytes()
    assert " pow(" not in square.ir


def test_gradients_of_layers_over_arrays() -> None:
    a = np.ones((2, 2), np.float32)
    for call in (LAYER, *[hm.trace(lambda a: LAYER(a))] * 2):
        LAYER.weight.grad = None
        call(a).sum().backward()
        assert LAYER.weight.grad.tolist() == [[2.0, 2.0]] * 2
