"""Loops of `hm.kernel` in which each element takes its own number of steps: as Python's, fused, differentiated."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hybridml as hm
from hybridml.testing import Sample, check_op, gradcheck
from hybridml_compiler.aval import Aval
from hybridml_compiler.graph.digest import digest
from hybridml_compiler.graph.ir import Graph, apply, input_node


def escape(a: Any, b: Any) -> Any:
    """Steps of the Mandelbrot iteration until it leaves the circle."""
    x, y = 0.0, 0.0
    for n in range(100):
        if x * x + y * y > 4:
            return n
        x, y = x * x - y * y + a, 2 * x * y + b
    return 100


def newton(a: Any, b: Any) -> Any:
    g = a * a + 1
    while abs(g * g - (a * a + 2)) > 1e-12:
        g = (g + (a * a + 2) / g) / 2
    return g * b


def bisection(a: Any, b: Any) -> Any:
    """The root of t**3 + (|a| + 1) t = b."""
    low, high = -10.0, 10.0
    while high - low > 1e-9:
        middle = (low + high) / 2
        if middle**3 + (abs(a) + 1) * middle > b:
            high = middle
        else:
            low = middle
    return (low + high) / 2


def in_loops(a: Any, b: Any) -> Any:
    total = 0.0
    for i in range(7):
        j = 0
        while j < i:
            j += 1
            if total > 20 * abs(a) + 5:
                break
            if j % 3 == 2:
                continue
            total += a * a + j
        else:
            total = total + b / 8
    return total


def found_inside(a: Any, b: Any) -> Any:
    i = 0.0
    while i < 30:
        t = i
        while t < 100:
            if t * abs(a) + i * abs(b) > 40:
                return t + i
            t = t * 2 + 1
        i = i + 1.5
    return -1.0


def otherwise(a: Any, b: Any) -> Any:
    for k in range(100):
        a = a / 2
        if abs(a) < 0.01 and b > 0:
            a = a + k
            break
        if abs(a) < 1e-6:
            break
    else:
        return b
    return a * 3


def endless(a: Any, b: Any) -> Any:
    n = 0
    while True:
        n += 1
        a = a * 1.5 + 1
        if a > 50:
            return a + b
        if a < -50:
            break
        if n > 40:
            return n + b
    return -a


def guarded(a: Any, b: Any) -> Any:
    """Loops on ways that would have no end for other elements."""
    if a > 0:
        x = a
        while x < 10:
            x = x * 2
        return x
    if b > 0 and doubled(b) > 12:
        return doubled(b)
    y = -1.0 if b <= 0 else doubled(b)
    return y


def doubled(x: Any) -> Any:
    while x < 10:
        x = x * 2
    return x


def in_a_tuple(a: Any, b: Any) -> Any:
    p, flag = (a, b), False
    for k in range(80):
        if not flag:
            p = (p[0] / 2 + k, p[1] - p[0] / 100)
        flag = p[0] > 50
    return p[0] + p[1]


FLOATS = [escape, newton, bisection, in_loops, found_inside, otherwise, endless, guarded, in_a_tuple]


def collatz(a: Any, b: Any) -> Any:
    n, steps = abs(a) + 1, 0
    while n != 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1
    return steps


def common_divisor(a: Any, b: Any) -> Any:
    a, b = abs(a), abs(b)
    while b:
        a, b = b, a % b
    return a


def factorial(a: Any, b: Any) -> Any:
    total = 1
    for k in range(1, abs(a) % 10 + 1):
        total = total * k
    return total


def strided(a: Any, b: Any) -> Any:
    total = 0
    for k in range(a, b, 3):
        total += k
    for k in range(b, a, -2):
        total -= k
    for k in range(-3, 4, abs(a) % 4 + 1):
        total ^= k
    return total


INTEGERS = [collatz, common_divisor, factorial, strided]


def by_python(fn: Callable[..., Any], *arrays: np.ndarray) -> list[Any]:
    return [fn(*scalars) for scalars in zip(*[x.tolist() for x in arrays], strict=True)]


def fused(fn: Callable[..., Any]) -> tuple[Any, Any]:
    """A chain with the kernel in it, eager and traced."""

    def chain(a: hm.Tensor, b: hm.Tensor) -> hm.Tensor:
        return fn(a * 1, b) + 1

    return chain, hm.trace(chain)


@pytest.mark.parametrize("fn", FLOATS)
def test_it_computes_what_python_does_for_each_element(fn: Callable[..., Any]) -> None:
    a, b = np.random.default_rng(0).uniform(-2, 2, (2, 67))
    made = hm.kernel(fn)
    expected = np.array(by_python(fn, a, b))
    np.testing.assert_array_equal(made(a, b).numpy(), expected)
    eager, traced = fused(made)
    x, y = hm.tensor(a), hm.tensor(b)
    assert np.array_equal(eager(x, y).numpy(), expected + 1)
    assert np.array_equal(traced(x, y).numpy(), expected + 1)
    assert traced.stats.kernels == 1


@pytest.mark.parametrize("fn", INTEGERS)
@pytest.mark.parametrize("dtype", ["int64", "int16"])
def test_integers(fn: Callable[..., Any], dtype: str) -> None:
    a, b = np.random.default_rng(1).integers(-25, 25, (2, 70)).astype(dtype)
    expected = np.array(by_python(fn, a, b)).astype(dtype)
    eager, traced = fused(hm.kernel(fn))
    x, y = hm.tensor(a), hm.tensor(b)
    assert eager(x, y).dtype.name == dtype
    assert np.array_equal(eager(x, y).numpy(), expected + 1)
    assert np.array_equal(traced(x, y).numpy(), expected + 1)
    assert traced.stats.kernels == 1


@pytest.mark.parametrize("fn", [escape, found_inside, otherwise, endless])
def test_single_precision_is_numpys(fn: Callable[..., Any]) -> None:
    a, b = np.random.default_rng(2).uniform(-2, 2, (2, 40)).astype(np.float32)
    with np.errstate(all="ignore"):
        expected = np.array([fn(x, y) for x, y in zip(a, b, strict=True)])
    eager, traced = fused(hm.kernel(fn))
    found = eager(hm.tensor(a), hm.tensor(b))
    assert np.array_equal(found.numpy(), (expected + 1).astype(found.numpy().dtype))
    assert np.array_equal(traced(hm.tensor(a), hm.tensor(b)).numpy(), found.numpy())


@pytest.mark.parametrize("fn", [newton, found_inside])
def test_checks_of_the_table(fn: Callable[..., Any]) -> None:
    a, b = np.random.default_rng(3).uniform(0.2, 2, (2, 4, 5))
    check_op(hm.kernel(fn), [Sample((a, b))])


def test_a_program_is_named_by_what_is_read_from_the_source(monkeypatch: pytest.MonkeyPatch) -> None:
    """And not by the source alone: a release may read it in another way."""
    row, other = hm.kernel(escape).op, hm.kernel(newton).op
    x = input_node(Aval((3,), np.dtype("f8")))
    graph = Graph((x,), (apply(row, [x, x]),))
    before = digest(graph)
    assert digest(graph) == before
    monkeypatch.setattr(row, "body", other.body)
    assert digest(graph) != before


def test_variables_around_it_and_parameters() -> None:
    limit = 50

    @hm.kernel
    def steps(a: Any, b: Any, *, least: float = 0.0) -> Any:
        x, y, n = least, 0.0, 0
        while x * x + y * y <= 4 and n < limit:
            x, y = x * x - y * y + a, 2 * x * y + b
            n += 1
        return n

    a, b = hm.linspace(-2, 1, 7, dtype=hm.float64), hm.linspace(-1, 1, 5, dtype=hm.float64)[:, None]
    fn = hm.trace(lambda a, b: steps(a, b) + 1)
    for limit in (50, 3):  # noqa: B007
        found = steps(a, b)
        assert found.shape == (5, 7) and found.dtype == hm.int64
        assert found.tolist() == [[steps.__wrapped__(float(p), float(q)) for p in a] for q in b[:, 0]]
        assert fn(a, b).tolist() == (found + 1).tolist() and fn.stats.kernels == 1
    assert steps(a, b, least=3.0).tolist() == hm.zeros((5, 7)).tolist()


def test_large_arrays_are_compiled_eagerly() -> None:
    made = hm.kernel(escape)
    a, b = np.random.default_rng(4).uniform(-2, 2, (2, 3000))
    assert np.array_equal(made(a, b).numpy(), made.op.eager(a, b))
    x = hm.tensor(np.arange(1, 3000))
    assert hm.kernel(collatz)(x, x).tolist() == by_python(collatz, x.numpy(), x.numpy())


@pytest.mark.parametrize("size", [1, 7, 64, 1000])
def test_lanes_beyond_the_end_take_no_step(size: int) -> None:
    """Zero is no number of steps away from one: such a lane would never be done."""

    @hm.kernel
    def steps(n: Any) -> Any:
        k = 0
        while n != 1:
            n = n // 2 if n % 2 == 0 else 3 * n + 1
            k += 1
        return k

    x = np.arange(1, size + 1)
    expected = np.array(by_python(steps.__wrapped__, x))
    total = hm.trace(lambda x: steps(x).sum())
    padded = hm.trace(lambda x: steps(hm.pad(x, (1, 2), constant_values=1)))
    with hm.deadline(20):
        assert np.array_equal(steps(hm.tensor(x)).numpy(), expected)
        assert np.array_equal(hm.trace(lambda x: steps(x) * 1)(hm.tensor(x)).numpy(), expected)
        assert total(hm.tensor(x)).item() == expected.sum()
        assert padded(hm.tensor(x)).tolist() == [0, *expected, 0, 0]


def test_its_results_lie_as_numpys_do(monkeypatch: pytest.MonkeyPatch) -> None:
    made = hm.kernel(collatz)
    x = hm.tensor(np.arange(12).reshape(3, 4))
    small, large = made(x.mT, x.mT), made(hm.tile(x, (20, 20)).mT, hm.tile(x, (20, 20)).mT)
    assert small.numpy().strides[0] < small.numpy().strides[1]
    assert large.numpy().strides[0] < large.numpy().strides[1]

    def run(*_: Any) -> Any:
        raise AssertionError("a row of loops is run on numbers that nobody has")

    monkeypatch.setattr(made.op, "eager", run)
    found = hm.trace(lambda x: made(x.mT * 1, x.mT))(x)
    assert found.numpy().strides == small.numpy().strides and found.tolist() == small.tolist()


@pytest.mark.parametrize("device", ["reference", "cuda:sim"])
@pytest.mark.parametrize("fn", [escape, found_inside, guarded, common_divisor])
def test_other_devices_have_the_same_bits(device: str, fn: Callable[..., Any]) -> None:
    rng = np.random.default_rng(5)
    a, b = rng.uniform(-2, 2, (2, 35)) if fn in FLOATS else rng.integers(-25, 25, (2, 35))
    eager, traced = fused(hm.kernel(fn))
    expected = eager(hm.tensor(a), hm.tensor(b)).numpy()
    found = traced(hm.tensor(a, device=device), hm.tensor(b, device=device))
    assert np.array_equal(found.cpu().numpy(), expected)


def root(x: Any) -> Any:
    """The cube root, by so many steps as it takes."""
    g = x
    while abs(g * g * g - x) > 1e-13:
        g = (2 * g + x / (g * g)) / 3
    return g


def power(x: Any) -> Any:
    total = 1.0
    for k in range(70):
        if k > 4:
            break
        total = total * x
    return total


def test_derivatives_are_found() -> None:
    x = np.array([0.5, 1.3, 2.0, 8.0])
    made = hm.kernel(root)
    gradcheck(made, x, order=2)
    slope = hm.grad(lambda x: made(x).sum())
    np.testing.assert_allclose(slope(hm.tensor(x)).numpy(), x ** (-2 / 3) / 3, rtol=1e-9)
    assert np.array_equal(hm.trace(slope)(hm.tensor(x)).numpy(), slope(hm.tensor(x)).numpy())
    known = hm.kernel(root, derivative=lambda x: 7.0)
    assert hm.grad(lambda x: known(x).sum())(hm.tensor(x)).tolist() == [7.0] * 4


def test_derivatives_are_those_of_the_steps_written_out() -> None:
    x = hm.tensor([0.5, -1.5, 2.0], dtype=hm.float64)
    in_steps, written_out = hm.kernel(power), hm.kernel(lambda x: 1.0 * x * x * x * x * x)
    for order in range(4):
        fns = [in_steps, written_out]
        for _ in range(order):
            fns = [hm.grad(lambda x, fn=fn: fn(x).sum()) for fn in fns]
        assert fns[0](x).tolist() == fns[1](x).tolist()


def test_what_is_not_taken_has_no_part_in_a_derivative() -> None:
    @hm.kernel
    def safe(x: Any) -> Any:
        y = x
        while y > 0:
            y = y - math.log(y) - 2
        return y * x

    x = hm.tensor([-1.0, 0.0, 1.5])
    found = hm.grad(lambda x: safe(x).sum())(x)
    assert np.isfinite(found.numpy()).all() and found[:2].tolist() == [-2.0, 0.0]


def test_vmap_of_gradients() -> None:
    made = hm.kernel(root)
    x = hm.tensor(np.random.default_rng(6).uniform(0.5, 3, (3, 4)))
    per_sample = hm.vmap(hm.grad(lambda x: made(x).sum()))(x)
    assert np.array_equal(per_sample.numpy(), hm.grad(lambda x: made(x).sum())(x).numpy())


def test_half_precision_is_computed_in_single() -> None:
    made = hm.kernel(power)
    x = hm.tensor([0.5, -1.5, 2.0])
    for dtype in (hm.bfloat16, hm.float16):
        for fn in (made, hm.trace(lambda x: made(x) * 1)):
            assert fn(x.astype(dtype)).dtype == dtype
            assert fn(x.astype(dtype)).tolist() == made(x).astype(dtype).tolist()


TABLE = [1.0, 2.0, 3.0]


def test_a_deadline_ends_a_loop_in_both_styles() -> None:
    made = hm.kernel(endless)
    for fn in (made, hm.grad(lambda x: made(x).sum()), hm.trace(made)):
        with pytest.raises(TimeoutError), hm.deadline(0.05):
            fn(hm.ones(3))


def endless(x: Any) -> Any:
    while x > 0:
        x = x + 1 if x < 2 else x - 1
    return x


def changes_its_kind(x: Any) -> Any:
    while x < 100:
        x = x / 2 + 60
    return x


def has_no_value(x: Any) -> Any:
    while x > 0:
        y = x
        x = x - 1
    return y


def carries_text(x: Any) -> Any:
    t = "a"
    while t and x > 0:
        x, t = x - 1, "b"
    return x


def over_numbers(x: Any) -> Any:
    for k in range(x / 2):
        x = x + k
    return x


def unrolled_list(x: Any) -> Any:
    for k in [1.0] * 100:
        x = x + k
    return x


def looks_up(x: Any) -> Any:
    for k in range(100):
        x = x + TABLE[k % 3]
    return x


@pytest.mark.parametrize(
    "fn, said",
    [
        (changes_its_kind, "and x is int64 before a step and float32 after it; start with a float32"),
        (looks_up, "indices are Python numbers, as in loops of at most 64 steps"),
        (has_no_value, "'y' has no value on every way"),
        (carries_text, "loops whose variables are numbers are, and one is a str"),
        (over_numbers, "ranges of integers are"),
        (unrolled_list, "lists of at most 64 steps"),
    ],
)
def test_what_a_loop_cannot_carry(fn: Callable[..., Any], said: str) -> None:
    for style in (lambda fn: fn, hm.trace):
        with pytest.raises(hm.TraceError, match=said):
            style(hm.kernel(fn))(hm.tensor([3, 5]))


# Programs of assignments, conditions and loops, of which all end.

_BODIES = st.deferred(lambda: st.lists(_STATEMENTS, min_size=1, max_size=3))
_ATOMS = st.sampled_from(["a", "b", "t", "n", "1", "2", "3"])
_VALUES = st.builds("{} {} {}".format, _ATOMS, st.sampled_from("+-*"), _ATOMS)
_CONDITIONS = st.builds("{} % {} {} {}".format, st.sampled_from("abtn"), st.sampled_from("234"), st.sampled_from(
    ["<", "==", "!="]
), st.sampled_from("012"))  # fmt: skip
_STATEMENTS: Any = st.one_of(
    st.tuples(st.just("assign"), st.sampled_from("abt"), _VALUES),
    st.tuples(st.just("if"), _CONDITIONS, _BODIES, st.one_of(st.none(), _BODIES)),
    st.tuples(st.just("leave"), _CONDITIONS, st.sampled_from(["break", "continue", "return t + n"])),
    st.tuples(st.just("while"), _CONDITIONS, _BODIES, st.one_of(st.none(), _BODIES)),
    st.tuples(
        st.just("for"), st.sampled_from(["a % 5", "1, b % 7", "3", "70"]), _BODIES, st.one_of(st.none(), _BODIES)
    ),
)


def written(program: Any, indent: str, loops: int) -> list[str]:
    """The lines of a program. Every step adds one to n, which ends all loops."""
    lines: list[str] = []
    for kind, *parts in program:
        if kind == "assign":
            lines.append(f"{indent}{parts[0]} = ({parts[1]}) % 1000")
        elif kind == "leave":
            if loops or parts[1].startswith("return"):
                lines += [f"{indent}if {parts[0]}:", f"{indent}    {parts[1]}"]
        else:
            head, body, other = parts
            inside = loops + (kind != "if")
            if kind == "if":
                lines += [f"{indent}if {head}:", *written(body, indent + "    ", inside)]
            else:
                word = f"while {head} and n < 30" if kind == "while" else f"for k{loops} in range({head})"
                lines += [f"{indent}{word}:", f"{indent}    n = n + 1", *written(body, indent + "    ", inside)]
            if other is not None:
                lines += [f"{indent}else:", *written(other, indent + "    ", loops)]
    return lines or [f"{indent}pass"]


@settings(max_examples=8, deadline=None)  # 500 were tried
@given(_BODIES)
def test_random_programs(tmp_path_factory: pytest.TempPathFactory, program: Any) -> None:
    source = "\n".join(["def program(a, b):", "    t, n = 0, 0", *written(program, "    ", 0), "    return t + n", ""])
    path = tmp_path_factory.mktemp("programs") / "program.py"
    path.write_text(source)
    space: dict[str, Any] = {}
    exec(compile(source, str(path), "exec"), space)
    a, b = np.arange(-4, 9), np.arange(9, -4, -1)
    expected = np.array(by_python(space["program"], a, b))
    made = hm.kernel(space["program"])
    assert np.array_equal(made(a, b).numpy(), expected), source
    assert np.array_equal(hm.trace(lambda a, b: made(a, b) * 1)(hm.tensor(a), hm.tensor(b)).numpy(), expected), source
