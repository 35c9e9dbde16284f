"""`hm.kernel`: functions of scalars as elementwise operations, and array kernels by numba."""

from __future__ import annotations

import math
import random
import time
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hybridml as hm
from hybridml.testing import Sample, check_op, gradcheck

EDGE = 1.0


def straight(x: Any, y: Any) -> Any:
    t = x * y + 2
    t += math.sin(x) / 3
    return t if x < y else -t


def early(x: Any, y: Any) -> Any:
    if x > 1 and y > 0:
        return x
    elif not x > -1 or y != y:
        return y * 2.0
    z = x
    if y > x:
        z = y * y
        z -= 1
    return z


def unrolled(x: Any, y: Any) -> Any:
    total = 0.0
    for k in range(5):
        if k == 1:
            continue
        total = total + x**k * y
        if total > 4:
            break
    else:
        total = total + 1
    return total


def chained(x: Any, y: Any) -> Any:
    a, b = (x, y) if x < y else (y, x)
    return max(a, b, 0.5) - min(a, b) if -1 < x <= 1 else abs(round(x)) + a // (abs(b) + 1) + a % 2


def nested(x: Any, y: Any) -> Any:
    inside = clamped(x, hi=1.5)
    return inside * math.tanh(y) + np.exp(-abs(x))


def clamped(x: Any, lo: float = -1.0, hi: float = 1.0) -> Any:
    return lo if x < lo else hi if x > hi else x


def branching(x: Any, y: Any) -> Any:
    found = 0.0
    if x > 0:
        if x > 1:
            found = 2.0 * y
        elif y > 0:
            found = y
        more = found + 1
        found = more * 2
    else:
        for k in range(3):
            if x < -k:
                found = found + k + y
    return found


FUNCTIONS = [straight, early, unrolled, chained, nested, branching]


def by_python(fn: Callable[..., Any], x: np.ndarray, y: np.ndarray) -> np.ndarray:
    found = [fn(float(a), float(b)) for a, b in zip(x, y, strict=True)]
    return np.array([each.item() if hasattr(each, "item") else each for each in found])


@pytest.mark.parametrize("fn", FUNCTIONS)
def test_it_computes_what_python_does_for_each_element(fn: Callable[..., Any]) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.uniform(-3, 3, (2, 200))
    np.testing.assert_allclose(hm.kernel(fn)(x, y).numpy(), by_python(fn, x, y), rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("fn", FUNCTIONS)
def test_checks_of_the_table(fn: Callable[..., Any]) -> None:
    rng = np.random.default_rng(1)
    check_op(hm.kernel(fn), [Sample((rng.uniform(-3, 3, (4, 5)), rng.uniform(-3, 3, (4, 5))))])


@settings(max_examples=40)
@given(st.floats(-4, 4), st.floats(-4, 4))
def test_every_way_through_a_function(x: float, y: float) -> None:
    for fn, made in KERNELS.items():
        np.testing.assert_allclose(made(np.array(x), np.array(y)).item(), fn(x, y), rtol=1e-13, atol=1e-13)


KERNELS = {fn: hm.kernel(fn) for fn in (straight, early, unrolled, chained, branching)}


def test_it_is_a_part_of_the_kernels_around_it() -> None:
    made = hm.kernel(straight)
    fn = hm.trace(lambda x, y: hm.exp(made(x * 2, y)) + 1)
    x, y = hm.linspace(-1, 1, 64), hm.linspace(1, -1, 64)
    assert np.array_equal(fn(x, y).numpy(), (hm.exp(made(x * 2, y)) + 1).numpy())
    assert fn.stats.kernels == 1 and "straight@" in fn.ir


def test_operands_broadcast_and_have_one_dtype() -> None:
    made = hm.kernel(straight)
    assert made(hm.ones((3, 1)), hm.ones(4)).shape == (3, 4)
    assert made(hm.ones(3), 2).dtype == hm.float32
    assert made(hm.ones(3, dtype=hm.float64), hm.ones(3)).dtype == hm.float64
    assert made(hm.ones(3, dtype=hm.bfloat16), 1.0).dtype == hm.bfloat16
    with pytest.raises(hm.ShapeError, match="straight: shapes"):
        made(hm.ones(3), hm.ones(4))
    with pytest.raises(hm.DTypeError, match=r"takes real data, got c64\[3\]"):
        made(hm.ones(3, dtype=hm.complex64), 1)


def test_the_result_has_the_dtype_of_what_is_computed() -> None:
    sign = hm.kernel(lambda x: 1 if x > 0 else -1)
    large = hm.kernel(lambda x: x > 2)
    one = hm.kernel(lambda x: 1.0)
    x = hm.tensor([-1.0, 3.0])
    assert sign(x).dtype == hm.int64 and sign(x).tolist() == [-1, 1]
    assert large(x).dtype == hm.bool and large(x).tolist() == [False, True]
    assert one(x).dtype == hm.float32 and one(x.astype(hm.float64)).dtype == hm.float64
    assert hm.kernel(lambda x: x // 2 + x % 3)(hm.arange(-4, 4)).tolist() == [x // 2 + x % 3 for x in range(-4, 4)]


def test_steps_of_a_loop_are_counted_for_each_run() -> None:
    def summed(x: Any) -> Any:
        total = 0.0
        for k in range(40):
            total = total + x * k
        return total

    made = hm.kernel(summed)
    for dtype in (hm.float32, hm.float64, hm.float16, hm.int32):
        assert made(hm.ones(2, dtype=dtype)).tolist() == [780.0, 780.0]
    assert hm.grad(lambda x: made(x).sum())(hm.ones(2)).tolist() == [780.0, 780.0]


def test_functions_of_math_mean_what_they_do_in_python() -> None:
    x, y = np.array([7.5, -7.5, 2.5]), np.array([2.0, 2.0, 3.0])
    for fn in (math.fmod, math.hypot, math.atan2):
        made = hm.kernel(lambda x, y: fn(x, y))  # noqa: B023
        np.testing.assert_allclose(made(x, y).numpy(), [fn(*pair) for pair in zip(x, y, strict=True)], rtol=1e-14)
    by_base = hm.kernel(lambda x, y: math.log(x, y) + math.log(2, y) + math.log(x, 3))
    expected = math.log(7.5, 2) + 1 + math.log(7.5, 3)
    np.testing.assert_allclose(by_base(np.array(7.5), np.array(2.0)).item(), expected, rtol=1e-14)
    with pytest.raises(hm.TraceError, match="not remainder"):  # math's is the nearest, NumPy's has the divisor's sign
        hm.kernel(lambda x, y: math.remainder(x, y))(x, y)


def huber(x: Any, *, edge: float = 1.0) -> Any:
    return x * x / 2 if abs(x) < edge else edge * (abs(x) - edge / 2)


def test_parameters_are_keywords() -> None:
    made = hm.kernel(huber)
    x = hm.tensor([0.5, -3.0])
    assert made(x).tolist() == [0.125, 2.5] and made(x, edge=4.0).tolist() == [0.125, 4.5]
    assert hm.trace(lambda x: made(x, edge=4.0))(x).tolist() == [0.125, 4.5]
    assert hm.grad(lambda x: made(x, edge=2.0).sum())(x).tolist() == [0.5, -2.0]
    with pytest.raises(TypeError, match="edges"):
        made(x, edges=2)
    for edge in (np.float32(4), hm.tensor(4.0), 4):
        assert made(x, edge=edge).tolist() == [0.125, 4.5]
        assert hm.trace(lambda x, edge: made(x, edge=edge))(x, edge).tolist() == [0.125, 4.5]
    with pytest.raises(hm.ArgumentError, match="kernel huber: parameter edge is a number"):
        made(x, edge=np.ones(2))


def test_gradients_of_every_order_come_from_the_source() -> None:
    made = hm.kernel(lambda x, y: x**3 * math.exp(y) if x > 0 else math.sin(x) * y)
    gradcheck(made, np.array([0.5, -0.7, 1.2]), np.array([0.3, 1.1, -0.4]), order=3)


def test_a_way_that_is_not_taken_has_no_part_in_the_gradient() -> None:
    made = hm.kernel(lambda x: x * math.log(x) if x > 0 else 0.0)
    x = hm.tensor([0.0, 1.0, -1.0])
    assert made(x).tolist() == [0.0, 0.0, 0.0]
    assert hm.grad(lambda x: made(x).sum())(x).tolist() == [0.0, 1.0, 0.0]
    assert hm.grad(lambda x: hm.trace(made)(x).sum())(x).tolist() == [0.0, 1.0, 0.0]


def test_a_derivative_that_is_given() -> None:
    straight_through = hm.kernel(lambda x: round(x), derivative=lambda x: 1.0)
    assert hm.grad(lambda x: straight_through(x).sum())(hm.tensor([0.3, 1.6])).tolist() == [1.0, 1.0]
    product = hm.kernel(lambda x, y: x * y, derivative=(lambda x, y: y + 1, lambda x, y: x))
    assert hm.grad(lambda x: product(x, 2.0))(hm.tensor(3.0)).item() == 3.0
    with pytest.raises(hm.ArgumentError, match="one per argument"):
        hm.kernel(lambda x, y: x * y, derivative=lambda x, y: y)


def test_a_kernel_in_a_kernel_keeps_its_derivative() -> None:
    inner = hm.kernel(lambda x: round(x), derivative=lambda x: 1.0)
    outer = hm.kernel(lambda x: inner(x) * 2)
    x = hm.tensor([0.3, 1.6])
    assert outer(x).tolist() == [0.0, 4.0]
    for style in (lambda fn: fn, hm.trace):
        assert style(hm.grad(lambda x: outer(x).sum()))(x).tolist() == [2.0, 2.0]


def test_an_elementwise_operation_in_a_kernel() -> None:
    square = hm.op(lower=lambda s, x: s.mul(x, x), name="squared")(lambda x: x * x)
    made = hm.kernel(lambda x: square(x) + 1)
    assert made(hm.tensor([1.0, 2.0])).tolist() == hm.trace(made)(hm.tensor([1.0, 2.0])).tolist() == [2.0, 5.0]
    rows = hm.op(infer=lambda x: x, name="whole")(lambda x: x * x)
    with pytest.raises(hm.TraceError, match="whole is no operation of one element"):
        hm.kernel(lambda x: rows(x) + 1)(hm.ones(2))


def test_variables_around_it_are_read_at_each_call() -> None:
    global EDGE
    factor = 2.0

    @hm.kernel
    def scaled(x: Any) -> Any:
        return x * factor if x < EDGE else 0.0

    fn, x = hm.trace(lambda x: scaled(x) + 1), hm.tensor([0.5, 2.0])
    try:
        assert scaled(x).tolist() == [1.0, 0.0] and fn(x).tolist() == [2.0, 1.0]
        EDGE = 3.0
        assert scaled(x).tolist() == [1.0, 4.0] and fn(x).tolist() == [2.0, 5.0]
        factor = 3.0
        assert scaled(x).tolist() == [1.5, 6.0] and fn(x).tolist() == [2.5, 7.0]
    finally:
        EDGE = 1.0


def test_vmap_and_other_transforms() -> None:
    made = hm.kernel(straight)
    x, y = hm.randn(3, 4), hm.randn(4)
    found = hm.vmap(made, in_axes=(0, None))(x, y)
    assert np.array_equal(found.numpy(), made(x, y).numpy())
    assert hm.jacrev(lambda x: made(x, y))(y).shape == (4, 4)
    per_sample = hm.vmap(hm.grad(lambda x: made(x, y).sum()))(x)
    assert np.array_equal(per_sample.numpy(), hm.grad(lambda x: made(x, y).sum())(x).numpy())


def test_it_learns_in_a_traced_step() -> None:
    act = hm.kernel(lambda x: x if x > 0 else 0.1 * (math.exp(x) - 1))
    layer = hm.nn.Linear(3, 2)
    optimizer = hm.optim.SGD(layer.parameters(), lr=0.1)

    @hm.trace
    def step(x: hm.Tensor) -> hm.Tensor:
        optimizer.zero_grad()
        loss = (act(layer(x)) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss

    losses = [step(hm.ones((4, 3))).item() for _ in range(5)]
    assert losses[-1] < losses[0]


def test_other_devices_have_the_same_bits() -> None:
    made, x = hm.kernel(huber), hm.linspace(-3, 3, 50)
    assert np.array_equal(made(x.to("reference")).cpu().numpy(), made(x).numpy())


def unbound(x: Any) -> Any:
    if x > 0:
        y = 2 * x
    return y


def attributed(x: Any) -> Any:
    return x.itemsize


def opened(x: Any) -> Any:
    return open(x)


def in_list(x: Any) -> Any:
    return {x: 1}


def raising(x: Any) -> Any:
    if x > 0:
        raise ValueError("no")
    return x


def text_or_number(x: Any) -> Any:
    return x if x > 0 else "negative"


def nothing(x: Any) -> Any:
    if x > 0:
        return x


def shows(x: Any) -> Any:
    print(x)
    return x


def indexed(x: Any) -> Any:
    return x[0]


def by_element(x: Any) -> Any:
    return COEFFICIENTS[x]


def again(x: Any) -> Any:
    return 1 if x < 2 else x * again(x - 1)


EYE = hm.tensor(2.0)
SPACE = types.SimpleNamespace(eye=EYE)
COEFFICIENTS = [1.0, -2.0, 0.5]


def of_a_tensor(x: Any) -> Any:
    return x * EYE  # updated in place, it would be another function


def of_an_attribute(x: Any) -> Any:
    return x * SPACE.eye


def draws(x: Any) -> Any:
    return x + random.random()


def draws_numpys(x: Any) -> Any:
    return x + np.random.default_rng(0).normal()


def draws_ours(x: Any) -> Any:
    return x + hm.rand(())


def told(x: Any) -> Any:
    return x + time.time()


def test_what_is_known_may_be_in_containers() -> None:
    array, table = np.array(COEFFICIENTS, np.float32), {"low": 0.5, "high": 2.0}

    @hm.kernel
    def polynomial(x: Any, *, end: str = "low") -> Any:
        total = table[end]
        for k, c in enumerate(array):
            total = total + c * x**k
        for c, d in zip(COEFFICIENTS, reversed(array), strict=True):
            total = total + (c - d) * array[-1]
        return total

    x = np.array([0.0, 1.0, -2.0], np.float32)
    for end in table:
        expected = [polynomial.__wrapped__(v, end=end) for v in x]
        for fn in (polynomial, hm.trace(polynomial)):
            assert fn(hm.tensor(x), end=end).tolist() == expected
    before = polynomial(hm.tensor(x)).tolist()
    array[0] += 1
    assert polynomial(hm.tensor(x)).tolist() != before


def summed(x: Any) -> Any:
    return hm.sum(x) + hm.ones(3).sum() + hm.cumsum(hm.ones(3), axis=0)[0] * x


@pytest.mark.parametrize(
    "fn, said",
    [
        (unbound, r"'y' has no value on every way to .*test_kernel.py"),
        (attributed, "`x.itemsize` cannot be computed for all elements at once; operators and functions are"),
        (opened, "functions of math, NumPy, hybridml and Python code are, not open"),
        (in_list, "`{x: 1}` cannot be computed"),
        (raising, "`raise ValueError"),
        (text_or_number, "both ways give a number, and one gives a str"),
        (nothing, "both ways give a number, and one gives None; is a `return` missing"),
        (shows, "not what is printed or kept on the way: shows.__wrapped__ is the Python function"),
        (indexed, "`x.0.` cannot be computed .*; an element is one number"),
        (by_element, "indices are Python numbers"),
        (again, "functions that call themselves are not; write a loop"),
        (of_a_tensor, "`EYE` .*, this is a tensor; pass it as an argument"),
        (of_an_attribute, "`SPACE.eye` .*, this is a tensor; pass it as an argument"),
        *[(fn, "not random numbers and clocks; pass them in") for fn in (draws, draws_numpys, draws_ours, told)],
        (summed, "kernel summed"),
    ],
)
def test_what_has_no_meaning_for_all_elements_at_once(fn: Callable[..., Any], said: str) -> None:
    for style in (lambda fn: fn, hm.trace):
        with pytest.raises(hm.TraceError, match=said):
            style(hm.kernel(fn))(hm.ones(3))


def test_what_is_no_function_of_scalars() -> None:
    for each, said in (
        (print, "a Python function"),
        (lambda: 1.0, "takes no tensor"),
        (lambda *x: x, "keywords after"),
    ):
        with pytest.raises(hm.ArgumentError, match=said):
            hm.kernel(each)
    space: dict[str, Any] = {}
    exec("def unwritten(x): return x", space)
    with pytest.raises(hm.ArgumentError, match="the source of unwritten is not to be found"):
        hm.kernel(space["unwritten"])
    with pytest.raises(hm.ArgumentError, match="'elementwise' or 'array'"):
        hm.kernel(huber, kind="block")


def test_lambdas_of_one_line_are_told_apart() -> None:
    twice, more = hm.kernel(lambda x: x * 2), hm.kernel(lambda x: x + 3)
    made = [hm.kernel(lambda x: not x > 1), hm.kernel(lambda x: x if x > 1 else 0.0)]
    x = hm.tensor([1.0, 2.0])
    assert [k(x).tolist() for k in (twice, more, *made)] == [[2, 4], [4, 5], [True, False], [0, 2]]


class TestArrayKernels:
    numba = pytest.importorskip("numba")

    def test_an_array_kernel(self) -> None:
        @hm.kernel(kind="array", infer=lambda x, *, least: (x, hm.ShapeDtypeStruct((), "int64")), results=("out", "n"))
        def runs(x: Any, *, least: float = 0.5) -> Any:
            out, n = np.zeros_like(x), 0
            if least > 100:
                raise ValueError("too much")
            for i in range(x.shape[0]):
                if x[i] < least:
                    n += 1
                    continue
                out[i] = x[i]
            return out, n

        x = hm.tensor([0.1, 0.7, 0.4, 0.9])
        for style in (lambda fn: fn, hm.trace):
            out, n = style(runs)(x)
            assert out.tolist() == hm.where(x >= 0.5, x, 0).tolist()
            assert n.item() == 2 and n.dtype == hm.int64
            with pytest.raises(ValueError, match="too much"):
                style(lambda x: runs(x, least=200.0))(x)

    def test_what_numba_cannot_compile(self) -> None:
        @hm.kernel(kind="array", infer=lambda x: x)
        def writes(x: Any) -> Any:
            x[0] = 1
            return x

        with pytest.raises(hm.ArgumentError, match=r"numba cannot compile writes(.|\n)*test_kernel.py"):
            writes(hm.ones(3))

        @hm.kernel(kind="array", infer=lambda x: hm.ShapeDtypeStruct((), x.dtype))
        def rows(x: Any) -> Any:
            return x * 2

        @hm.kernel(kind="array", infer=lambda x: hm.ShapeDtypeStruct((), "int32"))
        def cut(x: Any) -> Any:
            return x.sum() * 1.5

        with pytest.raises(hm.ArgumentError, match="cut returns float64, and infer says int32"):
            cut(hm.ones(3))
        with pytest.raises(hm.ArgumentError, match="rows returns float32 with 1 axes, and infer says float32 with 0"):
            rows(hm.ones(3))
