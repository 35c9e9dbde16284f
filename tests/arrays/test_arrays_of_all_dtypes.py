"""Functions of the array namespace on every dtype they take: the dtype of the result, its values beside those of a wide
dtype, both styles; and sizes 0 and 1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from tests.support.by_operation import by_operation

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FLOATS = ("float16", "bfloat16", "float32", "float64")
COMPLEX = ("complex64", "complex128")
REAL = (*INTEGERS, *FLOATS)
NUMBERS = (*REAL, *COMPLEX)
ALL = ("bool", *NUMBERS)
IDS = np.array([0, 2, 0, 1])

# name -> (function of a 4x5 and a 5x3 tensor, dtypes it takes, dtype of its result: "same", "sum" or a name)
FUNCTIONS: dict[str, tuple[Callable[[Any, Any], Any], tuple[str, ...], str]] = {
    "einsum": (lambda a, b: hm.einsum("ij,jk->ki", a, b), ALL, "same"),
    "einsum of one": (lambda a, b: hm.einsum("ij->j", a), ALL, "same"),
    "einsum of three": (lambda a, b: hm.einsum("ij,jk,jk->i", a, b, b), ALL, "same"),
    "tensordot": (lambda a, b: hm.tensordot(a, b, axes=1), NUMBERS, "same"),
    "inner": (lambda a, b: hm.inner(a, a), NUMBERS, "same"),
    "vecdot": (lambda a, b: hm.vecdot(a, a), ALL, "same"),
    "kron": (hm.kron, ALL, "same"),
    "outer": (hm.outer, ALL, "same"),
    "cross": (lambda a, b: hm.cross(b, b[::-1]), NUMBERS, "same"),
    "diagonal": (lambda a, b: a.diagonal(offset=1), ALL, "same"),
    "cumsum": (lambda a, b: hm.cumsum(a, 1), ALL, "sum"),
    "cumprod": (lambda a, b: hm.cumprod(a, 0), ALL, "sum"),
    "cumulative_sum": (lambda a, b: hm.cumulative_sum(a, axis=1, include_initial=True), ALL, "sum"),
    "cummax": (lambda a, b: hm.cummax(a, 1).values, ("bool", *REAL), "same"),
    "cummin": (lambda a, b: hm.cummin(a, 0).indices, ("bool", *REAL), "int64"),
    "logcumsumexp": (lambda a, b: hm.logcumsumexp(a, 1), FLOATS, "same"),
    "logsumexp": (lambda a, b: hm.logsumexp(a, 1), (*FLOATS, *COMPLEX), "same"),
    "diff": (lambda a, b: hm.diff(a, n=2), ALL, "same"),
    "aminmax": (lambda a, b: hm.aminmax(a, axis=0).max, REAL, "same"),
    "sort": (lambda a, b: hm.sort(a, axis=0, descending=True), ALL, "same"),
    "argsort": (lambda a, b: hm.argsort(a), ALL, "int64"),
    "lexsort": (lambda a, b: hm.lexsort(a), ("bool", *REAL), "int64"),
    "top_k": (lambda a, b: hm.top_k(a, 2).values, ("bool", *REAL), "same"),
    "kthvalue": (lambda a, b: hm.kthvalue(a, 2).indices, ("bool", *REAL), "int64"),
    "mode": (lambda a, b: hm.mode(a, 0).values, ALL, "same"),
    "searchsorted": (lambda a, b: hm.searchsorted(hm.sort(a[0]), b), ("bool", *REAL), "int64"),
    "digitize": (lambda a, b: hm.digitize(a, hm.sort(b[:, 0], descending=True)), REAL, "int64"),
    "unique": (lambda a, b: hm.unique_all(a).values, ALL, "same"),
    "unique_inverse": (lambda a, b: hm.unique_inverse(a).inverse_indices, ALL, "int64"),
    "isin": (lambda a, b: hm.isin(a, b[:, :1]), ("bool", *REAL), "bool"),
    "segment_sum": (lambda a, b: hm.segment_sum(a, hm.asarray(IDS), 4), NUMBERS, "same"),
    "segment_max": (lambda a, b: hm.segment_max(a, hm.asarray(IDS), 3), REAL, "same"),
    "gather": (lambda a, b: hm.gather(a, 0, hm.asarray(IDS[None] % 4)), ALL, "same"),
    "scatter": (lambda a, b: hm.scatter(a, 0, hm.asarray(np.array([[0, 3, 1]])), b), ALL, "same"),
    "scatter_reduce": (lambda a, b: hm.scatter_reduce(a, 0, hm.asarray(IDS[None] % 4), b.T, "prod"), NUMBERS, "same"),
    "index_add": (lambda a, b: hm.index_add(a, 0, hm.asarray(IDS), a), NUMBERS, "same"),
    "index_copy": (lambda a, b: hm.index_copy(a, 0, hm.asarray(IDS[1:3]), a[:2]), ALL, "same"),
    "masked_fill": (lambda a, b: hm.masked_fill(a, a == a[0], 1), ALL, "same"),
    "masked_scatter": (lambda a, b: hm.masked_scatter(a, a != a[0], b[..., None] == b[..., None]), ("bool",), "same"),
    "put_along_axis": (lambda a, b: hm.put_along_axis(a, hm.asarray(IDS[None, :1]), 1, 0), ALL, "same"),
    "select": (lambda a, b: hm.select([a == a[0]], [a], hm.zeros_like(a)), ALL, "same"),
    "choose": (lambda a, b: hm.choose(hm.asarray(IDS % 2), [a[:, 0], a[:, 1]]), ALL, "same"),
}  # fmt: skip


def tensors(dtype: str) -> tuple[hm.Tensor, hm.Tensor]:
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 4, (4, 5)), rng.integers(0, 3, (5, 3))
    if dtype in COMPLEX:
        a, b = a + 1j * rng.integers(0, 2, a.shape), b + 0j
    if dtype == "bool":
        a, b = a > 1, b > 1
    wide = "complex128" if dtype in COMPLEX else "bool" if dtype == "bool" else "float64"
    return tuple(hm.asarray(x.astype(wide)).astype(dtype) for x in (a, b))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_dtypes(name: str) -> None:
    function, accepted, result = FUNCTIONS[name]
    for dtype in accepted:
        args = tensors(dtype)
        eager = by_operation(lambda args=args: function(*args))
        traced = hm.trace(function, backend="interpret")(*args)
        sums = {"b": hm.int64, "i": hm.int64, "u": hm.uint64}.get(args[0].dtype.kind, args[0].dtype)
        wanted = {"same": args[0].dtype, "sum": sums}.get(result) or getattr(hm, result)
        assert eager.dtype is wanted and traced.dtype is wanted, dtype
        assert eager.shape == traced.shape
        found = np.asarray(eager.astype("complex128"))
        np.testing.assert_array_equal(found, np.asarray(traced.astype("complex128")), err_msg=dtype)
        if dtype == "bool":
            continue
        exact = function(*(t.astype("complex128" if dtype in COMPLEX else "float64") for t in args))
        close = {"float16": 2e-3, "bfloat16": 1e-2, "float32": 1e-6, "complex64": 1e-6}.get(dtype, 0)
        expected = np.asarray(exact.astype("complex128"))
        if args[0].dtype.kind == "u" and result == "same":  # what is less than 0 wraps
            expected = np.where(expected.real < 0, expected + 2.0 ** (8 * args[0].dtype.itemsize), expected)
        if np.all(np.isfinite(expected)):
            np.testing.assert_allclose(found, expected, rtol=max(close, 1e-12), atol=close, err_msg=dtype)


EDGES = [
    lambda x: hm.einsum("ij,kj->ik", x, x),
    lambda x: hm.kron(x, x),
    lambda x: hm.vecdot(x, x),
    lambda x: hm.cumprod(x, 0),
    lambda x: hm.cummax(x, 1),
    lambda x: hm.logcumsumexp(x, 0),
    lambda x: hm.logsumexp(x, 1),
    lambda x: hm.diff(x, axis=0),
    lambda x: hm.sort(x, axis=0),
    lambda x: hm.argsort(x, descending=True),
    lambda x: hm.top_k(x, x.shape[1]),
    lambda x: hm.searchsorted(x[:, 0] if x.shape[1] else x.reshape((0,)), x),
    lambda x: hm.unique_all(x),
    lambda x: hm.isin(x, x),
    lambda x: hm.segment_sum(x, hm.zeros((x.shape[0],), dtype=hm.int64), 2),
    lambda x: hm.gather(x, 0, hm.zeros((0, 0), dtype=hm.int64)),
    lambda x: hm.scatter(x, 1, hm.zeros((0, 0), dtype=hm.int64), 1.0),
    lambda x: hm.masked_select(x, x == x),
    lambda x: hm.select([x > 0], [x]),
    lambda x: x.diagonal(offset=1),
]


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (1, 1), (0, 0), (1, 4), (4, 1)])
def test_sizes(shape: tuple[int, int]) -> None:
    x = hm.asarray(np.arange(float(np.prod(shape))).reshape(shape))
    for function in EDGES:
        eager = by_operation(lambda function=function: function(x))
        traced = hm.trace(function, backend="interpret")(x)
        for a, b in zip(hm.tree_leaves(eager), hm.tree_leaves(traced), strict=True):
            assert a.shape == b.shape and a.dtype is b.dtype
            np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
