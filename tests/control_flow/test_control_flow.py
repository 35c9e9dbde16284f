"""`cond`, `while_loop`, `scan`: the traced program is the eager one, in values, gradients of two orders, and errors."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hybridml as hm
from hybridml_compiler.errors import ArgumentError, DTypeError, GradientError, OutOfBoundsError, ShapeError, TraceError
from tests.support.examples import examples

BACKENDS = ("interpret", "llvm")


def values(*shapes: tuple[int, ...]) -> list[hm.Tensor]:
    rng = np.random.default_rng(len(shapes))
    return [hm.tensor(rng.standard_normal(shape), requires_grad=True) for shape in shapes]


def tensors(result: Any) -> list[hm.Tensor]:
    return [leaf for leaf in hm.tree_leaves(result) if isinstance(leaf, hm.Tensor)]


def loss(result: Any) -> hm.Tensor:
    return sum((t * t).sum() for t in tensors(result) if t.dtype.kind == "f")  # type: ignore[return-value]


def first(fn: Callable[..., Any], *args: hm.Tensor) -> Any:
    return hm.autograd.grad(loss(fn(*args)), args, allow_unused=True)


def second(fn: Callable[..., Any], *args: hm.Tensor) -> Any:
    found = hm.autograd.grad(loss(fn(*args)), args, create_graph=True, allow_unused=True)
    recorded = [g for g in found if g is not None and g.requires_grad]
    return hm.autograd.grad(sum((g * g).sum() for g in recorded), args, allow_unused=True)


def same(expected: Any, found: Any, tolerance: float = 1e-9) -> None:
    """None is a gradient of zeros."""
    for e, f in zip(expected, found, strict=True):
        e, f = (0.0 if t is None else t.detach().numpy() for t in (e, f))
        np.testing.assert_allclose(f + 0 * e, e + 0 * f, rtol=tolerance, atol=1e-12)


def check(fn: Callable[..., Any], *args: hm.Tensor, backends: tuple[str, ...] = BACKENDS) -> None:
    """Values and derivatives: of the traced function, and taken inside of one."""
    eager, derivatives = tensors(fn(*args)), [(derivative, derivative(fn, *args)) for derivative in (first, second)]
    for backend in backends:
        traced = hm.trace(fn, backend=backend)
        found = tensors(traced(*args))
        assert [t.dtype for t in eager] == [t.dtype for t in found]
        same(eager, found)
        for derivative, expected in derivatives[: 1 if backend == "interpret" else 2]:  # what is captured is the same
            same(expected, derivative(traced, *args), 1e-8)
            inside = hm.trace(lambda *xs, d=derivative: d(fn, *xs), backend=backend)
            same(expected, inside(*args), 1e-8)


def rnn(w: hm.Tensor, xs: hm.Tensor, h: hm.Tensor, **options: Any) -> Any:
    def step(h: hm.Tensor, x: hm.Tensor) -> Any:
        h = hm.tanh(h @ w + x)
        return h, {"state": h, "extra": (h * x).sum(), "nothing": None}

    return hm.scan(step, h, xs, **options)


@pytest.mark.parametrize(
    "options",
    [{}, {"reverse": True}, {"checkpoint": True}, {"checkpoint": 2}, {"unroll": 2, "reverse": True}, {"unroll": True}],
    ids=str,
)
def test_scan(options: dict[str, Any]) -> None:
    args = values((3, 3), (5, 2, 3), (2, 3))
    check(lambda *xs: rnn(*xs, **options), *args, backends=("llvm",) if options else BACKENDS)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_cond(sign: float) -> None:
    w, x = values((3, 3), (2, 3))
    positive = hm.tensor(sign)
    check(lambda w, x: hm.cond(positive > 0, lambda x: hm.tanh(x @ w), lambda x: hm.exp(x * 0.1) * 2, x), w, x)


def test_while_loop() -> None:
    (x,) = values((3,))
    check(lambda x: hm.while_loop(lambda c: (c * c).sum() < 100, lambda c: c * 1.5 + hm.sin(c), x, max_steps=30), x)
    (x,) = values((3,))
    check(lambda x: hm.while_loop(lambda c: (c * c).sum() < 100, lambda c: c * 1.5, x, max_steps=2), x)


def test_a_loop_ends_as_soon_as_its_condition_does_not_hold() -> None:
    seen = hm.zeros((), dtype="int64")

    def body(c: hm.Tensor) -> hm.Tensor:
        seen.add_(1)
        return c * 2

    traced = hm.trace(lambda x: hm.while_loop(lambda c: c < 100, body, x))
    assert traced(hm.tensor(3)).item() == 192 and seen.item() == 6
    assert traced(hm.tensor(300)).item() == 300 and seen.item() == 6
    assert traced.cache_info().entries == 1


def test_scan_in_cond_in_while() -> None:
    def program(x: hm.Tensor, w: hm.Tensor) -> Any:
        def inner(v: hm.Tensor) -> hm.Tensor:
            return hm.scan(lambda h, _: (hm.tanh(h @ w), None), v, None, 3)[0]

        def body(c: Any) -> Any:
            i, v = c
            return i + 1, hm.cond(i % 2 == 0, inner, lambda v: v * 1.1, v)

        return hm.while_loop(lambda c: c[0] < 5, body, (0, x), max_steps=7)[1]

    check(program, *values((2, 3), (3, 3)))


def test_a_body_that_updates_what_it_makes() -> None:
    def body(c: hm.Tensor) -> hm.Tensor:
        y = c * 0.5
        y += 1
        y[0] *= 0.5
        return y

    programs: list[Callable[[hm.Tensor], Any]] = [
        lambda x: hm.fori_loop(0, 5, lambda _, c: body(c), x),
        lambda x: hm.scan(lambda c, _: (body(c), body(c)), x, None, 5)[1],
        lambda x: hm.while_loop(lambda c: c[1] < 1.9, body, x),
        lambda x: hm.cond(x.sum() > 0, body, lambda c: c, x),
    ]
    x = hm.tensor([0.5, 0.25, 3.0])
    for program in programs:
        assert hm.trace(program)(x).tolist() == program(x).tolist()


def test_a_body_that_updates_a_tensor_from_outside() -> None:
    def program(x: hm.Tensor, w: hm.Tensor) -> Any:
        total = hm.zeros((3,), dtype="float64")

        def step(c: hm.Tensor, x: hm.Tensor) -> Any:
            total.add_(x * w)
            return c + total.sum(), total * 1

        c, ys = hm.scan(step, hm.zeros((), dtype="float64"), x)
        hm.cond(c > 0, lambda: total.mul_(2), lambda: total.mul_(3))
        return c, ys, total * 2

    check(program, *values((4, 3), (3,)))


@pytest.mark.parametrize("backend", BACKENDS)
def test_random_numbers_have_the_same_bits(backend: str) -> None:
    generator = hm.random.Generator(3)

    def program(x: hm.Tensor) -> Any:
        def step(c: hm.Tensor, x: hm.Tensor) -> Any:
            noisy = c + x * hm.random.normal(x.shape, generator=generator)
            return hm.cond(
                x.sum() > 2, lambda: noisy + hm.random.uniform((3,), generator=generator), lambda: noisy
            ), None

        return hm.scan(step, hm.zeros((3,)), x)[0]

    x = hm.tensor(np.arange(12, dtype="f4").reshape(4, 3) / 12)
    expected, state = program(x).tolist(), generator.state.tolist()
    generator.manual_seed(3)
    assert hm.trace(program, backend=backend)(x).tolist() == expected and generator.state.tolist() == state


def test_statistics_of_a_layer_inside_a_loop() -> None:
    layer = hm.nn.BatchNorm1d(3)
    x = hm.tensor(np.random.default_rng(0).standard_normal((4, 8, 3)).astype("f4"))

    def program(x: hm.Tensor) -> hm.Tensor:
        return hm.scan(lambda c, x: (c + layer(x).abs().sum(), None), hm.zeros(()), x)[0]

    expected = program(x).item(), layer.running_mean.numpy().copy()
    layer.running_mean.zero_()
    layer.running_var.fill_(1.0)
    assert hm.trace(program)(x).item() == pytest.approx(expected[0], rel=1e-5)
    np.testing.assert_allclose(layer.running_mean.numpy(), expected[1], rtol=1e-5)


def test_no_step() -> None:
    def program(xs: hm.Tensor) -> Any:
        return hm.scan(lambda c, x: (c + 1, {"double": x * 2, "flag": x[0] > 0}), hm.zeros((3,)), xs)

    xs = hm.zeros((0, 4))
    for fn in (program, hm.trace(program), hm.trace(program, backend="interpret")):
        carry, ys = fn(xs)
        assert carry.tolist() == [0, 0, 0] and ys["double"].shape == (0, 4) and ys["flag"].shape == (0,)
        assert ys["flag"].dtype == np.bool_


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int8", "int64", "uint32", "bool"])
def test_dtypes(dtype: str) -> None:
    xs = hm.tensor(np.arange(12).reshape(4, 3) % 2).astype(dtype)

    def program(xs: hm.Tensor) -> Any:
        return hm.scan(lambda c, x: (hm.where(x > 0, x, c), c), xs[0], xs)

    for e, f in zip(tensors(program(xs)), tensors(hm.trace(program)(xs)), strict=True):
        assert e.dtype == f.dtype and e.astype("float32").tolist() == f.astype("float32").tolist()


def test_what_follows() -> None:
    assert hm.trace(lambda x: hm.map(lambda row: row * 2, x))(hm.ones((2, 3))).tolist() == [[2.0] * 3] * 2
    traced = hm.trace(lambda n: hm.fori_loop(0, n, lambda i, v: v + i, hm.tensor(0)))
    assert traced(hm.tensor(5)).item() == 10 == hm.fori_loop(0, 5, lambda i, v: v + i, hm.tensor(0)).item()


def test_python_floats_are_values_of_the_loop() -> None:
    traced = hm.trace(lambda x, a: hm.scan(lambda c, x: (c * a + x.sum(), c), 0.5, x))
    x = hm.ones((4, 3))
    for a in (0.5, 0.25):
        expected = hm.scan(lambda c, x, a=a: (c * a + x.sum(), c), 0.5, x)
        same(tensors(expected), tensors(traced(x, a)), 1e-6)
    assert traced.cache_info().compiles == 1


ERRORS: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: hm.scan(lambda c, x: (c.astype("float64"), None), hm.zeros(3), None, 3), DTypeError, "carry is float32"),
    (
        lambda: hm.scan(lambda c, x: ({"a": [c["a"][0][:2]]}, None), {"a": [hm.zeros(3)]}, None, 3),
        ShapeError,
        "carry['a'][0] is float32 of shape (3,) before a step and float32 of shape (2,) after it",
    ),
    (lambda: hm.scan(lambda c, x: ({"b": c}, None), hm.zeros(3), None, 3), ArgumentError, "carry['b'] after"),
    (lambda: hm.scan(lambda c, x: c, hm.zeros(3), None, 3), ArgumentError, "f must return (carry, y), got Tensor"),
    (lambda: hm.scan(lambda c, x: (c.add_(1), None), hm.zeros(3), None, 3), ArgumentError, "in place"),
    (lambda: hm.scan(lambda c, x: (c, x.mul_(2)), hm.zeros(3), hm.ones((2, 3))), ArgumentError, "in place"),
    (
        lambda: hm.scan(lambda c, x: (c, None), hm.zeros(3), (hm.ones((2,)), hm.ones((3,)))),
        ShapeError,
        "xs[1] has shape (3,), which is 3 steps and not 2",
    ),
    (lambda: hm.scan(lambda c, x: (c, None), hm.zeros(3)), ArgumentError, "pass length"),
    (lambda: hm.scan(lambda c, x: (c, "y"), hm.zeros(3), None, 3), DTypeError, "y must be a tensor"),
    (lambda: hm.scan(lambda c, x: (c, None), hm.zeros(3), None, 3, unroll=0), ArgumentError, "unroll"),
    (lambda: hm.while_loop(lambda c: c > 0, lambda c: c, hm.zeros(3)), ShapeError, "one element, got shape (3,)"),
    (lambda: hm.while_loop(lambda c: c.sum() < 1, lambda c: c[0], hm.zeros(3)), ShapeError, "while_loop: carry is"),
    (lambda: hm.while_loop(lambda c: True, lambda c: c, hm.zeros(3), max_steps=-1), ArgumentError, "max_steps"),
    (lambda: hm.cond(hm.zeros(3), lambda: 1, lambda: 2), ShapeError, "pred must have one element"),
    (lambda: hm.cond("yes", lambda: 1, lambda: 2), DTypeError, "pred must be a bool"),
]


@pytest.mark.parametrize(("fn", "error", "words"), ERRORS, ids=[words for *_, words in ERRORS])
def test_errors_are_those_of_eager_code(fn: Callable[[], Any], error: type[Exception], words: str) -> None:
    found = []
    for style in (fn, hm.trace(fn)):
        with pytest.raises(error) as raised:
            style()
        found.append(str(raised.value).partition("\n")[0])
    assert words in found[0] and found[0] == found[1]


def test_errors_of_traced_programs() -> None:
    xs, w = hm.ones((4, 3)), hm.ones((3,), requires_grad=True)

    def leak(xs: hm.Tensor) -> hm.Tensor:
        kept = np.empty(1, object)  # what it holds is not watched: of a list, the call would run eagerly

        def step(c: hm.Tensor, x: hm.Tensor) -> Any:
            kept[0] = c
            return c + x, None

        hm.scan(step, hm.zeros(3), xs)
        return kept[0] * 2  # type: ignore[no-any-return]

    def branch(xs: hm.Tensor) -> Any:
        return hm.scan(lambda c, x: (c if x.sum() > 0 else -c, None), hm.zeros(3), xs)

    def backward(xs: hm.Tensor) -> Any:
        def step(c: hm.Tensor, x: hm.Tensor) -> Any:
            (w * x).sum().backward()
            return c, None

        return hm.scan(step, hm.zeros(3), xs)

    def draws(xs: hm.Tensor) -> Any:
        return hm.while_loop(lambda c: hm.random.uniform(()) < 0.5, lambda c: c, xs)

    def unlike(xs: hm.Tensor) -> Any:
        return hm.cond(xs.sum() > 0, lambda: {"a": xs}, lambda: {"a": xs[0]})

    for fn, error, words in (
        (leak, TraceError, "uses a value of the body of scan outside of it"),
        (branch, TraceError, "use hm.cond or hm.where"),
        (backward, TraceError, "sets .grad of a tensor from outside"),
    ):
        with warnings.catch_warnings(), pytest.raises(error) as raised:
            warnings.simplefilter("ignore")
            hm.trace(fn)(xs)
        assert words in str(raised.value), fn
    assert w.grad is None
    for fn, error, words in (  # eager code does these
        (draws, ArgumentError, "cond_fn updates a tensor or draws random numbers"),
        (unlike, ShapeError, r"true_fn and false_fn differ: result\['a'\] is float32 of shape \(4, 3\)"),
    ):
        with pytest.raises(error, match=words):
            hm.trace(fn, strict=True)(xs)
        with pytest.warns(UserWarning, match=f"{words}.*run eagerly"):
            hm.trace(fn)(xs)


def test_a_gradient_needs_a_bound() -> None:
    x = hm.ones((3,), requires_grad=True)
    traced = hm.trace(lambda x: hm.while_loop(lambda c: c.sum() < 100, lambda c: c * 2, x).sum())
    assert traced(x).item() == 192.0
    with pytest.raises(GradientError, match="pass max_steps"):
        hm.autograd.grad(traced(x), x)


def test_an_index_is_checked_in_every_step() -> None:
    table = hm.tensor([1.0, 2.0, 3.0])
    traced = hm.trace(lambda i: hm.scan(lambda c, k: (c + hm.take(table, k, axis=0), None), hm.zeros(()), i)[0])
    assert traced(hm.tensor([0, 1, 2])).item() == 6
    with pytest.raises(OutOfBoundsError, match="index 7 is out of range"):
        traced(hm.tensor([0, 7, 1]))
    assert traced(hm.tensor([2, 2, 2])).item() == 9


def test_what_does_not_vary_is_computed_once() -> None:
    w, xs = hm.ones((4, 4)), hm.ones((8, 2, 4))

    def program(w: hm.Tensor, xs: hm.Tensor) -> Any:
        return hm.scan(lambda c, x: (c @ (w @ w) + x, None), hm.ones((2, 4)), xs)[0]

    traced = hm.trace(program)
    same([program(w, xs)], [traced(w, xs)], 1e-5)
    body, _, main = traced.ir.partition("graph program")
    assert body.count("matmul") == 1 and main.count("matmul") == 1


def test_compile_time_and_kernels_do_not_depend_on_the_number_of_steps() -> None:
    w = hm.tensor(np.random.default_rng(0).standard_normal((4, 4)).astype("f4") / 4, requires_grad=True)

    def program(xs: hm.Tensor) -> Any:
        return hm.autograd.grad(loss(rnn(w, xs, hm.zeros((2, 4)))), [w])

    kernels = []
    for steps in (3, 300):
        traced = hm.trace(program)
        xs = hm.tensor(np.random.default_rng(1).standard_normal((steps, 2, 4)).astype("f4"))
        same(program(xs), traced(xs), 1e-3)
        kernels.append(traced.stats.kernels)
    assert kernels[0] == kernels[1] < 12


# -- random bodies

OPERATIONS: list[Callable[..., hm.Tensor]] = [
    lambda a, b, w: a + b,
    lambda a, b, w: a * hm.sigmoid(b),
    lambda a, b, w: hm.tanh(a @ w),
    lambda a, b, w: a - b.mean(),
    lambda a, b, w: hm.where(a > b, a, b * 0.5),
    lambda a, b, w: hm.flip(a, axis=1) * 0.7,
    lambda a, b, w: hm.sin(a) + w.sum(0),
    lambda a, b, w: hm.cond(a.sum() > b.sum() + 0.1, lambda: hm.tanh(a) * w[0], lambda: b * 0.9),
    lambda a, b, w: hm.scan(lambda c, x: (c * 0.5 + x, None), b[0], a)[0] + a,
    lambda a, b, w: hm.while_loop(lambda c: (c * c).sum() < 4, lambda c: c * 1.7 + 0.1, a, max_steps=4),
]


@examples(8)
@given(st.integers(0, 1 << 30), st.integers(1, 5), st.booleans())
def test_random_bodies(seed: int, length: int, reverse: bool) -> None:
    rng = np.random.default_rng(seed)
    chosen = [(int(rng.integers(len(OPERATIONS))), rng.integers(0, 4 + k, 2)) for k in range(5)]

    def program(w: hm.Tensor, xs: hm.Tensor, start: hm.Tensor) -> Any:
        def step(carry: Any, x: hm.Tensor) -> Any:
            known = [*carry, x, x * 0.5]
            for operation, (a, b) in chosen:
                known.append(OPERATIONS[operation](known[a], known[b], w))
            return (hm.tanh(known[-1]), known[-2] * 0.3), (known[-3], known[0].sum())

        return hm.scan(step, (start, hm.zeros_like(start)), xs, reverse=reverse)

    args = [hm.tensor(rng.standard_normal(s) * 0.5, requires_grad=True) for s in ((3, 3), (length, 2, 3), (2, 3))]
    for backend in BACKENDS:
        traced = hm.trace(program, backend=backend)
        same(tensors(program(*args)), tensors(traced(*args)))
        inside = hm.trace(lambda *xs: first(program, *xs), backend=backend)
        same(first(program, *args), inside(*args), 1e-7)


def test_a_gradient_of_what_a_carry_was_before_the_first_step() -> None:
    """No later step has a history of it."""
    xs = hm.tensor(np.arange(40.0).reshape(20, 2))
    start = hm.tensor([1.0, 2.0], dtype="float64", requires_grad=True)

    def scanned(start: hm.Tensor) -> Any:
        return hm.scan(lambda c, x: (x * 2, (c * c).sum()), start, xs)[1]

    def rolled(start: hm.Tensor) -> Any:
        c, found = start, []
        for k in range(20):
            found.append(c * c)
            c = xs[k]
        return hm.stack(found)

    for program, expected in ((scanned, [20.0, 40.0]), (rolled, [4.0, 32.0])):
        (found,) = hm.trace(lambda s, f=program: first(f, s), strict=True)(start)
        assert found.tolist() == first(program, start)[0].tolist() == expected


# -- the number of steps comes with the call


@pytest.mark.parametrize("options", [{}, {"reverse": True}, {"checkpoint": True}], ids=str)
def test_a_scan_of_any_length_is_one_program(options: dict[str, Any]) -> None:
    w = hm.tensor(np.random.default_rng(0).standard_normal((3, 3)) / 3, requires_grad=True)

    def program(xs: hm.Tensor) -> Any:
        result = rnn(w, xs, hm.zeros((2, 3), dtype="float64"), **options)
        return result, hm.autograd.grad(loss(result), w)

    traced = hm.trace(program)
    for steps in (3, 5, 12, 2, 7):
        xs = hm.tensor(np.random.default_rng(steps).standard_normal((steps, 2, 3)))
        same(tensors(program(xs)), tensors(traced(xs)), 1e-8)
    assert traced.cache_info().compiles == 2


@pytest.mark.parametrize("kind", [hm.nn.LSTM, hm.nn.GRU])
def test_recurrent_layers_train_on_sequences_of_any_length(kind: Any) -> None:
    losses = []
    for trace in (hm.trace, lambda fn: fn):
        hm.manual_seed(0)
        layer = kind(3, 4, bidirectional=True)
        optimizer = hm.optim.Adam(layer.parameters(), lr=0.01)

        def step(xs: hm.Tensor, layer: Any = layer, optimizer: Any = optimizer) -> hm.Tensor:
            optimizer.zero_grad()
            value = (layer(xs)[0] ** 2).mean()
            value.backward()
            optimizer.step()
            return value

        run = trace(step)
        sizes = (3, 6, 4, 9, 5)
        losses.append([run(hm.tensor(np.full((n, 2, 3), n / 9, "f4"))).item() for n in sizes])
        assert trace is not hm.trace or run.cache_info().compiles <= 3
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-4)


# -- what else a body may hold


class _TimesThree(hm.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: hm.Tensor) -> hm.Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, g: hm.Tensor) -> hm.Tensor:
        (x,) = ctx.saved_tensors
        return g * 3 * x


def test_histories_of_a_body_are_followed() -> None:
    def program(w: hm.Tensor, xs: hm.Tensor) -> Any:
        def step(h: hm.Tensor, x: hm.Tensor) -> Any:
            a = hm.tanh(h @ w + x)
            b = _TimesThree.apply(a) + a.detach() * h
            with hm.no_grad():
                c = a * 2
            return b * 0.3 + c * 0.1, (a.detach(), b)

        return hm.scan(step, hm.zeros((2, 3), dtype="float64"), xs)

    check(program, *values((3, 3), (4, 2, 3)), backends=("llvm",))


def test_gradients_inside_of_a_body() -> None:
    def program(w: hm.Tensor, xs: hm.Tensor) -> Any:
        def step(h: hm.Tensor, x: hm.Tensor) -> Any:
            own = h.detach().requires_grad_()
            (g,) = hm.autograd.grad((hm.sin(own @ w) * x).sum(), own, create_graph=True)
            return h * 0.5 + g, g.sum()

        return hm.scan(step, xs[0], xs)

    check(program, *values((3, 3), (4, 2, 3)), backends=("llvm",))


def test_jvp_of_a_loop() -> None:
    def program(w: hm.Tensor, xs: hm.Tensor, tangent: hm.Tensor) -> hm.Tensor:
        start = hm.zeros((2, 3), dtype="float64")
        return hm.jvp(lambda w: rnn(w, xs, start)[0], [w], [tangent])[1]

    args = values((3, 3), (4, 2, 3), (3, 3))
    same([program(*args)], [hm.trace(program)(*args)], 1e-8)


def test_a_loop_trains_a_layer() -> None:
    xs = hm.tensor(np.random.default_rng(0).standard_normal((20, 8, 3)).astype("f4"))
    found = []
    for style in (lambda fn: fn, hm.trace):
        hm.manual_seed(0)
        layer = hm.nn.Linear(3, 1)

        def program(xs: hm.Tensor, layer: Any = layer) -> hm.Tensor:
            def step(_: None, x: hm.Tensor) -> Any:
                loss = ((layer(x) - x.sum(1, keepdims=True)) ** 2).mean()
                gradients = hm.autograd.grad(loss, list(layer.parameters()))
                with hm.no_grad():
                    for parameter, g in zip(layer.parameters(), gradients, strict=True):
                        parameter.sub_(g * 0.1)
                return None, loss.detach()

            return hm.scan(step, None, xs)[1]

        losses = style(program)(xs)
        assert all(p.requires_grad and p.is_leaf for p in layer.parameters())
        found.append([losses.numpy(), *(p.detach().numpy() for p in layer.parameters())])
    assert found[0][0][-1] < 1e-3 * found[0][0][0]
    for e, f in zip(*found, strict=True):
        np.testing.assert_allclose(f, e, rtol=1e-4, atol=1e-6)


def test_the_text_of_a_loop() -> None:
    traced = hm.trace(lambda xs: hm.scan(lambda c, x: (c + x, None), hm.zeros(()), xs)[0], dynamic=False)
    traced(hm.ones((4,)))
    body, _, rest = traced.ir.partition("}\n")
    assert body.splitlines() == [
        'graph body0(%0 "the body of scan": f32[], %1 "the body of scan": f32[]) {',
        "  %2 = add(%0, %1) : f32[]",
        "  return %2",
    ]
    (line,) = (line for line in rest.splitlines() if "loop" in line)
    params = (
        "body=body0, carries=1, condition=None, consts=0, counted=0, first=2, length=4, parallel=False, result=0, "
        "reverse=False, step=None"
    )
    assert line == f"  %2 = loop(%1, %0) {{{params}}} : f32[]"
