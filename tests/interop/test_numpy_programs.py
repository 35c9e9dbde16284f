"""Code written for NumPy runs on tensors: ufuncs and their methods, `out=`, arrays beside tensors, clear refusals."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hybridml as hm

X = np.array([[1.0, -2.0, 3.0], [0.5, 4.0, -1.0]])


def standardised(x: Any) -> Any:
    """A program that knows nothing of tensors."""
    centred = x - np.mean(x, axis=0)
    spread = np.sqrt(np.var(x, axis=0) + 1e-6)
    return np.where(np.abs(centred) > 0.1, centred / spread, np.zeros_like(x))


def test_a_program_for_arrays_differentiates_and_traces() -> None:
    expected = standardised(X)
    for run in (standardised, hm.trace(standardised)):
        np.testing.assert_allclose(run(hm.tensor(X)).numpy(), expected, rtol=1e-12)
        grad = hm.grad(lambda t, run=run: (run(t) ** 3).sum())(hm.tensor(X)).numpy()
        step = np.zeros_like(X)
        step[1, 2] = 1e-6
        slope = ((standardised(X + step) ** 3).sum() - (standardised(X - step) ** 3).sum()) / 2e-6
        assert grad[1, 2] == pytest.approx(slope, rel=1e-4)


METHODS: list[Callable[[Any], Any]] = [
    lambda x: np.add.reduce(x),
    lambda x: np.add.reduce(x, axis=None, initial=2.0),
    lambda x: np.multiply.reduce(x, axis=1, keepdims=True),
    lambda x: np.subtract.reduce(x, axis=1),
    lambda x: np.maximum.reduce(x, axis=(0, 1)),
    lambda x: np.minimum.reduce(x, where=X > 0, initial=9.0),
    lambda x: np.hypot.reduce(x, axis=1, keepdims=True),
    lambda x: np.logical_and.reduce(x > 0, axis=1),
    lambda x: np.logical_xor.reduce(x > 0, axis=0),
    lambda x: np.add.reduce(x[:0]),
    lambda x: np.add.accumulate(x, axis=1),
    lambda x: np.multiply.accumulate(x),
    lambda x: np.maximum.accumulate(x, axis=1),
    lambda x: np.subtract.accumulate(x, axis=1),
    lambda x: np.subtract.outer(x, x[0]),
    lambda x: np.add.reduceat(x, [0, 2, 1], axis=1),
    lambda x: np.add(x, 1.0, where=X > 0, out=x * 0),
    lambda x: np.multiply(x, [1.0, 2.0, 3.0]),
    lambda x: np.add(x, 1, dtype=np.float32),
    lambda x: np.float64(2.0) * x,
    lambda x: X + x,
    lambda x: X @ x.T,
]


@pytest.mark.parametrize("program", METHODS)
def test_methods_and_parameters_of_ufuncs(program: Callable[[Any], Any]) -> None:
    expected = program(X.copy())
    for run in (program, hm.trace(program)):
        found = run(hm.tensor(X))
        assert isinstance(found, hm.Tensor) and found.shape == np.shape(expected)
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6 if found.dtype == np.float32 else 1e-12)


CALLS: list[Callable[[Any], Any]] = [
    lambda x: x.std(axis=1, ddof=1),
    lambda x: x.var(0, ddof=1),
    lambda x: x.mean(0) + x.sum(axis=0, keepdims=True) - x.max(axis=0),
    lambda x: x.round(1),
    lambda x: x.reshape(3, 2, order="F"),
    lambda x: x.take([0, 2], axis=1),
    lambda x: x.compress([True, False, True], axis=1),
    lambda x: x.trace(1),
    lambda x: x.isclose(x + 1e-9).rot90() if isinstance(x, hm.Tensor) else np.rot90(np.isclose(x, x + 1e-9)),
    lambda x: x.fmod(2.0).quantile(0.5) if isinstance(x, hm.Tensor) else np.quantile(np.fmod(x, 2.0), 0.5),
    lambda x: x.copy().T.dot(x.conjugate()),
    lambda x: x.argsort(0),
    lambda x: x.nonzero()[1],
    lambda x: x.clip(-1, 2).cumsum(axis=1).flatten(),
    lambda x: x[:, np.newaxis].squeeze().swapaxes(0, 1).astype("f4"),
    lambda x: divmod(x, 2.0)[1] + divmod(7.0, x)[0],
    lambda x: sum(x.flat) + x.flat[4] + len(x.flat),
    lambda x: (x > 0).astype(int)[0].choose([x[0], x[1]]),
    lambda x: x[np.ix_([0, 1], [0, 2])],
]


@pytest.mark.parametrize("program", CALLS)
def test_methods_of_arrays(program: Callable[[Any], Any]) -> None:
    expected = program(X.copy())
    for run in (program, hm.trace(program)):
        found = run(hm.tensor(X))
        assert isinstance(found, hm.Tensor) and found.shape == np.shape(expected)
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12)


def filled(x: Any) -> Any:
    y = x * 1.0
    y[0].fill(2.0)
    y.flat[3:5] = -1.0
    y.T.flat[-1] = 9.0
    y.put([1], 7.0)
    return y


def test_methods_that_write() -> None:
    expected = filled(X)
    for run in (filled, hm.trace(filled)):
        np.testing.assert_array_equal(run(hm.tensor(X)).numpy(), expected)


def test_views_share_memory() -> None:
    def shared(t: Any, u: Any) -> list[bool]:
        return [np.shares_memory(*pair) for pair in ((t, u), (t, t[0]), (t[0], t[1]), (t[:, 1:], t.T[1]), (t, t * 1))]

    for run in (shared, hm.trace(shared)):
        assert run(hm.tensor(X), hm.tensor(X)) == [False, True, False, True, False]


def test_values_by_place() -> None:
    t = hm.tensor(X)
    assert t.item(4) == X.item(4) and t.item(1, 2) == X.item(1, 2) and t.tobytes() == X.tobytes()
    assert round(t[1, 0], 0).item() == 0.0


def updated(x: Any) -> Any:
    y = x * 1.0
    np.add(y, 2.0, out=y)
    np.add(y, y, y)
    np.add.at(y, ([0, 0], [1, 1]), 10.0)
    np.negative.at(y, (1, 0))
    np.sum(x, axis=0, out=y[0])
    return y


def test_out_is_an_update_in_place_with_its_history() -> None:
    expected = updated(X)
    for run in (updated, hm.trace(updated)):
        np.testing.assert_allclose(run(hm.tensor(X)).numpy(), expected)
        grad = hm.grad(lambda t, run=run: run(t).sum())(hm.tensor(X))
        np.testing.assert_allclose(grad.numpy(), [[1, 1, 1], [-1, 3, 3]])


def test_out_keeps_the_tensor_and_is_seen_by_the_versions() -> None:
    x = hm.tensor(X, requires_grad=True)
    y = x * 1.0
    z = y * y
    assert np.add(y, 1.0, out=y) is y
    with pytest.raises(hm.GradientError, match="overwritten in place"):
        z.sum().backward()
    with pytest.raises(hm.GradientError, match="leaf"):
        np.add(x, 1.0, out=x)
    with pytest.raises(hm.DTypeError, match="does not fit"):
        np.add(X, 0.5, out=hm.tensor([[1, 2, 3], [4, 5, 6]]))


def test_out_may_be_an_array_where_no_gradient_is_lost() -> None:
    out = np.zeros(3)
    assert np.sum(hm.tensor(X), axis=0, out=out) is out
    np.testing.assert_allclose(out, X.sum(axis=0))
    array = X.copy()
    array += hm.tensor(X)
    np.testing.assert_allclose(array, 2 * X)
    with pytest.raises(hm.GradientError, match="out= is an array"):
        np.add(hm.tensor(X, requires_grad=True), 1.0, out=array)


WRITERS: list[Callable[[Any, Any], None]] = [
    lambda file, x: np.save(file, x),
    lambda file, x: np.savez(file, x, b=x),
    lambda file, x: np.savez_compressed(file, x),
    lambda file, x: np.savetxt(file, x, fmt="%.3f"),
]


@pytest.mark.parametrize("write", WRITERS)
def test_files_hold_the_values(write: Callable[[Any, Any], None]) -> None:
    def written(x: Any) -> bytes:
        file = io.BytesIO()
        write(file, x)
        return file.getvalue()

    expected = written(X)
    assert written(hm.tensor(X)) == written(hm.tensor(X, requires_grad=True)) == expected
    assert hm.trace(written)(hm.tensor(X)) == expected


def test_a_file_is_read_into_a_tensor(tmp_path: Path) -> None:
    X.tofile(tmp_path / "x")
    found = np.fromfile(tmp_path / "x", like=hm.tensor(X))
    assert isinstance(found, hm.Tensor) and found.tolist() == X.ravel().tolist()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda t: np.strings.str_len(t), "np.str_len: works on strings"),
        (lambda t: np.isnat(t), "np.isnat: works on dates"),
        (lambda t: np.is_busday(t), "np.is_busday: works on dates"),
        (lambda t: np.lib.recfunctions.drop_fields(t, "a"), "keep a dict of tensors"),
        (lambda t: np.average(t, weights=t[0]), "weights of shape"),
        (lambda t: np.quantile(t, 0.5, weights=t), "weights= is for method='inverted_cdf'"),
        (lambda t: np.sort(t, order="a"), "order= names fields"),
        (lambda t: np.max(t, where=X > 0), "where= needs initial="),
        (lambda t: np.putmask(np.zeros(3), [True, False, True], t), "writes into ndarray"),
        (lambda t: np.copyto(np.zeros(3, int), t), "into an array of int64; cast it"),
        (lambda t: np.power.at(t, 0, 2.0), "not supported on tensors"),
        (lambda t: np.matmul(t, t.T, axes=[(0, 1), (0, 1), (0, 1)]), "move the axes"),
        (lambda t: np.add(t, t, signature="dd->d"), "signature= is not supported"),
    ],
)
def test_what_is_not_there_says_what_to_use(call: Callable[[Any], Any], message: str) -> None:
    import numpy.lib.recfunctions

    assert numpy.lib.recfunctions
    with pytest.raises(hm.HybridmlError, match=message):
        call(hm.tensor(X))


def test_a_wrong_call_gets_numpys_error() -> None:
    with pytest.raises(TypeError, match="unexpected keyword"):
        np.sum(hm.tensor(X), axes=0)  # type: ignore[call-overload]


def test_other_types_have_their_turn() -> None:
    class Other:
        def __array_ufunc__(self, *args: Any, **kwargs: Any) -> str:
            return "ufunc of Other"

        def __array_function__(self, *args: Any, **kwargs: Any) -> str:
            return "function of Other"

    t = hm.tensor(X)
    assert np.add(t, Other()) == "ufunc of Other"
    assert np.concatenate([t, Other()]) == "function of Other"
