"""Memory as eager code has it: which results are views of what, and in which order their axes lie."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import hybridml as hm
from tests.support.examples import examples

X = np.arange(12.0).reshape(3, 4)


def _then(view: Callable[[Any], Any], make: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A result, and a view of it (or a copy: that is the question) that is written to."""

    def program(x: Any) -> Any:
        made = make(x)
        part = view(made)
        part += 100
        return made, part

    return program


RESULTS: dict[str, Callable[[Any], Any]] = {
    "transposed": lambda x: x.T * 2,
    "sum": lambda x: x.T + 1 + x.T,
    "mixed": lambda x: x.T + x.reshape(4, 3),
    "exp": lambda x: hm.exp(x.T) * 0 + x.T,
    "where": lambda x: hm.where(x.T > 3, x.T, 0.0),
    "clone": lambda x: x.T.clone(),
    "astype": lambda x: x.T.astype("float32"),
    "concat": lambda x: hm.concat([x.T, x.T]),
    "stack": lambda x: hm.stack([x.T, x.T], axis=2),
    "cumulative": lambda x: hm.cumulative_sum(x.T, axis=0),
    "reduced": lambda x: x.reshape(3, 2, 2).permute_dims((2, 0, 1)).sum(axis=0),
    "maximum": lambda x: x.reshape(3, 2, 2).permute_dims((1, 2, 0)).max(axis=1),
    "product": lambda x: x.T @ x,
    "taken": lambda x: x.T[[0, 1]],
    "strided": lambda x: -x[::-1, ::2].T,
    "outer": lambda x: x.T[None] + x.T[:, None],
    "broadcast": lambda x: hm.broadcast_to(x[0], (3, 4)) * 1,
    "zeros": lambda x: hm.zeros_like(x.T),
    "at": lambda x: x.T.at[0].set(1.0),
    "scattered": lambda x: x.T.at[[0, 0]].add(1.0),
    "argument": lambda x: x,
    "view": lambda x: x[1:].T,
    "updated": lambda x: _updated(x.T * 2),
    "detached": lambda x: x.detach(),
}
VIEWS: dict[str, Callable[[Any], Any]] = {
    "flat": lambda t: t.reshape(-1),
    "flat of T": lambda t: t.permute_dims(tuple(reversed(range(t.ndim)))).reshape(-1),
    "first": lambda t: t[0],
    "flipped": lambda t: hm.flip(t, axis=0)[1:],
    "none": lambda t: t[..., None].squeeze(-1),
}


def _updated(t: Any) -> Any:
    t[0] = 5
    return t


@pytest.mark.parametrize(("make", "view"), [*itertools.product(RESULTS, VIEWS)])
def test_results_lie_as_in_eager_code(make: str, view: str) -> None:
    program = _then(VIEWS[view], RESULTS[make])
    outcomes = []
    for fn in (program, hm.trace(program, backend="interpret")):
        x = hm.tensor(X)
        results = [*fn(x), x]
        arrays = [t.numpy() for t in results]
        shared = [np.shares_memory(a, b) for a, b in itertools.combinations(arrays, 2)]
        outcomes.append(([a.tolist() for a in arrays], shared, [a.strides for a in arrays]))
        results[1] -= 50  # and stay so
        outcomes[-1] += ([t.tolist() for t in results],)
    assert outcomes[0] == outcomes[1]


def test_views_of_captured_tensors_and_of_their_history() -> None:
    state = hm.tensor(X)

    @hm.trace(backend="interpret")
    def program() -> Any:
        state[0] = 7
        return state.T, state[1:]

    for _ in range(3):
        turned, part = program()
        part[0] = -1
        assert state[1].tolist() == [-1.0] * 4 and turned[0, 1].item() == -1
        state[1] = 0

    w = hm.tensor(X, requires_grad=True)
    split = hm.trace(lambda w: ((y := w * 2)[0], y[1:]), backend="interpret")
    for _ in range(3):
        a, b = split(w)
        w.grad = None
        (a.sum() + (b * b).sum()).backward()
        want = 8 * X
        want[0] = 2
        np.testing.assert_array_equal(w.grad, want)
    with pytest.raises(hm.GradientError, match="overwritten in place"):
        a, b = split(w)
        loss = (b * b).sum()
        b += 1
        loss.backward()


def test_views_of_sizes_that_change() -> None:
    last = hm.trace(lambda x: (x[1:], x * 2), backend="interpret")
    for n in (3, 4, 5, 6, 5):
        x = hm.zeros((n,))
        part, _ = last(x)
        part += 1
        assert x.tolist() == [0.0, *[1.0] * (n - 1)]


def test_detached_tensors_share_memory() -> None:
    def program(x: Any) -> Any:
        d = x.detach()
        d += 1
        y = x * 2
        x *= 3
        return y, d * 1

    for fn in (program, hm.trace(program, backend="interpret")):
        x = hm.tensor([1.0, 2.0])
        assert [t.tolist() for t in fn(x)] == [[4, 6], [6, 9]] and x.tolist() == [6, 9]


@pytest.mark.parametrize("trace", [lambda fn: fn, lambda fn: hm.trace(fn, backend="interpret")])
def test_broadcast_views_are_read_only(trace: Any) -> None:
    def program(x: Any) -> Any:
        wide = hm.broadcast_to(x[0], (3, 4))
        wide[1] += 1
        return wide

    with pytest.raises(hm.ShapeError, match="this tensor is read-only"):
        trace(program)(hm.tensor(X))


@pytest.mark.parametrize("views", [(lambda b: b, lambda b: b[1:]), (lambda b: b[:2], lambda b: b[1:])])
def test_arguments_that_overlap_run_eagerly_and_say_so(views: Any) -> None:
    def program(x: Any, y: Any) -> Any:
        x += 1
        y *= 2
        return x.sum() + y.sum()

    want, got = hm.tensor(X), hm.tensor(X)
    traced = hm.trace(program, backend="interpret")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for _ in range(2):
            assert traced(*(v(got) for v in views)).item() == program(*(v(want) for v in views)).item()
    assert got.tolist() == want.tolist()
    assert len(said) == 1 and "shares memory with" in str(said[0].message)


# -- a value that was overwritten


def _exp(w: Any, x: Any) -> Any:
    y = hm.exp(w * x)  # kept: result
    y += 1  # overwritten: result
    return y.sum()


def _square(w: Any, x: Any) -> Any:
    z = w * 1
    s = (z * z).sum()  # kept: inner
    z[0] = 5  # overwritten: inner
    return s


def _argument(w: Any, x: Any) -> Any:
    s = (w * x).sum()  # kept: argument
    x[[0]] *= 2  # overwritten: argument
    return s


@pytest.mark.parametrize(("fn", "what"), [(_exp, "result"), (_square, "inner"), (_argument, "argument")])
@pytest.mark.parametrize("style", ["eager", "traced", "whole step traced"])
def test_both_lines_of_a_value_that_was_overwritten(fn: Any, what: str, style: str) -> None:
    def step(w: Any, x: Any) -> None:
        (hm.trace(fn, backend="interpret") if style == "traced" else fn)(w, x).backward()

    run = hm.trace(step, backend="interpret") if style == "whole step traced" else step
    with pytest.raises(hm.GradientError, match="overwritten in place after it was kept") as caught:
        run(hm.tensor([1.0, 2.0], requires_grad=True), hm.tensor([3.0, 4.0]))
    lines = str(caught.value).splitlines()
    assert lines[1].strip().startswith("it was kept at test_trace_layouts.py") and lines[1].endswith(f"# kept: {what}")
    assert lines[2].strip().startswith("it was overwritten at test_") and lines[2].endswith(f"# overwritten: {what}")


def test_a_value_that_a_call_keeps_and_a_composite_overwrites() -> None:
    w, x = hm.tensor([1.0, 2.0], requires_grad=True), hm.tensor([3.0, 4.0])
    fn = hm.trace(lambda w, x: (w * x).sum(), backend="interpret")
    s = fn(w, x)  # the call
    hm.nn.init.zeros_(x)  # the composite
    with pytest.raises(hm.GradientError) as caught:
        s.backward()
    lines = str(caught.value).splitlines()
    assert lines[1].endswith("# the call") and lines[2].endswith("# the composite")


# -- random programs against NumPy


@st.composite
def programs(draw: Any) -> list[tuple[Any, ...]]:
    """Instructions over a growing list of arrays, the first two of them arguments."""
    made = [np.zeros((3, 4)), np.zeros((4,))]
    steps: list[tuple[Any, ...]] = []
    for _ in range(draw(st.integers(2, 9))):
        k = draw(st.integers(0, len(made) - 1))
        shape = made[k].shape
        n = shape[0]
        kind = draw(st.sampled_from(["view", "turn", "flat", "fresh", "outer", "write", "add", "pick", "mask", "put"]))
        if not n and kind in ("write", "put", "pick"):
            continue  # there is nothing to name
        if kind == "view":
            key = draw(st.sampled_from([0, -1, slice(1, None), slice(None, None, -1), (None, ...), (..., 0)]))
            step = ("view", k, key)
        elif kind == "outer":
            step = ("outer", k, draw(st.integers(0, len(made) - 1)))
        elif kind in ("write", "put", "pick"):
            where = draw(st.lists(st.integers(-n, n - 1), min_size=1, max_size=3))
            step = (kind, k, where if kind != "write" else draw(st.sampled_from([0, slice(None, None, 2), ...])))
        else:
            step = (kind, k)
        trial = [a.copy() for a in made]
        try:
            run_step(step, trial, np.where)
        except (IndexError, ValueError):
            continue
        if len(trial) > len(made):
            if trial[-1].ndim == 0 or trial[-1].ndim > 3:
                continue
            made.append(trial[-1])
        steps.append(step)
    return steps


def run_step(step: tuple[Any, ...], xs: list[Any], where: Any) -> None:
    match step:
        case ("view", k, key):
            xs.append(xs[k][key])
        case ("turn", k):
            xs.append(xs[k].transpose(tuple(reversed(range(xs[k].ndim)))))
        case ("flat", k):
            xs.append(xs[k].reshape(-1))
        case ("fresh", k):
            xs.append(xs[k] * 2 - 1)
        case ("outer", k, j):
            xs.append(xs[k] + xs[j])
        case ("pick", k, at):
            xs.append(xs[k][at])
        case ("write", k, key):
            xs[k][key] = 3
        case ("put", k, at):
            xs[k][at] += 2
        case ("add", k):
            xs[k] += 1
        case ("mask", k):
            xs[k][xs[k] > 4] = -2


@examples(150, deadline=None)
@given(steps=programs())
@example(steps=[("turn", 0), ("view", 0, 0), ("write", 0, ...), ("fresh", 2), ("flat", 3)])
def test_random_programs(steps: list[tuple[Any, ...]]) -> None:
    """NumPy, eager and traced: the same values, the same memory shared, and still so when results are written to."""

    def program(x: Any, y: Any) -> Any:
        xs = [x, y]
        for step in steps:
            run_step(step, xs, hm.where)
        return xs

    def observed(fn: Any, make: Any) -> Any:
        xs = fn(make(X * 1), make(X[0] + 2))
        arrays = [np.asarray(x) for x in xs]
        shared = [np.shares_memory(a, b) for a, b in itertools.combinations(arrays, 2)]
        values = [a.tolist() for a in arrays]
        for x in xs:
            x += 7
        return values, shared, [np.asarray(x).tolist() for x in xs]

    want = observed(program, np.array)
    assert observed(program, hm.tensor) == want
    assert observed(hm.trace(program, backend="interpret"), hm.tensor) == want


@pytest.mark.parametrize("write", [lambda x: 3.0, lambda x: hm.ones((4, 3)).mT])
def test_what_is_written_whole_lies_where_it_lay(write: Callable[[hm.Tensor], Any]) -> None:
    def program(x: hm.Tensor) -> tuple[hm.Tensor, ...]:
        turned = x.mT
        x[...] = write(x)
        return turned * 2 - 1, x * 2, (turned + 1).reshape(-1)

    results = [fn(hm.ones((3, 4))) for fn in (program, hm.trace(program, backend="interpret"))]
    assert [np.asarray(a).strides for a in results[0]] == [np.asarray(a).strides for a in results[1]]


@pytest.mark.parametrize("padding", [0, 1])
def test_windows_of_what_lies_channels_last(padding: int) -> None:
    def pooled(x: hm.Tensor) -> hm.Tensor:
        y = hm.functional.max_pool2d(x.permute(0, 3, 1, 2) + 1, 3, 2, padding)
        flat = y.reshape(-1)
        flat += 1
        return y

    x = hm.arange(2.0 * 7 * 9 * 3).reshape(2, 7, 9, 3)
    eager, traced = pooled(x), hm.trace(pooled)(x)
    assert np.array_equal(np.asarray(eager), np.asarray(traced))
    assert np.asarray(eager).strides == np.asarray(traced).strides


def test_arrays_in_the_other_byte_order() -> None:
    """They are converted, as eager code does: given, captured, as an index, in gradients, call after call."""
    x, other = hm.ones((2, 3)), np.arange(6, dtype=np.dtype("f4").newbyteorder()).reshape(2, 3)
    places, number = np.array([2, 0], np.dtype("i8").newbyteorder()), np.array(2.0, np.dtype("f8").newbyteorder())
    programs: list[tuple[Any, tuple[Any, ...]]] = [
        (lambda a: x + a, (other,)),
        (lambda a: hm.asarray(a) * 2, (other[::-1],)),
        (lambda: x * other, ()),
        (lambda i: x[:, i], (places,)),
        (lambda a: x * a, (number,)),
        (lambda a: hm.grad(lambda t: (t * a).sum())(x), (other,)),
        (lambda a: hm.grad(hm.trace(lambda t: (t * a).sum()))(x), (other,)),
    ]
    for program, args in programs:
        traced = hm.trace(program)
        for _ in range(4):
            found = traced(*args)
            assert found.dtype.isnative and found.tolist() == program(*args).tolist()
    same = hm.trace(lambda a: a)(other)
    assert same is other
