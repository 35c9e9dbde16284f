"""Functions of NumPy's of arrays that a traced function makes: NumPy computes them in the program, with its errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from tests.support.loops import assert_same, both, data, is_loop

N = 20


def matrices(x: Any) -> Any:
    inverse, det = np.zeros((N, 3, 3)), np.zeros(N)
    found, roots = np.zeros((N, 3)), np.zeros((N, 3))
    for k in range(N):
        m = np.eye(3) * 2
        m[0, 1] = m[1, 0] = x[k]
        i = np.linalg.inv(m)
        inverse[k] = i
        det[k] = np.linalg.det(m)
        found[k] = np.linalg.solve(m, i[0])
        roots[k] = np.linalg.cholesky(m)[1]
    return inverse, det, found, roots


def of_one(x: Any) -> Any:
    m = np.eye(2, dtype=np.float32)
    m[0, 1] = x[0]
    ints = np.eye(2, dtype=int)
    ints[1, 0] = x[1] * 5
    return np.linalg.inv(m), np.linalg.det(ints), np.linalg.solve(m, ints), np.linalg.inv(np.stack([m, m * 2]))


def test_results_are_those_of_numpy() -> None:
    assert is_loop(both(matrices, data(N)))
    both(of_one, data(2))


def singular(x: Any) -> Any:
    m, s = np.ones((2, 2)), np.zeros(N)
    for k in range(N):
        m[0, 0] = x[k]
        s[k] = np.linalg.inv(m)[0, 1]
    return s


def no_square(x: Any) -> Any:
    m = np.ones((2, 3))
    m[0, 0] = x[0]
    return np.linalg.inv(m)


def test_errors_are_those_of_numpy() -> None:
    traced, x = hm.trace(singular), hm.asarray(np.arange(2.0, N + 2))
    assert_same(traced(x), singular(x))
    for _ in range(2):
        with pytest.raises(np.linalg.LinAlgError, match=r"^Singular matrix"):
            traced(x - 5.0)
    assert_same(traced(x), singular(x))
    assert is_loop(traced)
    for fn in (no_square, hm.trace(no_square)):
        with pytest.raises(np.linalg.LinAlgError, match="must be square"):
            fn(x)
    infinite = hm.asarray(np.full(N, np.inf))
    assert_same(traced(infinite), singular(infinite))


def array(x: Any) -> Any:
    a = np.zeros(N)
    a[:] = x
    return a


def matrix(x: Any) -> Any:
    m = np.zeros((4, 4))
    m[:] = x[:16].reshape(4, 4)
    return m @ m.T + np.eye(4)


def written(x: Any) -> Any:
    out = np.zeros(N)
    np.around(array(x), 1, out)
    return out


FUNCTIONS: dict[str, Callable[[Any, float], Any]] = {
    "interp": lambda x, s: np.interp(array(x) * 0.5, np.linspace(0, 1, N), array(x)),
    "interp of a number": lambda x, s: np.interp(s, np.linspace(0, 1, N), array(x)),
    "median": lambda x, s: np.median(array(x)),
    "percentile": lambda x, s: np.percentile(array(x), [25, 75]),
    "norm": lambda x, s: np.linalg.norm(array(x)) * x,
    "norm of rows": lambda x, s: np.linalg.norm(matrix(x), axis=1),
    "convolve": lambda x, s: np.convolve(array(x), np.array([1.0, 2.0, 1.0]), mode="same"),
    "eigvalsh": lambda x, s: np.linalg.eigvalsh(matrix(x)),
    "sort": lambda x, s: np.sort(array(x)),
    "searchsorted": lambda x, s: np.searchsorted(np.sort(array(x)), s),
    "polyval": lambda x, s: np.polyval(array(x)[:3], s),
    "rfft": lambda x, s: np.abs(np.fft.rfft(array(x))),
    "round": lambda x, s: np.round(array(x), 2),
    "kron": lambda x, s: np.kron(matrix(x), np.eye(2)),
    "average": lambda x, s: np.average(array(x), weights=np.arange(N) + 1.0),
    "gradient": lambda x, s: np.gradient(array(x)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_calls_of_one_program(name: str) -> None:
    traced = hm.trace(FUNCTIONS[name])
    for seed in range(3):
        x, s = hm.asarray(np.random.default_rng(seed).random(N)), 0.1 + 0.3 * seed
        assert_same(FUNCTIONS[name](x, s), traced(x, s))
    assert traced.cache_info().compiles == 1 and "numpy_" in traced.ir


SCALARS = "np.float32 np.float64 np.int64 np.int16 np.complex64 float(1.7) int(3)".split()


@pytest.mark.parametrize("base", SCALARS)
def test_powers_of_scalars_have_the_bits_of_their_operator(base: str) -> None:
    names = [(a, b) for a, b in ((base, other) for other in SCALARS) if "np." in a + b]
    lines = [f"{name} = np.zeros(30, np.{name})" for name in {n[3:] for pair in names for n in pair if "np." in n}]
    lines += [f"{line.split()[0]}[:] = x" for line in lines]
    ends = [" ** ".join(f"{n[3:]}[{{0}}]" if "np." in n else n for n in pair) for pair in names]
    results = [end.format(k) for end in ends for k in range(0, 30, 3)] + ["np.power(float64[1], float64[2])"]
    lines += ["float64 = np.zeros(30)", "float64[:] = x", f"return [{', '.join(results)}]"]
    space: dict[str, Any] = {"np": np}
    exec("def program(x):\n    " + "\n    ".join(lines), space)
    traced = hm.trace(space["program"])
    for seed in range(3):
        x = hm.asarray(np.random.default_rng(seed).random(30) * 3 + 1)
        with np.errstate(all="ignore"):
            assert_same(space["program"](x), traced(x))


def test_powers_of_scalars_of_two_dtypes_in_steps() -> None:
    def program(x: Any) -> Any:
        small, out = np.zeros(N, np.float32), array(x)
        small[:] = x
        for k in range(1, N):
            out[k] = (small[k] + 0.5) ** out[k - 1]
        return out

    for seed in range(3):
        assert is_loop(both(program, lambda seed=seed: hm.asarray(np.random.default_rng(seed).random(N))))


OTHERS = written, lambda x: np.gradient(matrix(x)), lambda x: np.average(array(x), returned=True)


@pytest.mark.parametrize("fn", OTHERS)
def test_what_writes_or_has_several_results_asks(fn: Any) -> None:
    traced = hm.trace(fn)
    for seed in range(2):
        x = hm.asarray(np.random.default_rng(seed).random(N))
        assert_same(fn(x), traced(x))


def test_functions_in_steps() -> None:
    def program(x: Any) -> Any:
        a, out = array(x), np.zeros(50)
        for k in range(50):
            a = a * 0.9 + np.interp(a, np.linspace(0, 1, N), x) * 0.1
            out[k] = np.linalg.norm(a) + np.median(a)
        return out

    assert is_loop(both(program, data(N)))
