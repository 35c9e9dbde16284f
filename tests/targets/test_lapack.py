"""Factorisations by routines of our own and LAPACK's: NumPy's results, in both styles, without Python in a program."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml_compiler.hooks import hooks
from hybridml_compiler.runtime import host_callback
from hybridml_compiler.targets.cpu.runtime import blas, jit
from hybridml_compiler.targets.cpu.runtime.linking import loader
from hybridml_compiler.targets.cpu.runtime.routines import symbols
from hybridml_compiler.targets.cpu.spec import host_spec, spec_of

Array = np.ndarray[Any, Any]
SIZES = (1, 2, 7, 16, 17, 33, 64, 97, 150)  # around vectors, triangles without products, and blocks of columns


def _rng() -> np.random.Generator:
    return np.random.default_rng(0)


def _general(*shape: int, dtype: str = "f8") -> Array:
    made: Array = (_rng().standard_normal(shape) + np.sqrt(shape[-1]) * np.eye(shape[-2], shape[-1])).astype(dtype)
    return made


def _positive(*shape: int, dtype: str = "f8") -> Array:
    x = _general(*shape)
    made: Array = (x @ x.mT + np.eye(shape[-1])).astype(dtype)
    return made


def _arrays(result: Any) -> list[Array]:
    return [t.numpy() for t in (result if isinstance(result, tuple) else (result,))]


def _equal(one: Any, other: Any) -> bool:
    return all(np.array_equal(a, b, equal_nan=True) for a, b in zip(_arrays(one), _arrays(other), strict=True))


L = hm.linalg
ROWS: dict[str, Callable[[Any], Any]] = {
    "cholesky": L.cholesky,
    "inv": L.inv,
    "det": L.det,
    "slogdet": L.slogdet,
    "lu": L.lu,
    "qr": L.qr,
    "svd": L.svd,
    "svdvals": L.svdvals,
    "eigh": L.eigh,
    "eigvalsh": L.eigvalsh,
    "solve": lambda x: L.solve(x, x[..., :3]),
    "solve_triangular": lambda x: L.solve_triangular(x, x[..., :3], upper=True),
}


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("n", SIZES)
def test_results_are_those_of_the_definition(n: int, dtype: str) -> None:
    close: dict[str, Any] = {"rtol": 2e-3, "atol": 2e-3} if dtype == "f4" else {"rtol": 1e-9, "atol": 1e-10}
    x, p = _general(n, n, dtype=dtype), _positive(n, n, dtype=dtype)
    t, y = hm.tensor(x), _rng().standard_normal((n, 5)).astype(dtype)
    factor = L.cholesky(hm.tensor(p)).numpy()
    assert np.array_equal(factor, np.tril(factor))
    np.testing.assert_allclose(factor @ factor.T / n, p / n, **close)
    np.testing.assert_allclose(x @ L.solve(t, hm.tensor(y)).numpy(), y, **close)
    np.testing.assert_allclose(x @ L.inv(t).numpy(), np.eye(n), **close)
    scaled = x / np.sqrt(n).astype(dtype)
    np.testing.assert_allclose(L.det(hm.tensor(scaled)).numpy(), np.linalg.det(scaled.astype("f8")), **close)
    sign, log = L.slogdet(t)
    expected = np.linalg.slogdet(x.astype("f8"))
    assert sign.item() == expected.sign
    np.testing.assert_allclose(log.numpy(), expected.logabsdet, **close)
    for upper in (False, True):
        for unit in (False, True):
            half = (np.triu if upper else np.tril)(x) / (n if unit else 1)
            half[range(n), range(n)] = 1 if unit else np.diag(half)
            given = half + (np.tril(x, -1) if upper else np.triu(x, 1))  # the other triangle is not read
            given[range(n), range(n)] = np.nan if unit else np.diag(half)
            z = L.solve_triangular(hm.tensor(given.astype(dtype)), hm.tensor(y), upper=upper, unitriangular=unit)
            back, scale = half.astype("f8") @ z.numpy(), np.abs(z.numpy()).max() + 1
            np.testing.assert_allclose(back / scale, y / scale, **close)


SHAPES = ((40, 40), (40, 23), (23, 40), (150, 70), (70, 150), (129, 130), (1, 9), (9, 1), (3, 20, 12), (3, 12, 20))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_factors_of_any_shape(shape: tuple[int, ...], dtype: str) -> None:
    close: dict[str, Any] = {"rtol": 1e-4, "atol": 1e-4} if dtype == "f4" else {"rtol": 1e-11, "atol": 1e-11}
    x = _rng().standard_normal(shape).astype(dtype)
    p, lower, upper = _arrays(L.lu(hm.tensor(x)))
    np.testing.assert_allclose(p @ lower @ upper, x, **close)
    assert np.array_equal(upper, np.triu(upper)) and np.array_equal(lower, np.tril(lower)) and abs(lower).max() == 1
    assert np.array_equal(np.sort(p, axis=-1)[..., -1], np.ones(shape[:-1])) and p.sum() == np.prod(shape[:-1])
    for mode in ("reduced", "complete"):
        q, r = _arrays(L.qr(hm.tensor(x), mode=mode))
        expected = np.linalg.qr(x.astype("f8"), mode)
        np.testing.assert_allclose(q @ r, x, **close)
        np.testing.assert_allclose(r, expected.R, **close)
        assert q.shape == expected.Q.shape
    for full in (False, True):
        u, s, v = _arrays(L.svd(hm.tensor(x), full_matrices=full))
        k = s.shape[-1]
        np.testing.assert_allclose((u[..., :k] * s[..., None, :]) @ v[..., :k, :], x, **close)
        np.testing.assert_allclose(
            u.mT @ u, np.broadcast_to(np.eye(u.shape[-1]), u.mT.shape[:-1] + u.shape[-1:]), **close
        )
    np.testing.assert_allclose(L.svdvals(hm.tensor(x)).numpy(), s, **close)


@pytest.mark.parametrize("name", sorted(ROWS))
@pytest.mark.parametrize("shape", [(5, 5), (3, 20, 20), (70, 70)])
def test_programs_call_no_python_and_have_the_bits_of_eager_calls(
    name: str, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    def parse(text: bytes) -> Any:
        raise AssertionError(f"called NumPy: {text.decode()}")

    monkeypatch.setattr(host_callback, "_parse", parse)
    monkeypatch.setattr(host_callback, "_runs", {})
    for dtype in ("f4", "f8"):
        x = hm.tensor(_positive(*shape, dtype=dtype))
        eager, program = ROWS[name](x), hm.trace(ROWS[name])
        assert _equal(eager, program(x))
        assert all([_equal(eager, ROWS[name](x)) for _ in range(17)])  # one of these is compiled


@pytest.mark.parametrize("name", ["cholesky", "solve", "inv", "lu", "solve_triangular", "det"])
def test_bits_do_not_depend_on_the_number_of_threads(name: str) -> None:
    x = hm.tensor(_positive(260, 260, dtype="f4"))
    threads = hm.get_num_threads()
    found = []
    try:
        for count in (1, 2, 3):
            hm.set_num_threads(count)
            found.append(ROWS[name](x))
    finally:
        hm.set_num_threads(threads)
    assert _equal(found[0], found[1]) and _equal(found[0], found[2])


def test_results_that_nobody_reads() -> None:
    x = hm.tensor(_positive(6, 6))
    for name, row in ROWS.items():
        whole = row(x)
        if isinstance(whole, tuple):
            for k, part in enumerate(whole):
                assert _equal(part, hm.trace(lambda x, row=row, k=k: row(x)[k])(x)), name


@pytest.mark.parametrize(
    ("left", "right"), [((4, 4), (3, 4, 2)), ((3, 4, 4), (4, 2)), ((3, 4, 4), (4,)), ((2, 1, 4, 4), (3, 4, 2))]
)
def test_batches_of_systems_broadcast(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    x, y = _general(*left), _rng().standard_normal(right)
    expected = np.linalg.solve(x, y)
    for run in (L.solve, hm.trace(L.solve)):
        np.testing.assert_allclose(run(hm.tensor(x), hm.tensor(y)).numpy(), expected, rtol=1e-10)


def test_an_operand_may_come_twice() -> None:
    x = hm.tensor(_general(5, 5))
    for run in (L.solve, hm.trace(L.solve)):
        np.testing.assert_allclose(run(x, x).numpy(), np.eye(5), atol=1e-12)


REFUSED: tuple[tuple[str, Callable[[Any], Any], Array, str], ...] = (
    ("cholesky", L.cholesky, np.diag([1.0, -2.0]), "is not positive definite: its smallest eigenvalue is -2"),
    ("cholesky", L.cholesky, np.diag([1.0, np.nan]), "holds nan or infinity"),
    ("inv", L.inv, np.ones((2, 2)), "is singular: its rank is 1 of 2"),
    ("solve", lambda x: L.solve(x, x), np.ones((2, 2)), "is singular: its rank is 1 of 2"),
    ("lu", L.lu, np.full((2, 2), np.inf), "holds nan or infinity"),
    ("qr", L.qr, np.full((2, 2), np.nan), "holds nan or infinity"),
    ("svd", L.svd, np.full((2, 2), np.nan), "holds nan or infinity"),
    ("eigh", L.eigh, np.full((2, 2), np.nan), "holds nan or infinity"),
    (
        "solve_triangular",
        lambda x: L.solve_triangular(x, x, upper=True),
        np.diag([1.0, 0.0]),
        "is singular: element 1 of its diagonal is 0",
    ),
)


@pytest.mark.parametrize(("name", "run", "bad", "text"), REFUSED, ids=[row[0] for row in REFUSED])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_a_matrix_that_is_refused_is_named_in_both_styles(
    name: str, run: Callable[[Any], Any], bad: Array, text: str, dtype: str
) -> None:
    batch = hm.tensor(np.stack([np.eye(2), np.eye(2), bad]).astype(dtype))
    messages = []
    for call in (run, hm.trace(run)):
        with pytest.raises(np.linalg.LinAlgError, match=f"{name}: matrix 2 of .* {text}") as caught:
            call(batch)
        messages.append(str(caught.value).splitlines()[0])
    assert messages[0] == messages[1]


def test_singular_matrices_have_determinants_and_factors() -> None:
    x = hm.tensor(np.array([[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [1.0, 0.0, 1.0]]))
    assert L.det(x).item() == 0.0
    assert [t.item() for t in L.slogdet(x)] == [0.0, -np.inf]
    p, lower, upper = L.lu(x)
    assert np.array_equal((p @ lower @ upper).numpy(), x.numpy())


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_numbers_at_the_ends_of_their_range(dtype: str) -> None:
    """Pivots below the normal numbers, and determinants whose factors are out of range."""
    tiny = np.finfo(dtype).smallest_normal / 8
    x = hm.tensor(np.array([[tiny, 0], [tiny, tiny]], dtype))
    _, lower, upper = L.lu(x)
    assert lower.tolist() == [[1, 0], [1, 1]] and upper.tolist() == [[float(tiny), 0], [0, float(tiny)]]
    large = float(np.finfo(dtype).max) / 4
    assert L.det(hm.tensor(np.diag([large, large, 1 / large, 1 / large]).astype(dtype))).item() == pytest.approx(1)
    assert L.det(hm.tensor(np.diag([large, large]).astype(dtype))).item() == np.inf
    assert L.det(hm.tensor(np.diag([1 / large, 1 / large]).astype(dtype))).item() == 0.0


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_reflections_of_columns_whose_norms_have_no_square(dtype: str) -> None:
    """NumPy does these: of our own reflections the squares would be 0 or infinite. Columns of zeros are ours."""
    x = _rng().standard_normal((60, 50)).astype(dtype)
    scale = np.finfo(dtype).smallest_normal * 1e6
    for made in (x * scale, x / scale, np.where(np.arange(50) < 40, x, 0), np.zeros_like(x)):
        q, r = _arrays(L.qr(hm.tensor(made.astype(dtype))))
        largest = np.abs(made).max() or 1
        np.testing.assert_allclose(q @ (r / largest), made / largest, atol=1e-5 if dtype == "f4" else 1e-13)
        np.testing.assert_allclose(q.T @ q, np.eye(50), atol=1e-5 if dtype == "f4" else 1e-13)


def test_nan_and_infinity_are_results_of_solutions() -> None:
    x = np.eye(3)
    x[1, 2] = np.nan
    assert np.isnan(L.inv(hm.tensor(x)).numpy()).any() and np.isnan(L.det(hm.tensor(np.full((2, 2), np.nan))).item())
    found = L.solve(hm.tensor(np.eye(2)), hm.tensor([1.0, np.inf])).numpy()
    assert found[1] == np.inf


def test_without_routines_numpy_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    x = hm.tensor(_positive(30, 30))
    expected = {name: row(x) for name, row in ROWS.items()}
    monkeypatch.setattr(hooks, "routine", lambda *_: None)
    for name, row in ROWS.items():
        for one, other in zip(_arrays(expected[name]), _arrays(row(x)), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9, err_msg=name)


def test_gradients_go_through_programs() -> None:
    x = hm.tensor(_positive(6, 6))

    def loss(x: Any) -> Any:
        return L.solve(x, L.cholesky(x)).sum() + L.slogdet(x).logabsdet + L.qr(x).R.sum()

    eager, traced = hm.grad(loss)(x), hm.trace(hm.grad(loss))(x)
    np.testing.assert_allclose(eager.numpy(), traced.numpy(), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", ["qr", "lu", "cholesky", "inv"])
def test_bits_of_gradients_do_not_depend_on_what_ran_before(name: str) -> None:
    x = _positive(3, 20, 20)

    def gradient() -> Array:
        t = hm.tensor(x, requires_grad=True)
        result = ROWS[name](t)
        last = result[-1] if isinstance(result, tuple) else result
        (last * last).sum().backward()
        assert t.grad is not None
        return t.grad.numpy()

    first = gradient()
    assert all([np.array_equal(first, gradient()) for _ in range(20)])


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_a_result_that_overwrites_an_operand(dtype: str) -> None:
    """A routine writes a part of its result while it reads: it has memory of its own."""
    x = (np.triu(_rng().standard_normal((300, 300))) / 300 + np.eye(300)).astype(dtype)

    def run(x: Any) -> Any:
        x[...] = L.solve_triangular(x, x + 1, upper=True)
        return x.sum()

    eager, traced, program = hm.tensor(x), hm.tensor(x), hm.trace(run)
    for _ in range(2):
        run(eager), program(traced)
    assert np.array_equal(eager.numpy(), traced.numpy(), equal_nan=True)


def test_what_is_refused_overwrites_nothing() -> None:
    x = _positive(3, 4, 4)
    x[2] = -x[2]

    def run(x: Any, y: Any) -> Any:
        y[...] = L.cholesky(x)

    for call in (run, hm.trace(run)):
        y = hm.zeros((3, 4, 4), dtype=hm.float64)
        with pytest.raises(np.linalg.LinAlgError, match="matrix 2 of"):
            call(hm.tensor(x), y)
        assert not y.numpy().any()


def test_the_library_of_the_products_has_lapack() -> None:
    found = blas.find()
    if found is None or not found.lapack:
        pytest.skip("no BLAS with LAPACK in one library here")
    address = blas.lapack_symbol("dpotrf")
    assert address is not None and blas.lapack_symbol("no_such_routine") is None
    x = np.array([[4.0, 2.0], [2.0, 5.0]])
    n, info, pointer = ctypes.c_int64(2), ctypes.c_int64(0), ctypes.c_void_p
    routine = ctypes.CFUNCTYPE(None, ctypes.c_char_p, *[pointer] * 4, ctypes.c_int64)(address)
    routine(b"L", ctypes.addressof(n), x.ctypes.data, ctypes.addressof(n), ctypes.addressof(info), 1)
    assert info.value == 0 and np.array_equal(np.triu(x), [[2.0, 1.0], [0.0, 2.0]])


@pytest.mark.parametrize("features", [[], ["avx2", "fma"]], ids=["sse2", "avx2"])
@pytest.mark.parametrize("letter", ["s", "d"])
def test_narrower_vectors(letter: str, features: list[str]) -> None:
    """Routines for a lesser CPU run here as well, and give the same to rounding."""
    here = host_spec()
    cpu = spec_of(here.triple, features)
    if not {"avx2", "fma"} <= here.enabled:
        pytest.skip("a lesser CPU is one of x86-64 here")
    x = _positive(70, 70, dtype="f4" if letter == "s" else "f8")
    for name, count, sizes in (("cholesky", 1, (1, 70)), ("inv", 1, (1, 70)), ("lu", 3, (1, 70, 70))):
        symbol = symbols.symbol(name, x.dtype.char)
        objects = jit.compile_sources(symbols.sources(symbol, cpu))
        library = loader.load(objects, symbols.imports(symbol), [symbol])
        results = [np.empty_like(x) for _ in range(count)]
        table = (ctypes.c_void_p * (1 + count))(*[a.ctypes.data for a in (x, *results)])
        run = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)(library.address(symbol))
        assert run(table, (ctypes.c_int64 * len(sizes))(*sizes)) == 0
        for found, expected in zip(results, _arrays(ROWS[name](hm.tensor(x))), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-3 if letter == "s" else 1e-9, atol=1e-4)


def test_code_for_other_architectures() -> None:
    cpu = spec_of("aarch64-unknown-linux-gnu", ["neon"])
    for name, uses in symbols.NAMES.items():
        assert all(jit.compile_sources(symbols.sources(symbols.symbol(name, [*uses.letters][-1]), cpu)))
