"""Tensor in eager programs: interop, conversion, indexing, promotion, in-place updates, views, display."""

from __future__ import annotations

import array
import copy
import inspect
import math
import operator
import pickle
import threading
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml.core.codegen import source_of
from hybridml_compiler.ops.table import OPS

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)

KEYS = [
    0, -1, (1, 2), (0, 1, 3), slice(None), (slice(None), slice(1, 3)), (..., 0), (0, ...), (..., slice(None, None, -1)),
    (slice(None, None, -2), 1), None, (None, 0, ..., None), (slice(5, 0, -2),), (slice(2, 2), 1), ...,
    (slice(-2, None), -3),
    (slice(None), [2, 0]), (slice(None), np.array([[0, 1], [2, 2]])), (0, [1, -1]), (slice(1), slice(None), [3]), [],
]  # fmt: skip


@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("key", KEYS, ids=str)
def test_getitem_is_numpy(key: object, recorded: bool) -> None:
    x = hm.tensor(X, requires_grad=recorded)
    expected = X[key] if key != [] else X[np.array([], dtype=int)]
    assert np.array_equal(x[key].detach(), expected)
    assert x[key].shape == expected.shape
    if recorded and expected.size:
        x[key].sum().backward()
        counts = np.zeros_like(X)
        np.add.at(counts, key, 1)
        assert np.array_equal(x.grad, counts)


def test_masks() -> None:
    x = hm.tensor(X)
    assert np.array_equal(x[x > 7], X[X > 7])
    assert np.array_equal(x[np.array([True, False])], X[[True, False]])
    x[x > 7] = -1
    assert np.array_equal(x, np.where(X > 7, -1, X))
    with pytest.raises(hm.ShapeError, match="mask of shape"):
        x[hm.asarray([True])]


@pytest.mark.parametrize("key", KEYS[:16], ids=str)
def test_setitem_is_numpy(key: object) -> None:
    x, expected = hm.tensor(X), X.copy()
    x[key] = 7
    expected[key] = 7
    assert np.array_equal(x, expected)


def test_setitem_broadcasts_and_checks() -> None:
    x = hm.zeros((2, 3))
    x[:, 1:] = hm.tensor([1.0, 2.0])
    x[0, [0, 2]] = hm.tensor([5.0, 6.0])
    assert x.tolist() == [[5, 1, 6], [0, 1, 2]]
    with pytest.raises(hm.ShapeError, match="does not fit"):
        x[0] = hm.ones((2,))
    with pytest.raises(hm.DTypeError, match="does not fit"):
        hm.zeros((2,), dtype=hm.int64)[:] = hm.ones((2,))
    with pytest.raises(hm.OutOfBoundsError, match="out of bounds for axis 1"):
        x[0, 3] = 1


@pytest.mark.parametrize(
    ("key", "error", "match"),
    [
        (2, hm.OutOfBoundsError, "index: 2 is out of bounds for axis 0 of f32"),
        ((0, 0, 0, 0), hm.OutOfBoundsError, "4 indices for f32"),
        ((..., ...), hm.ArgumentError, "one '...'"),
        ("a", hm.ArgumentError, "cannot index"),
        (slice(None, None, 0), hm.ArgumentError, "step cannot be 0"),
        (True, hm.ArgumentError, "Python bool is not an index"),
        (hm.ones((2,)), hm.ArgumentError, "must hold integers"),
        ([5], hm.OutOfBoundsError, "out of range"),
        (([0, 1], [0, 5]), hm.OutOfBoundsError, "index: index 5 is out of range for axis 1"),
        (([0, 1], [0, 1, 2]), hm.ShapeError, "index arrays of shapes .* do not broadcast"),
    ],
)
def test_index_errors(key: object, error: type[Exception], match: str) -> None:
    for x in (hm.tensor(X), hm.tensor(X, requires_grad=True)):
        with pytest.raises(error, match=match):
            x[key]
    assert issubclass(hm.OutOfBoundsError, IndexError)


def test_numpy_both_ways() -> None:
    a = np.zeros(3, np.float32)
    t = hm.asarray(a)
    t += 1
    a[0] = 5
    assert t.tolist() == [5, 1, 1] and np.shares_memory(t.numpy(), a)
    assert np.array_equal(np.asarray(t) + 1, [6, 2, 2])
    copied = hm.tensor(a)
    a[:] = 0
    assert copied.tolist() == [5, 1, 1]
    assert type(a * t) is hm.Tensor and type(np.float64(2) * t) is hm.Tensor
    assert (np.float64(2) * t).dtype is hm.float32
    assert type(np.sqrt(t)) is hm.Tensor and np.sum(t, axis=0).item() == 0
    assert np.array_equal(np.from_dlpack(t), a) and np.array_equal(hm.from_dlpack(a), a)
    assert np.median(hm.tensor([1.0, 2.0, 9.0])) == 2
    assert np.shares_memory(hm.from_numpy(a).numpy(), a)
    assert hm.asarray(np.zeros(2, ">f4")).dtype is hm.float32
    with pytest.raises(hm.GradientError, match="detach"):
        hm.tensor([1.0], requires_grad=True).numpy()


def test_a_shape_and_a_size_are_refused_with_a_way_out() -> None:
    with pytest.raises(
        hm.DTypeError, match=r"3 is not a data type \(a shape is one argument, as in zeros\(\(2, 3\)\)\)"
    ):
        hm.zeros((2,), 3)


@pytest.mark.parametrize("dtype", ["datetime64[s]", "U3", "object"])
def test_foreign_dtypes_are_refused(dtype: str) -> None:
    with pytest.raises(hm.DTypeError):
        hm.asarray(np.zeros(2, dtype))


def test_python_scalars_are_weak() -> None:
    f, d, i, b = (
        hm.ones((2,)),
        hm.ones((2,), dtype=hm.float64),
        hm.ones((2,), dtype=hm.int32),
        hm.asarray([True, False]),
    )
    assert (f * 2).dtype is hm.float32 and (d * 2.5).dtype is hm.float64
    assert (i * 2).dtype is hm.int32 and (i * 2.5).dtype is hm.float32 and (b * 2).dtype is hm.int64
    assert (i / 2).dtype is hm.float32 and (1 - b.astype(hm.int8)).dtype is hm.int8
    assert (f + d).dtype is hm.float64 and (i + f).dtype is hm.float32
    assert (-0.0 * f + -0.0).tolist() == [0, 0] and math.copysign(1, (f * -0.0)[0].item()) == -1
    with pytest.raises(hm.ArgumentError, match="300 does not fit uint8"):
        hm.ones((2,), dtype=hm.uint8) + 300
    assert (2 ** hm.asarray([1.0, 3.0])).tolist() == [2, 8]
    assert (7 // hm.asarray([2, 3])).tolist() == [3, 2] and (7 % hm.asarray([4, 3])).tolist() == [3, 1]


def test_operators_ask_foreign_types() -> None:
    class Foreign:
        def __radd__(self, other: object) -> str:
            return "mine"

    x = hm.ones((2,))
    assert x + Foreign() == "mine"
    assert operator.eq(x, None) is False and operator.ne(x, "a") is True
    with pytest.raises(TypeError, match="unsupported operand"):
        x + "a"
    with pytest.raises(hm.DTypeError, match="add: y must be a tensor, an array or a number, got str"):
        hm.add(x, "a")
    assert len({x: 1, hm.ones((2,)): 2}) == 2  # by identity


def test_conversion_to_python() -> None:
    assert hm.tensor([[3]]).item() == 3 and float(hm.tensor(2.5)) == 2.5 and int(hm.tensor([4.7])) == 4
    assert [10, 20, 30][hm.tensor(1)] == 20
    assert bool(hm.tensor([0.0])) is False and 2.0 in hm.tensor([1.0, 2.0])
    for call, match in [
        (lambda: hm.ones((2,)).item(), "exactly one element"), (lambda: bool(hm.ones((2,))), "ambiguous"),
        (lambda: len(hm.tensor(1.0)), "no length"),
    ]:  # fmt: skip
        with pytest.raises(hm.ShapeError, match=match):
            call()
    with pytest.raises(hm.DTypeError, match="index must be an integer"):
        [1, 2][hm.tensor(1.0)]
    assert [t.item() for t in hm.arange(3)] == [0, 1, 2]
    assert f"{hm.tensor(1.23456):.2f}" == "1.23"


def test_float_results_raise_no_warning_in_any_thread() -> None:
    found: list[object] = []

    def work() -> None:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                found.append((hm.ones((2,)) / hm.zeros((2,))).tolist())
                found.append(hm.log(hm.zeros((1,))).tolist())
        except Exception as error:
            found.append(error)

    work()
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [[math.inf] * 2, [-math.inf]] * 2


def test_in_place() -> None:
    x = hm.tensor([1.0, 2.0])
    y = x
    x += 1
    x *= hm.tensor([2.0, 3.0])
    assert y is x and x.tolist() == [4, 9]
    assert x.add_(1).sub_(2).mul_(3).div_(2).tolist() == [4.5, 12]
    assert x.copy_(hm.tensor(7.0)).tolist() == [7, 7] and x.zero_().tolist() == [0, 0] and x.fill_(3).tolist() == [3, 3]
    assert x.clamp_(max=2).tolist() == [2, 2]
    i = hm.tensor([5, 7])
    i //= 2
    assert i.tolist() == [2, 3]
    with pytest.raises(hm.DTypeError, match="does not fit a int64 tensor"):
        i += 0.5
    with pytest.raises(hm.ShapeError, match="does not fit a tensor of shape"):
        x += hm.ones((3, 2))
    with pytest.raises(hm.ShapeError, match="read-only"):
        hm.ones((1,)).broadcast_to((3,)).add_(1)


def test_views_share_memory() -> None:
    x = hm.zeros((2, 3))
    x[0] += 1
    x.reshape(3, 2)[2, 1] = 5
    x.T[1] = 9
    assert x.tolist() == [[1, 9, 1], [0, 9, 5]]


def test_methods() -> None:
    x = hm.tensor(X)
    assert x.view(6, 4).shape == (6, 4) and x.reshape((4, 6)).shape == (4, 6) and x.reshape(-1).shape == (24,)
    assert x.permute(2, 0, 1).shape == (4, 2, 3) and x.transpose(0, 2).shape == (4, 3, 2) and x.T.shape == (4, 3, 2)
    assert x.mT.shape == (2, 4, 3) and x.flatten(1).shape == (2, 12) and x.flatten().shape == (24,)
    assert x.unsqueeze(1).squeeze(1).shape == x.shape and x[:1].squeeze().shape == (3, 4)
    assert x[:1].expand(5, -1, 4).shape == (5, 3, 4) and hm.ones((3,)).expand(2, 3).shape == (2, 3)
    assert [p.shape for p in x.split(2, 2)] == [(2, 3, 2)] * 2 and [p.shape[1] for p in x.chunk(2, 1)] == [2, 1]
    assert np.array_equal(x.masked_fill(x > 3, 0.0), np.where(X > 3, 0, X))
    assert x.numel() == x.size == 24 and x.dim() == x.ndim == 3 and x.nbytes == 96 and x.device == "cpu"
    assert x.double().dtype is hm.float64 and x.long().dtype is hm.int64 and x.to("cpu") is x and x.to(hm.float32) is x
    assert np.allclose(x.std(0), X.std(0)) and x.contiguous() is x and x.T.contiguous().shape == (4, 3, 2)
    assert np.array_equal(x.clip(2, 5), X.clip(2, 5)) and np.array_equal(x.clip(min=3), X.clip(3))
    with pytest.raises(hm.ShapeError):
        x.flatten(2, 1)
    with pytest.raises(hm.ArgumentError, match="not available"):
        x.to("mps")


def test_array_api_functions() -> None:
    x = hm.tensor(X)
    assert hm.stack([x, x], axis=1).shape == (2, 2, 3, 4) and hm.concat([x, x], axis=-1).shape == (2, 3, 8)
    assert np.array_equal(hm.roll(x, 2, axis=1), np.roll(X, 2, 1)) and np.array_equal(
        hm.tile(x, (2, 1)), np.tile(X, (2, 1))
    )
    assert np.array_equal(hm.repeat(x, 2, axis=1), np.repeat(X, 2, 1))
    assert np.array_equal(hm.moveaxis(x, 0, -1), np.moveaxis(X, 0, -1))
    assert np.allclose(hm.tensordot(x, x, axes=([0, 2], [0, 2])), np.tensordot(X, X, ([0, 2], [0, 2])))
    assert [g.shape for g in hm.meshgrid(hm.arange(3), hm.arange(2))] == [(2, 3)] * 2
    assert hm.arange(2, 10, 3).tolist() == [2, 5, 8] and hm.linspace(0, 1, 3).tolist() == [0, 0.5, 1]
    assert hm.eye(2, 3, k=1).tolist() == [[0, 1, 0], [0, 0, 1]] and hm.full((2,), 3).dtype is hm.int64
    assert hm.zeros_like(x, dtype=hm.int8).dtype is hm.int8 and hm.full_like(x, 2.0).shape == x.shape
    assert hm.result_type(hm.int32, 1.0) is hm.float32 and hm.isdtype(hm.int8, "integral") and hm.finfo(x).bits == 32
    assert hm.can_cast(hm.int8, hm.int16) and not hm.can_cast(hm.float64, hm.float32)
    assert x.__array_namespace__() is hm
    assert hm.broadcast_shapes((3, 1), (2,)) == (3, 2) and hm.outer(hm.arange(2), hm.arange(3)).shape == (2, 3)


def test_asarray() -> None:
    assert (
        hm.asarray([1, 2]).dtype is hm.int64
        and hm.asarray([1, 2.0]).dtype is hm.float32
        and hm.asarray([]).dtype is hm.float32
    )
    assert hm.asarray(True).dtype is hm.bool and hm.asarray([[1], [2]], dtype="float64").dtype is hm.float64
    assert hm.asarray(np.float64(2)).dtype is hm.float64
    x = hm.tensor([1.0, 2.0], requires_grad=True)
    stacked = hm.asarray([x[0], x[1] * 2])
    stacked.sum().backward()
    assert x.grad.tolist() == [1, 2]
    for bad, error in [([[1], [1, 2]], hm.ShapeError), ("abc", hm.DTypeError), (object(), hm.DTypeError)]:
        with pytest.raises(error):
            hm.asarray(bad)
    with pytest.raises(hm.ArgumentError, match="copy=False"):
        hm.asarray([1], copy=False)


class Series:
    """As pandas' Series and DataFrame are to NumPy: `__array__`, neither a list nor an array."""

    def __init__(self, values: object) -> None:
        self.values = values

    def __array__(self, dtype: object = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.values, dtype=dtype)

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: object) -> object:
        return self.values[index]


@pytest.mark.parametrize("style", [lambda f: f, hm.trace], ids=["eager", "traced"])
@pytest.mark.parametrize(
    ("make", "dtype"),
    [
        (Series, "float64"),
        (lambda a: [Series(a), Series(a)], "float64"),
        (lambda a: array.array("d", a), "float64"),
        (lambda a: array.array("f", a), "float32"),
        (memoryview, "float64"),
        (lambda a: Series(a.astype(complex)), "complex128"),
        (lambda a: Series(a.astype(np.int32)), "int32"),
        (lambda a: Series(a[:0]), "float64"),
        (lambda a: a.tolist(), "float32"),
    ],
)
def test_what_has_a_dtype_keeps_it(style: Any, make: Any, dtype: str) -> None:
    """And its values: 16777217 is no float32."""
    given = make(np.array([16777217.0]))
    expected = np.asarray(given, dtype).tolist()
    for t in style(lambda x: (hm.asarray(given) * x, hm.tensor(given) * x))(hm.ones((), dtype=hm.int8)):
        assert t.dtype == dtype and t.tolist() == expected
    assert hm.asarray(given, dtype="complex64").dtype is hm.complex64


def test_numbers_of_a_trace_have_no_dtype() -> None:
    def f(x: hm.Tensor, n: int, a: float) -> hm.Tensor:
        return hm.asarray([n, 0.5]) * x + hm.asarray([a, 1]) * x

    traced, x = hm.trace(f), hm.ones((2,))
    for n, a in ((2, 1.5), (3, 2.5), (4, 3.5)):
        assert (
            traced(x, n, a).dtype is f(x, n, a).dtype is hm.float32 and traced(x, n, a).tolist() == f(x, n, a).tolist()
        )


def test_display() -> None:
    assert repr(hm.tensor([1.0, 2.5])) == "Tensor([1.0, 2.5])"
    assert repr(hm.tensor([1], dtype=hm.int8)) == "Tensor([1], dtype=int8)"
    x = hm.tensor(2.0, requires_grad=True)
    assert repr(x) == "Tensor(2., requires_grad=True)" and "grad_fn=<multiply>" in repr(x * x)
    text = hm.tensor([[1.0, math.nan]])._repr_html_()
    assert "1 × 2" in text and "float32" in text and "not finite" in text
    assert "shape=(300,)" in repr(hm.zeros((300,)))


def test_copies() -> None:
    x = hm.tensor([1.0, 2.0], requires_grad=True)
    for y in (pickle.loads(pickle.dumps(x)), copy.deepcopy(x)):
        assert y.tolist() == [1, 2] and y.requires_grad and y is not x and y.dtype is hm.float32
        assert (y + y).tolist() == [2, 4]
    assert copy.deepcopy([x, x])[0] is not x
    with pytest.raises(hm.GradientError):
        copy.deepcopy(x * 2)
    for style in (lambda f: f, hm.trace):
        y = style(lambda x: copy.deepcopy(x).mul_(2.0) if x.ndim else copy.deepcopy(x))(x.detach())
        assert y.tolist() == [2, 4] and x.tolist() == [1, 2] and not y.requires_grad
        y = style(lambda x: copy.deepcopy(x))(x)
        assert y.tolist() == [1, 2] and y.requires_grad and y.is_leaf and not np.shares_memory(y.detach(), x.detach())


@pytest.mark.usefixtures("source_lines")
def test_errors_name_the_users_line() -> None:
    with pytest.raises(hm.ShapeError, match=r"shapes f32\[3\] and f32\[4\] do not broadcast") as found:
        hm.ones((3,)) + hm.ones((4,))
    assert "test_eager_tensor.py" in str(found.value) and "hm.ones((3,)) + hm.ones((4,))" in str(found.value)
    with pytest.raises(TypeError, match="missing"):
        hm.reshape(hm.ones((3,)))


def test_a_match_is_not_found_in_the_line_of_a_test() -> None:
    with pytest.raises(hm.ShapeError, match=r"do not broadcast.*\n  at .*:[0-9]+$") as found:
        hm.ones((3,)) + hm.ones((4,))  # not in the message
    assert "not in the message" not in str(found.value) and "not in the message" in repr(found.value)


def test_generated_source_is_readable() -> None:
    assert source_of(OPS["multiply"]).startswith("def multiply(x, y, /):")
    assert (hm.add.__doc__ or "").startswith("x + y. Integers wrap; of bools: logical or, as NumPy.\n")
    assert hm.Tensor.add is hm.add


def test_the_names_that_completion_offers() -> None:
    """Functions that are imported when first used are offered, what the package imports for itself is not."""
    offered = set(dir(hm))
    assert {"compare", "nn", "exp", "zeros", "trace", "float32", "set_num_threads", "__version__"} <= offered
    assert not {"Any", "TYPE_CHECKING", "annotations", "importlib", "codegen"} & offered
    assert all(hasattr(hm, name) for name in offered)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda x: x + hm.ones((4,)),
        lambda x: x.reshape((5,)),
        lambda x: x @ x,
        lambda x: x.sum(axis=3),
        lambda x: hm.concat([x, hm.ones((2,))]),
    ],
)
def test_an_error_is_the_only_one_in_its_traceback(wrong: Callable[[hm.Tensor], object]) -> None:
    """Neither NumPy's own words nor a key that was not found stand above it."""
    with pytest.raises(hm.ShapeError) as found:
        wrong(hm.ones((2, 3)))
    assert "another exception" not in "".join(traceback.format_exception(found.value))


def test_parameters_that_are_equal_and_not_the_same() -> None:
    """What has been checked once is known by its parameters: (2.0, 3) and -0.0 are others than (2, 3) and 0.0."""
    x = hm.ones((2, 3))
    hm.reshape(x, (2, 3))
    with pytest.raises(hm.ArgumentError, match="must be an integer"):
        hm.reshape(x, (2.0, 3))
    pad = OPS["pad"].fn
    signs = [np.signbit(pad(x, widths=((1, 0), (0, 0)), value=v).numpy()[0]).all() for v in (0.0, -0.0, 0.0)]
    assert signs == [False, True, False]


@pytest.mark.parametrize("style", [lambda f: f, hm.trace], ids=["eager", "traced"])
def test_where_complex_numbers_are_refused_nothing_advises_to_drop_their_imaginary_parts(style: Any) -> None:
    x = hm.ones((2,), dtype=hm.complex64)
    for call in (hm.functional.relu, lambda x: x < x, lambda x: x.max()):
        with pytest.raises(hm.DTypeError, match=r"got c64\[2\].*; take real, imag or abs of complex numbers first"):
            style(call)(x)
    with pytest.raises(hm.DTypeError, match="convert with astype first"):
        style(lambda x: x & x)(hm.ones((2,)))


def test_what_is_made_does_not_depend_on_equal_values_before() -> None:
    for value in (1, True, 1.0, 1 + 0j, True, 1):
        assert hm.full(2, value).dtype == hm.tensor(value).dtype, value
    assert [hm.arange(stop).dtype for stop in (2, 2.0, 2)] == [hm.int64, hm.float32, hm.int64]


def test_the_function_of_a_row_tells_its_types_and_where_it_is_written() -> None:
    assert str(inspect.signature(hm.exp)) == "(x: 'Tensor', /) -> 'Tensor'"
    assert "keepdims: 'bool' = False" in str(inspect.signature(hm.Tensor.sum))
    assert (hm.exp.__doc__ or "").endswith("A row of hybridml_compiler/ops/analytic.py.")
    assert (Path(hm.__file__).parents[1] / "hybridml_compiler/ops/analytic.py").exists()
