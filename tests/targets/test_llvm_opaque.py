"""What NumPy computes inside compiled programs: complex numbers, rows without an expression, errors and results."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator

import numpy as np
import pytest

import hybridml as hm
from hybridml.core import codegen
from hybridml_compiler.aval import Aval
from hybridml_compiler.ops.op import Op
from hybridml_compiler.ops.table import OPS


def _eager(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    if (x < 0).any():
        raise np.linalg.LinAlgError("a negative number")
    order = np.argsort(x, axis=-1)
    return np.take_along_axis(x, order, -1), order


SORTED = Op(
    "sorted_for_tests",
    "opaque",
    inputs=("x",),
    infer=lambda x: (x, Aval(x.shape, np.dtype(np.int64))),
    eager=_eager,
    vjp=(
        lambda g, out, x_shape, x_dtype: hm.zeros(x_shape, dtype=x_dtype).at[hm.arange(3)[:, None], out[1]].set(g[0]),
    ),
    samples=lambda rng: (),
    results=("values", "order"),
)


RAISED_NEXT: list[BaseException] = []


def _failing(x: np.ndarray) -> np.ndarray:
    if RAISED_NEXT:
        raise RAISED_NEXT.pop()
    return x + 1


FAILING = Op(
    "failing_for_tests", "opaque", inputs=("x",), infer=lambda x: x, eager=_failing, samples=lambda rng: ()
)  # fmt: skip


@pytest.fixture
def row() -> Iterator[object]:
    OPS[SORTED.name] = SORTED
    yield codegen.generate(SORTED)
    del OPS[SORTED.name]


def numbers(seed: int = 0) -> hm.Tensor:
    return hm.asarray(np.random.default_rng(seed).random((3, 5), dtype="f4"))


def test_a_row_in_the_middle_of_a_program(row: object) -> None:
    def program(x: hm.Tensor) -> tuple[hm.Tensor, ...]:
        values, order = row(hm.exp(x) * 2)
        return hm.log(values), order + 1, values.sum()

    traced = hm.trace(program)
    for seed in range(3):
        x = numbers(seed)
        (*expected, total), (*found, traced_total) = program(x), traced(x)
        for a, b in zip(expected, found, strict=True):
            np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
        np.testing.assert_allclose(np.asarray(total), np.asarray(traced_total), rtol=1e-6)
    assert "sorted_for_tests" in traced.ir


def test_one_run_gives_all_results(row: object) -> None:
    traced = hm.trace(lambda x: row(x))
    traced(numbers())
    assert traced.stats.kernels == 1


def test_gradients(row: object) -> None:
    def loss(x: hm.Tensor) -> hm.Tensor:
        return (row(x)[0] * hm.arange(15.0).reshape((3, 5))).sum()

    x = numbers()
    expected = np.argsort(np.argsort(np.asarray(x), -1), -1) + 5.0 * np.arange(3)[:, None]
    np.testing.assert_array_equal(np.asarray(hm.grad(loss)(x)), expected)
    np.testing.assert_array_equal(np.asarray(hm.trace(hm.grad(loss))(x)), expected)


def test_an_error_of_numpy_leaves_state_as_it_was(row: object) -> None:
    total = hm.zeros((3, 5))

    @hm.trace
    def step(x: hm.Tensor) -> hm.Tensor:
        total.add_(1.0)
        return row(x)[0] + total

    step(numbers())
    step(numbers())
    before = np.asarray(total).copy()
    with pytest.raises(np.linalg.LinAlgError, match="a negative number"):
        step(numbers() - 1)
    np.testing.assert_array_equal(np.asarray(total), before)
    step(numbers())
    np.testing.assert_array_equal(np.asarray(total), before + 1)


@pytest.mark.parametrize("error", [MemoryError("no room"), KeyboardInterrupt(), SystemExit(3)])
@pytest.mark.parametrize("calls", [1, 4])  # the general way of a call, and the short one
def test_what_would_not_be_raised_again_is_raised(error: BaseException, calls: int) -> None:
    OPS[FAILING.name] = FAILING
    try:
        fn, total = codegen.generate(FAILING), hm.zeros(3)

        @hm.trace
        def step(x: hm.Tensor) -> hm.Tensor:
            total.add_(x)
            return fn(total) * 2

        for _ in range(calls):
            step(hm.ones(3))
        RAISED_NEXT.append(error)
        with pytest.raises(type(error)) as raised:
            step(hm.ones(3))
        assert raised.value is error and not RAISED_NEXT
        assert total.tolist() == [float(calls)] * 3
        assert step(hm.ones(3)).tolist() == [2.0 * (calls + 2)] * 3
    finally:
        del OPS[FAILING.name]


@pytest.mark.parametrize("error", ["KeyboardInterrupt", "TimeoutError"])
def test_a_signal_that_comes_while_native_code_runs(error: str) -> None:
    program = f"""
import signal, time
import hybridml as hm

@hm.trace
def f(x):
    for _ in range(30):
        x = hm.sin(hm.exp(x * 0.1))
    return x[:2] * 2j

def handle(*_):
    raise {error}("from outside")

x = hm.ones(2_000_000)
for _ in range(3):
    f(x)
signal.signal(signal.SIGALRM, handle)
signal.setitimer(signal.ITIMER_REAL, 0.02)
try:
    f(x)
    time.sleep(10)
except {error} as raised:
    print(raised)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert (done.stdout.strip(), done.stderr) == ("from outside", "")


def test_in_loops_and_branches(row: object) -> None:
    def program(x: hm.Tensor) -> hm.Tensor:
        def body(carry: hm.Tensor, k: hm.Tensor) -> tuple[hm.Tensor, hm.Tensor]:
            carry = row(carry + hm.sin(carry) ** 2)[0]
            return carry, carry[0, 0] * k

        last, ys = hm.scan(body, x, hm.arange(4.0))
        return hm.cond(last.sum() > 0, lambda t: row(t * 2)[0], lambda t: t, last) + ys.sum()

    x = numbers()
    np.testing.assert_allclose(np.asarray(hm.trace(program)(x)), np.asarray(program(x)), rtol=1e-6)


def test_threads(row: object) -> None:
    traced = hm.trace(lambda x: row(x * 2)[0] + 1)
    traced(numbers())
    wrong: list[int] = []

    def spec(seed: int) -> None:
        x = numbers(seed)
        for _ in range(50):
            if not np.array_equal(np.asarray(traced(x)), np.sort(np.asarray(x) * 2, -1) + 1):
                wrong.append(seed)

    threads = [threading.Thread(target=spec, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def complex_program(z: hm.Tensor, x: hm.Tensor) -> tuple[hm.Tensor, ...]:
    y = hm.exp(z * x + 1j) + hm.sqrt(z)
    return (
        abs(y), y.real, (y * y.conj()).imag, hm.sum(y), y[1:], hm.concat([y, z]), hm.where(x > 1.5, y, z),
        y.reshape((3, 1)) @ z.reshape((1, 3)), hm.mean(y), y == z, y.astype(hm.complex128) ** 2,
    )  # fmt: skip


def complex_arguments() -> tuple[hm.Tensor, hm.Tensor]:
    return hm.asarray(np.array([1 + 2j, 3 - 1j, -0.5 + 0.1j], "c8")), hm.tensor([1.0, 2.0, 3.0])


def test_complex_numbers() -> None:
    z, x = complex_arguments()
    for a, b in zip(complex_program(z, x), hm.trace(complex_program)(z, x), strict=True):
        assert a.dtype is b.dtype
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


def test_complex_gradients_are_those_of_steepest_ascent() -> None:
    def loss(z: hm.Tensor) -> hm.Tensor:
        return (abs(z) ** 2).sum()

    z, _ = complex_arguments()
    np.testing.assert_allclose(np.asarray(hm.grad(loss)(z)), 2 * np.asarray(z), rtol=1e-6)
    np.testing.assert_array_equal(np.asarray(hm.trace(hm.grad(loss))(z)), np.asarray(hm.grad(loss)(z)))
    z.requires_grad_()
    loss(z).backward()
    np.testing.assert_allclose(np.asarray(z.grad), 2 * np.asarray(z.detach()), rtol=1e-6)
    with pytest.raises(hm.GradientError, match="needs a real result, got complex64"):
        (z * z).sum().backward()


def test_a_gradient_that_is_given_has_the_dtype_of_the_result() -> None:
    x = hm.tensor([1.0, 2.0], requires_grad=True)
    (x * 2).backward(hm.tensor([1.0, 1.0], dtype=hm.float64))
    assert x.grad.dtype is hm.float32
    with pytest.raises(hm.DTypeError, match="result is float32, and its gradient complex64"):
        (x * 2).backward(hm.tensor([1j, 1j]))


def test_nans_of_complex_numbers_are_found() -> None:
    z = hm.tensor([0j, 1j])
    for program in (lambda z: z / z, hm.trace(lambda z: z / z)):
        with hm.debug_nans(), pytest.raises(FloatingPointError, match=r"divide made nan at index \(0,\)"):
            program(z)


def test_complex_numbers_in_a_notebook() -> None:
    assert "complex64" in hm.ones(40, dtype=hm.complex64)._repr_html_()


def test_a_complex_program_of_many_sizes() -> None:
    traced = hm.trace(lambda z: abs(z * 2j).sum())
    for n in (3, 4, 5, 6):
        z = hm.asarray(np.ones(n, "c8"))
        assert traced(z).item() == 2.0 * n


def test_a_second_process_finds_the_program(tmp_path: object) -> None:
    program = (
        "import hybridml as hm, numpy as np\n"
        "f = hm.trace(lambda z: abs(z * 2j) + 1)\n"
        "print(f(hm.asarray(np.array([3 + 4j], 'c8'))).item())\n"
    )
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True,
            env={**os.environ, "HYBRIDML_CACHE_DIR": str(tmp_path)},
        )  # fmt: skip
        assert done.stdout.strip() == "11.0"


def test_half_precision_is_numpys() -> None:
    h = hm.asarray(np.array([1, 2, 65504, 6e-8, np.inf, np.nan, -0.0, 1e-4], "f2"))

    def program(h: hm.Tensor) -> tuple[hm.Tensor, ...]:
        wide = h.astype(hm.float32)
        return h + 1, h * h, hm.exp(h), h[::-1], wide, (wide * 1.0005).astype(h.dtype), h + hm.ones((1,))

    for a, b in zip(program(h), hm.trace(program)(h), strict=True):
        assert a.dtype is b.dtype
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
    every = np.arange(1 << 16, dtype="u2").view("f2")
    widened = hm.trace(lambda t: t.astype(hm.float32))(hm.asarray(every))
    np.testing.assert_array_equal(np.asarray(widened), every.astype("f4"))
    rng = np.random.default_rng(0)
    floats = (rng.standard_normal(100_000) * 2.0 ** rng.integers(-30, 20, 100_000)).astype("f4")
    rounded = hm.trace(lambda t: t.astype("float16"))(hm.asarray(floats))
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(np.asarray(rounded), floats.astype("f2"))


def test_parts_are_assigned_as_a_whole() -> None:
    def program(z: hm.Tensor) -> hm.Tensor:
        z = z * 1
        z.imag += 1
        z.real = hm.tensor([1.0, 2.0, 3.0])
        return z

    z, x = complex_arguments()
    assert program(z).tolist() == hm.trace(program)(z).tolist() == [1 + 3j, 2 + 0j, 3 + complex(0, np.float32(1.1))]
    with pytest.raises(hm.DTypeError, match="a float32 tensor has no parts"):
        x.imag = 1.0
    for number in (float, int):
        with pytest.raises(hm.DTypeError, match=r"take \.real, \.imag or abs"):
            number(z[0])


@pytest.mark.parametrize("name", ["asin", "acos", "acosh"])
def test_slopes_beside_cuts_are_those_of_their_side(name: str) -> None:
    def slope(z: np.ndarray) -> np.ndarray:
        t = hm.asarray(z).requires_grad_()
        y = getattr(hm, name)(t)
        y.backward(hm.ones_like(y))
        return np.asarray(t.grad).conj()

    sides = np.array([complex(x, y) for x in (-3.0, -0.5, 0.5, 2.0) for y in (0.0, -0.0)])
    near = np.array([complex(z.real, np.copysign(1e-12, z.imag)) for z in sides])
    np.testing.assert_allclose(slope(sides), slope(near), rtol=1e-9)
    left = np.array([-1.5 + 0.4j, -0.3 - 2j])
    function = getattr(np, f"arc{name[1:]}")
    np.testing.assert_allclose(slope(left), (function(left + 1e-6) - function(left - 1e-6)) / 2e-6, rtol=1e-8)
