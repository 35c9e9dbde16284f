"""Python's loops inside of `jvp` and `vmap` in traced functions: loops of the program, of dual numbers and batches."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

import hybridml as hm
from tests.support.examples import examples
from tests.support.loop_gradients import FORMS, assert_close, forms
from tests.support.random_loops import M, N, program_of

R = np.random.default_rng(0)


def pushed(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The value and the derivative along some direction."""

    def push(a: Any, b: Any) -> Any:
        return hm.jvp(fn, (a, b), (hm.cos(a), hm.sin(b) + 0.5))

    return push


def along(fn: Callable[..., Any]) -> Callable[..., Any]:
    return lambda a, b: hm.jvp(hm.grad(fn, argnums=(0, 1)), (a, b), (hm.cos(a), hm.sin(b) + 0.5))[1]


def back(fn: Callable[..., Any]) -> Callable[..., Any]:
    return hm.grad(lambda a, b: pushed(fn)(a, b)[1], argnums=(0, 1))


def twice(fn: Callable[..., Any]) -> Callable[..., Any]:
    return lambda a, b: pushed(lambda x, y: pushed(fn)(x, y)[1])(a, b)


def batched(fn: Callable[..., Any]) -> Callable[..., Any]:
    return lambda a, b: (hm.vmap(lambda s: fn(a * s, b))(SCALES), hm.vmap(fn)(a * COLUMN(a), b * COLUMN(b)))


def batched_gradient(fn: Callable[..., Any]) -> Callable[..., Any]:
    return lambda a, b: hm.vmap(hm.grad(fn, argnums=(0, 1)))(a * COLUMN(a), b * COLUMN(b))


def gradient_of_batches(fn: Callable[..., Any]) -> Callable[..., Any]:
    return hm.grad(lambda a, b: hm.vmap(fn)(a * COLUMN(a), b * COLUMN(b)).sum(), argnums=(0, 1))


SCALES = hm.tensor([0.9, 1.0, 1.1], dtype="float64")


def COLUMN(t: Any) -> Any:
    return SCALES.reshape((3,) + (1,) * t.ndim)


def pushed_from(program: Callable[..., Any]) -> Callable[..., Any]:
    """The derivative of a random program, whose arguments are updated."""

    def push(a: Any, v: Any, w: Any) -> Any:
        def floats(*given: Any) -> Any:
            found = program(*(x.clone() for x in given))
            return [x for x in leaves(found) if isinstance(x, hm.Tensor) and x.dtype.kind == "f"]

        return hm.jvp(floats, (a, v, w), (hm.cos(a), hm.sin(v), hm.cos(w)))

    return push


def batched_of(program: Callable[..., Any]) -> Callable[..., Any]:
    """The batch of a random program: of its results, and of what it does to the arrays that it is given."""

    def batch(a: Any, v: Any, w: Any) -> Any:
        given = [(x * COLUMN(x)).clone() for x in (a, v, w)]
        return hm.vmap(program)(*given), given

    return batch


def check_program(source: str, fn: Callable[..., Any], seed: int) -> Any:
    r = np.random.default_rng(seed)
    given = [hm.asarray(r.random(shape) * 0.7) for shape in ((N, M), (N,), (M,))]
    try:
        expected = leaves(fn(*given))
    except hm.HybridmlError as error:
        expected = error
    traced = hm.trace(fn)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if isinstance(expected, Exception):
            with pytest.raises(type(expected)):
                traced(*given)
            return traced
        found = leaves(traced(*given))
    for x, y in zip(found, expected, strict=True):
        assert type(x) is type(y), source
        largest = max(1.0, float(np.abs(np.asarray(y)).max(initial=0.0)))
        if largest < 1e6:
            np.testing.assert_allclose(np.asarray(x), np.asarray(y), rtol=1e-8, atol=1e-9 * largest, err_msg=source)
    return traced


def leaves(value: Any) -> list[Any]:
    return [x for v in value for x in leaves(v)] if isinstance(value, tuple | list) else [value]


def check(fn: Callable[..., Any], *args: Any, lines: int = 400) -> Any:
    given = [hm.tensor(x, dtype="float64") for x in args]
    expected = fn(*given)
    traced = hm.trace(fn, strict=True)
    for _ in range(2):
        assert_close(leaves(traced(*given)), leaves(expected))
    assert " loop(" in traced.ir and len(traced.ir.splitlines()) < lines, traced.ir
    return traced


# What asks for the values of data in steps: an error for batches, and step by step for what differentiates it again.
STEPPED = ("back", "batched", "batched_gradient", "gradient_of_batches")


@forms
@pytest.mark.parametrize("transform", [pushed, along, back, twice, batched, batched_gradient, gradient_of_batches])
def test_a_loop_inside_of_a_transform_is_a_loop(transform: Any, fn: Any, a: Any, b: Any) -> None:
    if fn.__name__ == "branches" and transform.__name__ in STEPPED:
        return
    check(transform(fn), a, b)


def test_a_gradient_of_dual_numbers_goes_the_way_that_the_step_went() -> None:
    fn = {f.__name__: f for f, *_ in FORMS}["branches"]
    given = hm.tensor(R.random(20)), hm.tensor(0.7, dtype="float64")
    expected, found = back(fn)(*given), hm.trace(back(fn))(*given)
    assert_close(found, expected)
    assert np.isfinite(np.asarray(found[0])).all()


def integrated(y: Any, h: Any) -> Any:
    t, k = 0.0, 0
    while t < 1.0:
        y = y + h * 0.05 * hm.sin(y + t)
        t += 0.05
        k += 1
    return (y * y).sum() * t + k


def to_and_fro(y: Any, h: Any) -> Any:
    for k in range(20):
        y = y + h * hm.sin(y) if k % 3 == 0 else y * 0.99
    return (y * y).sum()


def grown(y: Any, h: Any) -> Any:
    out = []
    for i in range(20):
        y = y + h * hm.sin(y + i)
        out.append(y)
    for x in y:
        h = h * hm.cos(x)
    return (hm.stack(out) ** 2).sum() * h


def nested(y: Any, h: Any) -> Any:
    total = h * 0.0
    for i in range(20):
        for j in range(i):
            total = total * 0.9 + hm.sin(y[i] * y[j])
        y = y * h
    return total


def mixed(y: Any, h: Any) -> Any:
    def step(c: Any, x: Any) -> Any:
        return c * 0.5 + hm.sin(x * h), c

    z = y
    for _ in range(20):
        z, out = hm.scan(step, z, hm.stack([y, z]))
        z = z + 0.1 * hm.cond(h.sum() > 0.0, lambda u: u * h, lambda u: u - h, out[0])
    return z.sum()


def in_memory(y: Any, h: Any) -> Any:
    a = hm.zeros((20, y.shape[0]), dtype=y.dtype)
    a[0] = y
    rows = a[:, 1:]
    for i in range(1, 20):
        a[i] = a[i - 1].clone() * h + 0.5
        rows[i, 0] *= 0.5
    return (a * a).sum()


@pytest.mark.parametrize("transform", [pushed, along, back, twice, batched, batched_gradient, gradient_of_batches])
@pytest.mark.parametrize("fn", [integrated, to_and_fro, grown, nested, mixed, in_memory])
def test_other_loops_inside_of_transforms(transform: Any, fn: Any) -> None:
    differs = fn is mixed and "batch" in transform.__name__  # a branch, from element to element
    if differs or (fn is to_and_fro and transform in (back, gradient_of_batches)):  # both ways, differentiated again
        return
    check(transform(fn), R.random(20), 0.3, lines=900)


@examples(4, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 10_000), st.booleans(), st.sampled_from([pushed_from, batched_of]))
def test_random_programs(seed: int, ends: bool, transform: Any) -> None:
    source, program = program_of(seed, ends)
    check_program(source, transform(program), seed)


# -- functions that no graph tells all of


def loop(y: Any) -> Any:
    for _ in range(20):
        y = y + 0.1 * hm.sin(y)
    return y


def detached(y: Any) -> Any:
    z = loop(y)
    return z * z.sum().detach()


def detached_in_steps(y: Any) -> Any:
    for _ in range(20):
        y = y + 0.1 * hm.sin(y.detach())
    return y


def without_history(y: Any) -> Any:
    z = loop(y)
    with hm.no_grad():
        s = z.sum()
    return z * s


def of_a_number(y: Any) -> Any:
    for _ in range(20):
        y = y * (y.sum().item() * 0.1)
    return y


def again(y: Any) -> Any:
    for _ in range(20):
        y = hm.checkpoint(lambda t: hm.sin(t) * 1.1, y)
    return y


def left(y: Any) -> Any:
    for _ in range(100):
        y, before = 0.5 * (y + 2 / y), y
        if hm.abs(y - before).max() < 1e-9:
            break
    return y


def until(y: Any) -> Any:
    e, k = hm.tensor(1.0, dtype="float64"), 0
    while e > 1e-9:
        y, before, k = 0.5 * (y + 2 / y), y, k + 1
        e = hm.abs(y - before).max()
    return y * k


def drawing(y: Any) -> Any:
    return loop(y) * hm.rand(())


def around(y: Any) -> Any:
    STATE.add_(loop(y).detach())
    return loop(y)


STATE = hm.zeros((6,), dtype="float64")
FORMS_OF_ONE = {
    "jvp": lambda f: lambda x: hm.jvp(f, (x,), (hm.cos(x),)),
    "grad": lambda f: hm.grad(lambda x: hm.jvp(f, (x,), (hm.cos(x),))[1].sum()),
    "hessian": lambda f: hm.hessian(lambda x: f(x).sum()),
    "jacrev": hm.jacrev,
    "vmap": lambda f: lambda x: hm.vmap(f)(x * COLUMN(x)),
}


@pytest.mark.parametrize("form", FORMS_OF_ONE)
@pytest.mark.parametrize(
    "fn",
    [loop, detached, detached_in_steps, without_history, of_a_number, again, left, until, drawing, around],
)
def test_what_a_graph_does_not_tell(fn: Any, form: str) -> None:
    found, x = [], hm.tensor(R.random(6))
    transformed = FORMS_OF_ONE[form](fn)
    for style in (transformed, hm.trace(transformed)):
        hm.manual_seed(0)
        with hm.no_grad():
            STATE.zero_()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                result = leaves(style(x))
            except hm.HybridmlError as error:
                result = [type(error)]
        found.append([*result, STATE.clone(), hm.rand(())])
    for a, b in zip(*found, strict=True):
        assert (a is b) if isinstance(a, type) else np.allclose(np.asarray(a), np.asarray(b), rtol=1e-9, atol=1e-11)


def test_a_condition_that_differs_from_element_to_element() -> None:
    def fn(y: Any, limit: Any) -> Any:
        return hm.while_loop(lambda c: c.sum() < limit, lambda c: c * 1.5, loop(y))

    ys, limits = hm.tensor(R.random((4, 3))), hm.tensor([0.0, 5.0, 50.0, 500.0], dtype="float64")
    traced = hm.trace(hm.vmap(fn))
    assert_close([traced(ys, limits)], [hm.vmap(fn)(ys, limits)])
    assert traced.ir.count("length=None") == 1


# -- ranges that data ends, and masks


def between(y: Any, ends: Any) -> Any:
    s = y.sum() * 0
    for k in range(ends[1], ends[4]):
        s = s * 0.9 + hm.sin(s + y[k]) * y[k]
    return s


def down(y: Any, ends: Any) -> Any:
    y = y.clone()
    for k in range(ends[4] - 1, ends[1] - 1, -1):
        y[k] = y[k] * 0.5 + 0.1
    return (y * y).sum()


def rows(y: Any, ends: Any) -> Any:
    s = y.sum() * 0
    for i in range(ends.shape[0] - 1):
        t = y[i] * 0
        for k in range(ends[i], ends[i + 1]):
            t = t + y[k] * hm.sin(y[k - 1])
        s = s * 0.5 + t * t
    return s


def left_between(y: Any, ends: Any) -> Any:
    s = y.sum() * 0
    for k in range(ends[1], ends[4]):
        s = s + hm.sin(y[k]) * y[k]
        if s > 0.7:
            break
    return s * s


def inner_number(y: Any, ends: Any) -> Any:
    s = y.sum() * 0
    for i in range(ends.shape[0] - 1):

        def part(x: Any, i: Any = i) -> Any:
            t: Any = 0.0
            for k in range(ends[i], ends[i + 1]):
                t = t + y[k]
            return t

        s = s * 0.5 + (hm.vmap(part)(y) ** 2).sum()
    return s


def masked(y: Any, ends: Any) -> Any:
    s = y.sum() * 0
    for k in range(20):
        s = s * 0.9 + (y[ends[:20] > 9] * k).sum()
    return s


def masked_by_each(y: Any, ends: Any) -> Any:
    s = y.sum() * 0
    for k in range(20):
        z = y + k * 0.1
        s = s * 0.9 + z[z > 0.5].sum()
    return s


def masked_by_each_in_parts(y: Any, ends: Any) -> Any:
    s = y.sum() * 0
    for _ in range(20):
        z = y[ends[:20] > 9]
        s = s * 0.9 + z[z > 0.5].sum()
    return s


WITH_ENDS: dict[str, Callable[..., Any]] = {
    "jvp": lambda f: lambda y, ends: hm.jvp(lambda y: f(y, ends), (y,), (hm.cos(y),)),
    "vmap": lambda f: lambda y, ends: hm.vmap(lambda y: f(y, ends))(y * COLUMN(y)),
    "vmap all": lambda f: lambda y, ends: hm.vmap(f)(y * COLUMN(y), hm.stack([ends] * 3)),
    "vmap grad": lambda f: lambda y, ends: hm.vmap(hm.grad(lambda y: f(y, ends)))(y * COLUMN(y)),
    "grad vmap": lambda f: hm.grad(lambda y, ends: hm.vmap(lambda y: f(y, ends))(y * COLUMN(y)).sum()),
    "grad jvp": lambda f: hm.grad(lambda y, ends: hm.jvp(lambda y: f(y, ends), (y,), (hm.cos(y),))[1]),
}


@pytest.mark.parametrize("form", WITH_ENDS)
@pytest.mark.parametrize(
    "fn", [between, down, rows, left_between, inner_number, masked, masked_by_each, masked_by_each_in_parts]
)
def test_ranges_of_data_and_masks(fn: Any, form: str) -> None:
    y, r = hm.asarray(R.random(20)), np.random.default_rng(1)
    transformed = WITH_ENDS[form](fn)
    traced = hm.trace(transformed)
    for most in (20, 18, 40):  # 40: beyond the array, at last
        ends = hm.asarray(np.sort(r.integers(0, most, 21)))
        found = []
        for style in (transformed, traced):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    found.append(leaves(style(y, ends)))
                except (hm.HybridmlError, TypeError) as error:
                    found.append([type(error)])
        for a, b in zip(*found, strict=True):
            assert (a is b) if isinstance(a, type) else np.allclose(np.asarray(a), np.asarray(b), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("form", ["jvp", "vmap", "vmap grad", "grad vmap", "grad jvp"])
@pytest.mark.parametrize("fn", [between, masked])
def test_ranges_of_data_are_loops(fn: Any, form: str) -> None:
    y, ends = hm.asarray(R.random(20)), hm.asarray(np.arange(21))
    traced = hm.trace(WITH_ENDS[form](fn), strict=True)
    traced(y, ends)
    assert " loop(" in traced.ir and len(traced.ir.splitlines()) < 200
