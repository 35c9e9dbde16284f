"""What raises in eager code raises traced, whatever becomes of the result: unused, multiplied by zero, cut away."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml_compiler.errors import DTypeError, HybridmlError
from hybridml_compiler.graph import ir
from hybridml_compiler.ops.op import ErrorSample, Op
from hybridml_compiler.ops.table import OPS

Call = Callable[..., Any]


def _known_by_values(op: Op, sample: ErrorSample) -> bool:
    """True for an error of the values, and not of shapes, dtypes or parameters."""
    try:
        ir.apply(op, [ir.constant(np.asarray(a)) for a in sample.args], sample.params)
    except Exception:
        return False
    return sample.error is not DTypeError  # of a dtype that the row does not take, which is no matter of the graph


SAMPLES = [
    pytest.param(op, sample, id=f"{op.name}-{k}")
    for op in OPS.values()
    if not op.variadic
    for k, sample in enumerate(op.error_samples())
    if _known_by_values(op, sample)
]


def _first(result: Any) -> Any:
    return result[0] if isinstance(result, tuple) else result


def unused(call: Call, one: Any, *args: Any) -> Any:
    call(*args)
    return one + 1


def times_zero(call: Call, one: Any, *args: Any) -> Any:
    return _first(call(*args)).astype(hm.int32) * 0


def cut_away(call: Call, one: Any, *args: Any) -> Any:
    return _first(call(*args)).reshape(-1)[:0]


def mostly_cut_away(call: Call, one: Any, *args: Any) -> Any:
    return _first(call(*args)).reshape(-1)[:1]


def masked(call: Call, one: Any, *args: Any) -> Any:
    return hm.where(one > 5, _first(call(*args)), 0)


def masked_for_ever(call: Call, one: Any, *args: Any) -> Any:
    found = _first(call(*args)).reshape(-1)
    return hm.where(hm.arange(found.shape[0]) < 0, found, 0)


def compared(call: Call, one: Any, *args: Any) -> Any:
    return _first(call(*args)) == 7


def beside_a_gradient(call: Call, one: Any, *args: Any) -> Any:
    def loss(x: Any) -> Any:
        call(*args)
        return (x * x).sum()

    return hm.vjp(loss, one)[1](hm.tensor(1.0))


def in_every_step(call: Call, one: Any, *args: Any) -> Any:
    def step(carry: Any, x: Any) -> Any:
        call(*args)
        return carry + x, x

    return hm.scan(step, one, hm.ones(3))[0]


def in_a_branch(call: Call, one: Any, *args: Any) -> Any:
    return hm.cond(one > 0, lambda: (call(*args), one)[1], lambda: one * 2)


def before_a_question(call: Call, one: Any, *args: Any) -> Any:
    call(*args)
    return one * 2 if one > 0 else one


WAYS = [
    unused, times_zero, cut_away, mostly_cut_away, masked, masked_for_ever, compared, beside_a_gradient, in_every_step,
    in_a_branch, before_a_question,
]  # fmt: skip


def _error(fn: Callable[[], Any]) -> tuple[type, str]:
    with pytest.raises((HybridmlError, np.linalg.LinAlgError)) as caught:
        fn()
    return caught.type, str(caught.value)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize(("op", "sample"), SAMPLES)
def test_an_error_of_the_values_is_raised(op: Op, sample: ErrorSample, way: Callable[..., Any]) -> None:
    args = [hm.tensor(np.asarray(a)) for a in sample.args]

    def program(one: Any, *args: Any) -> Any:
        return way(lambda *args: op.fn(*args, **sample.params), one, *args)

    traced = hm.trace(program)
    expected = _error(lambda: program(hm.tensor(1.0), *args))
    assert sample.match in expected[1]
    assert [_error(lambda: traced(hm.tensor(1.0), *args)) for _ in range(2)] == [expected] * 2


@pytest.mark.parametrize(
    "op", [op for op in OPS.values() if op.kind == "opaque" and not op.fails], ids=lambda op: op.name
)
def test_a_row_that_raises_says_so(op: Op) -> None:
    def spoiled(a: Any, value: float) -> Any:
        a = np.asarray(a)
        return np.full_like(a, value) if a.dtype.kind in "fc" else a

    for sample in op.samples(np.random.default_rng(0)):
        for value in (np.nan, np.inf, -np.inf, 0.0, -1.0):
            args = [spoiled(a, value) for a in (sample.args[0] if op.variadic else sample.args)]
            with np.errstate(all="ignore"):
                op.fn(args if op.variadic else args[0], *([] if op.variadic else args[1:]), **sample.params)


X, BAD = hm.ones(3), hm.tensor([0, 9])
LOOKUPS: dict[str, Callable[[Any], Any]] = {
    "a table of zeros": lambda i: hm.functional.embedding(i, hm.zeros((3, 2))),
    "ones": lambda i: hm.ones(3)[i],
    "rows that are all one": lambda i: hm.broadcast_to(X, (3, 3))[i],
    "positions, in a range that is known": lambda i: hm.arange(3)[i] < 10,
    "one class": lambda i: hm.functional.cross_entropy(hm.ones((2, 1)), i),
    "rows without elements": lambda i: hm.zeros((3, 0))[i],
    "complex numbers, cut": lambda i: hm.asarray(np.ones(3, complex))[i][:1],
    "what is padded and cut": lambda i: hm.pad(X[i], (1, 1))[1:2],
    "a branch that is known": lambda i: hm.cond(hm.tensor(True), lambda: (X[i], X)[1], lambda: X * 2),
    "slices of a loop": lambda i: hm.scan(lambda c, k: (c + 1, (X[k], c)[1]), X.sum(), i)[0],
    "results of a loop that nothing reads": lambda i: hm.scan(lambda c, x: (c + x, X[i] * x), X.sum(), X)[0],
    "the condition of a loop": lambda i: hm.while_loop(lambda c: (X[i], c < 5)[1], lambda c: c + 1, X.sum()),
    "an update of nothing": lambda i: hm.zeros((0,)).at[i].set(hm.ones(2)),
    "what a choice never takes": lambda i: hm.where(hm.zeros(1) > 1, X[i], 0.0),
    "a choice by a constant": lambda i: hm.where(hm.tensor([False]), X[i], 0.0),
    "a choice by a choice that is known": lambda i: hm.where(hm.where(X > 5, 0.0, 0.0)[:1] > 2, X[i], 0.0),
    "a mask that is known": lambda i: hm.where((hm.zeros(1) > 1) & (X[:1] > 0), X[i], 0.0),
    "the place of the only one": lambda i: hm.argmax(X[i][:, None], axis=1),
    "an imaginary part of real numbers": lambda i: hm.imag(X[i]),
    "integers that are numbers": lambda i: hm.isnan(hm.arange(3)[i]),
    "a remainder of one": lambda i: hm.arange(3)[i] % 1,
    "a power of one": lambda i: 1 ** hm.arange(3)[i],
    "a conjunction with nothing": lambda i: hm.logical_and(
        hm.asarray(np.ones(3, "c8"))[i], hm.full((1,), 0, dtype=hm.complex64)
    ),
    "a sum of nothing": lambda i: hm.zeros((3, 0))[i].sum(),
}


@pytest.mark.parametrize("name", LOOKUPS)
def test_an_index_out_of_range_is_seen(name: str) -> None:
    expected = _error(lambda: LOOKUPS[name](BAD))
    assert expected[0] is hm.OutOfBoundsError
    traced = hm.trace(LOOKUPS[name])
    assert [_error(lambda: traced(BAD)) for _ in range(2)] == [expected] * 2


def test_a_gradient_that_reads_an_index_again() -> None:
    def f(x: hm.Tensor, i: hm.Tensor) -> hm.Tensor:
        x[i]
        return (x * x).sum()

    expected = _error(lambda: hm.grad(f)(X, BAD))
    assert _error(lambda: hm.grad(hm.trace(f))(X, BAD)) == expected
    assert _error(lambda: hm.trace(hm.grad(f))(X, BAD)) == expected


def test_what_is_checked_anyway_has_no_check_of_its_own() -> None:
    """An embedding, a loss by classes, rows that are looked up twice: kernels as without an index."""
    table, logits, i = hm.ones((5, 4)), hm.ones((2, 5)), hm.tensor([0, 4])
    looked_up = hm.trace(lambda t, i: hm.tanh(hm.functional.embedding(i, t)) * 2)
    loss = hm.trace(lambda x, i: hm.functional.cross_entropy(x, i))
    twice = hm.trace(lambda t, i: (t[i] + 1.0, t[i][:1]))
    for fn, args in ((looked_up, (table, i)), (loss, (logits, i)), (twice, (table, i))):
        fn(*args)
        assert "check" not in fn.ir
    unused = hm.trace(lambda t, i: (t[i], t * 2)[1])
    unused(table, i)
    assert "check" in unused.ir


def test_updates_wait_for_checks() -> None:
    state = hm.ones(3)

    @hm.trace
    def step(i: hm.Tensor) -> None:
        X[i]
        state.mul_(2)

    step(hm.tensor([0]))
    assert state.tolist() == [2, 2, 2]
    with pytest.raises(hm.OutOfBoundsError):
        step(BAD)
    assert state.tolist() == [2, 2, 2]


def test_negative_counts_of_repeat_are_an_error_beside_those_that_are_not() -> None:
    repeat = hm.trace(lambda x, counts: hm.repeat(x, counts))
    for counts in ([1, 2, 0], [1, -1, 2], [2, 0, 1], [-1, 0, 0], [0, 0, 0], [1, -1, 0]):
        given = hm.arange(3), hm.tensor(counts)
        if min(counts) < 0:
            with pytest.raises(hm.ArgumentError, match="counts cannot be negative, got"):
                repeat(*given)
        else:
            assert repeat(*given).tolist() == hm.repeat(*given).tolist()


def test_an_error_of_the_function_is_shown_alone() -> None:
    """Without those of the attempt to trace it: a traceback of one screen, as eagerly."""

    @hm.trace
    def misspelt(x: Any) -> Any:
        return hm.no_such_function(x)

    @hm.trace
    def out_of_range(x: Any, i: int) -> Any:
        return x[i]

    def shown(call: Call) -> list[str]:
        with pytest.raises((AttributeError, IndexError)) as caught:
            call()
        errors: list[BaseException | None] = [caught.value]
        while errors[-1] is not None:
            errors.append(errors[-1].__cause__ or errors[-1].__context__)
        return [repr(error) for error in errors]

    x = hm.ones(2)
    assert shown(lambda: misspelt(x)) == shown(lambda: misspelt.__wrapped__(x))
    assert shown(lambda: out_of_range(x, 5)) == shown(lambda: out_of_range.__wrapped__(x, 5))
