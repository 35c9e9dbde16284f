"""Control flow and what is around it: loops in loops, modules of code, and what a body does to Python."""

from __future__ import annotations

import itertools
import random
import secrets
import time
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml.tracing.specialize.errors import TraceWarning
from hybridml_compiler.errors import GradientError, TraceError
from hybridml_compiler.runtime import cache


def tensors(result: Any) -> list[hm.Tensor]:
    return [leaf for leaf in hm.tree_leaves(result) if isinstance(leaf, hm.Tensor)]


def same(expected: Any, found: Any) -> None:
    for e, f in zip(tensors(expected), tensors(found), strict=True):
        np.testing.assert_allclose(f.detach(), e.detach(), rtol=1e-6)


def test_loops_and_branches_compile_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several modules in one call of LLVM: each exports its own name, and keeps the functions of its bodies."""
    monkeypatch.setattr(cache, "get", lambda name: None)
    monkeypatch.setattr(cache, "put", lambda name, data: None)

    def loops(x: hm.Tensor) -> Any:
        doubled = hm.fori_loop(0, 5, lambda i, c: c * 2 + i, x)
        total = hm.fori_loop(0, 3, lambda i, c: c + x[i], 0.0)
        return doubled, total, hm.cond(total > 0, lambda c: c * 3, hm.exp, x), hm.map(lambda row: row * 4, x)

    x = hm.tensor([1.0, 2.0, 3.0])
    assert [t.tolist() for t in hm.trace(loops)(x)] == [t.tolist() for t in loops(x)]


def test_loops_of_unknown_length_in_others() -> None:
    """What has no gradient when traced is an error where the gradient is asked for, and not before."""
    w = hm.tensor([0.5, 0.25], requires_grad=True)

    def until(c: hm.Tensor) -> hm.Tensor:
        return hm.while_loop(lambda v: v.sum() < 3, lambda v: v + w * w, c)

    def scanned(x: hm.Tensor) -> Any:
        return hm.scan(lambda c, t: (until(c), c * t), x[0], x)

    def chosen(x: hm.Tensor) -> Any:
        return hm.cond(x.sum() > 0, lambda c: until(c), lambda c: c - 1, x[0])

    def repeated(x: hm.Tensor) -> Any:
        return hm.while_loop(lambda v: v.sum() < 30, lambda v: until(v) * 2, x[0])

    for fn in (scanned, chosen, repeated):
        for wants in (False, True):
            x = hm.tensor([[0.5, 0.25], [0.75, 1.0], [1.0, 2.0]], requires_grad=wants)
            expected, found = fn(x), hm.trace(fn)(x)
            same(expected, found)
            assert all(t.requires_grad for t in tensors(found))
            with pytest.raises(GradientError, match=r"while_loop: .* pass max_steps"):
                sum(t.sum() for t in tensors(found)).backward()
            with hm.no_grad():
                same(expected, hm.trace(fn)(x))
    unbounded = hm.trace(
        lambda x: hm.scan(lambda c, t: (hm.while_loop(lambda v: v.sum() < 3, lambda v: v + 1, c), t), x[0], x)
    )
    assert unbounded(hm.zeros((3, 2)))[0].tolist() == [2, 2]


@pytest.mark.parametrize("kind", ["scan", "while_loop", "cond", "fori_loop", "map"])
def test_what_a_body_changes_in_python_is_changed_each_time_it_runs(kind: str) -> None:
    log = types.SimpleNamespace(steps=0)

    def run(x: hm.Tensor) -> Any:
        own: list[int] = []

        def changes(value: Any) -> Any:
            own.append(1)
            log.steps += 1
            return value * 2

        operations: dict[str, Callable[[], Any]] = {
            "scan": lambda: hm.scan(lambda c, t: (changes(c) + t, None), x[0], x)[0],
            "while_loop": lambda: hm.while_loop(lambda c: c.sum() < 100, changes, x[0]),
            "cond": lambda: hm.cond(x.sum() > 0, changes, lambda c: c, x[0]),
            "fori_loop": lambda: hm.fori_loop(0, 3, lambda i, c: changes(c) + i, x[0]),
            "map": lambda: hm.map(changes, x),
        }
        return operations[kind](), len(own)

    xs = [hm.ones((3, 2)), hm.full((3, 2), 2.0)]
    expected = [(run(x)[0].tolist(), run(x)[1]) for x in xs]
    steps, log.steps = log.steps, 0
    traced = hm.trace(run)
    with pytest.warns(TraceWarning, match=r"changes own \(test_control_around.*each time it runs"):
        found = [(traced(x)[0].tolist(), traced(x)[1]) for x in xs]
    assert found == expected and log.steps == steps
    with pytest.raises(TraceError, match="return the value instead"):
        hm.trace(run, strict=True)(xs[0])


def numbers() -> Iterator[float]:
    yield from map(float, range(90))


def reads() -> dict[str, Callable[[], Any]]:
    """What gives another value each time, by name; the pieces that hold it are made anew for each test."""
    items, listed, pairs = iter(range(90)), iter([*range(90)]), zip(range(90), range(90), strict=True)
    made, counted = numbers(), itertools.count(2)
    drawn, generator, system = random.Random(0), np.random.default_rng(0), random.SystemRandom()
    return {
        "an iterator": lambda: next(items),
        "an iterator of a list": lambda: next(listed),
        "a zip": lambda: next(pairs)[1],
        "a generator": lambda: next(made),
        "a count": lambda: next(counted),
        "a Random": lambda: drawn.random(),
        "a Generator": lambda: generator.random(),
        "a SystemRandom": lambda: system.random() * 0 + 1,
        "secrets": lambda: secrets.randbelow(9) * 0 + 1,
        "random": lambda: random.random(),
        "np.random": lambda: np.random.rand(),
        "a clock": lambda: time.time() * 0 + 1,
    }


@pytest.mark.parametrize("kind", reads())
def test_what_gives_another_value_each_time_runs_eagerly_from_the_first_call(kind: str) -> None:
    def results(style: Callable[..., Any], **options: Any) -> list[Any]:
        random.seed(3), np.random.seed(3)
        read = reads()[kind]

        def body(carry: hm.Tensor, x: hm.Tensor) -> Any:
            return carry + x * read(), None

        f = style(lambda x: hm.scan(body, hm.zeros(2), x)[0], **options)
        return [f(hm.ones((3, 2))).tolist() for _ in range(3)]

    expected = results(lambda fn: fn)
    with pytest.warns(TraceWarning, match="the body of scan .*once and not each time it runs") as said:
        assert results(hm.trace) == expected
    assert len(said) == 1
    with pytest.raises(TraceError, match="the body of scan"):
        results(hm.trace, strict=True)


def test_items_that_cannot_be_set_back_are_an_error() -> None:
    made = numbers()

    def body(carry: hm.Tensor, x: hm.Tensor) -> Any:
        for item in made:
            return carry + x * item, None

    with pytest.raises(TraceError, match="goes through made when it is captured"):
        hm.trace(lambda x: hm.scan(body, hm.zeros(2), x)[0])(hm.ones((3, 2)))

    def local(carry: hm.Tensor, x: hm.Tensor) -> Any:
        return carry + x * next(iter([2.0])), None

    x = hm.ones((3, 2))
    assert hm.trace(lambda x: hm.scan(local, hm.zeros(2), x)[0], strict=True)(x).tolist() == [6, 6]


def test_a_body_that_runs_eagerly_is_captured_once() -> None:
    items, captures = iter([*range(90)]), np.zeros(1, object)

    def run(x: hm.Tensor, n: int) -> hm.Tensor:
        captures[0] += not isinstance(x._array, np.ndarray)
        return hm.scan(lambda c, t: (c + t * next(items) * n, None), hm.zeros(2), x)[0]

    f = hm.trace(run)
    with pytest.warns(TraceWarning, match="changes items"):
        f(hm.ones((3, 2)), 2)
    before = captures[0]
    f(hm.ones((3, 2)), 2), f(hm.ones((3, 2)), 2)
    assert captures[0] == before


def test_gradients_of_a_scan_without_steps() -> None:
    w = hm.tensor([2.0, 3.0], requires_grad=True)

    def run(c: hm.Tensor, x: hm.Tensor) -> Any:
        return hm.scan(lambda c, t: (c * t * w, c + t), c, x)

    def gradients(f: Callable[..., Any], loss: Callable[..., hm.Tensor]) -> list[Any]:
        c, x = hm.tensor([1.0, 2.0], requires_grad=True), hm.zeros((0, 2), requires_grad=True)
        return [g.tolist() for g in hm.autograd.grad(loss(*f(c, x)), [c, x, w])]

    losses: list[Callable[..., hm.Tensor]] = [
        lambda c, ys: c.sum(), lambda c, ys: ys.sum(), lambda c, ys: (c * c).sum() + ys.sum(),
    ]  # fmt: skip
    for loss, expected in zip(losses, ([1, 1], [0, 0], [2, 4]), strict=True):
        assert gradients(run, loss) == gradients(hm.trace(run), loss) == [expected, [], [0, 0]]


def test_a_branch_gives_tensors() -> None:
    def run(x: hm.Tensor) -> Any:
        return hm.cond(x.sum() > 0, lambda: (1.0, [2, None]), lambda: (3.0, [4, None])), hm.cond(True, lambda: 5, dict)

    for f in (run, hm.trace(run)):
        (number, (whole, none)), five = f(hm.ones(2))
        assert [(t.shape, t.dtype.name, t.item()) for t in (number, whole, five)] == [
            ((), "float32", 1.0), ((), "int64", 2), ((), "int64", 5),
        ]  # fmt: skip
        assert none is None
