"""Composites of float16 and bfloat16 sum in float32 and round once; lengths of complex numbers are real.

The values are PyTorch 2.13's on the CPU, where it has the function for the dtype, and else those of float32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hybridml as hm

F, L = hm.functional, hm.linalg
A = [[300.0, 2.0, 1.0, -250.0], [1.0, 2.0, 3.0, 4.0]]
B = [[-300.0, 5.0, 1.0, 100.0], [7.0, 8.0, 9.0, 10.0]]
LAST = hm.full((400,), 3, dtype=hm.int64)
IMAGE = [[[[300.0, 2, 1, 4], [250, 3, 2, 1]], [[1.0, 2, 3, 4], [500, 600, 700, 800]]]]


def narrow(values: Any, dtype: Any = hm.float16) -> hm.Tensor:
    return hm.asarray(values, dtype=dtype)


# Name -> (function of tensors made of A, B and IMAGE, first values of PyTorch in float16).
PINNED: dict[str, tuple[Callable[[Any, Any, Any], Any], list[float]]] = {
    "layer_norm": (lambda a, b, i: F.layer_norm(a, (4,)), [1.472, -0.05774, -0.06287, -1.352]),
    "rms_norm": (lambda a, b, i: F.rms_norm(a, (4,)), [1.536, 0.01025, 0.005123, -1.28]),
    "rms_norm, eps": (lambda a, b, i: F.rms_norm(a * 0 + 0.01, (4,)), [0.999] * 4),
    "batch_norm": (lambda a, b, i: F.batch_norm(a, None, None, training=True), [1.0, 0.0, -1.0, -1.0]),
    "group_norm": (lambda a, b, i: F.group_norm(i, 1), [0.3618, -0.6987, -0.7021, -0.6914]),
    "instance_norm": (lambda a, b, i: F.instance_norm(i), [1.933, -0.5757, -0.584, -0.5586]),
    "vector_norm": (lambda a, b, i: L.vector_norm(a[0]), [390.5]),
    "vector_norm of order 3": (lambda a, b, i: L.vector_norm(a[0], ord=3), [349.2]),
    "matrix_norm": (lambda a, b, i: L.matrix_norm(a), [390.5]),
    "norm": (lambda a, b, i: L.norm(a[0]), [390.5]),
    "normalize": (lambda a, b, i: F.normalize(a), [0.7681, 0.005123, 0.002562, -0.6401]),
    "cosine_similarity": (lambda a, b, i: F.cosine_similarity(a, b), [-0.9312, 0.9585]),
    "pairwise_distance": (lambda a, b, i: F.pairwise_distance(a, b), [694.5, 12.0]),
    "triplet": (lambda a, b, i: F.triplet_margin_loss(a, b, -a), [1.023]),
    "avg_pool": (lambda a, b, i: F.avg_pool2d(i * 80, 2), [11100.0, 160.0, 22060.0, 30140.0]),
    "adaptive_avg_pool": (lambda a, b, i: F.adaptive_avg_pool2d(i * 80, (1, 3)), [11100.0, 160.0, 160.0]),
    "mse_loss": (lambda a, b, i: F.mse_loss(a[1] * 50, b[1] * 50 - 100), [40000.0]),
    "cross_entropy": (lambda a, b, i: F.cross_entropy(hm.broadcast_to(a[:1], (400, 4)), LAST), [550.0]),
    "average": (lambda a, b, i: hm.average(a[0] * 200, weights=a[1]), [-13860.0]),
    "nanmean": (lambda a, b, i: hm.nanmean(a[0] * 0 + 60000), [60000.0]),
    "nanstd": (lambda a, b, i: hm.nanstd(a[0]), [194.9]),
    "corrcoef": (lambda a, b, i: hm.corrcoef(a), [1.0, -0.9478]),
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", PINNED)
def test_sums_are_wide(name: str, dtype: str) -> None:
    f, want = PINNED[name]
    got = f(*(narrow(v, dtype) for v in (A, B, IMAGE)))
    assert got.dtype == getattr(hm, dtype)
    exact = f(*(narrow(v, dtype).astype(hm.float32) for v in (A, B, IMAGE)))
    step = 2.0**-10 if dtype == "float16" else 2.0**-7
    with np.errstate(over="ignore"):
        rounded = exact.astype(got.dtype).astype(hm.float32).numpy()
    np.testing.assert_allclose(got.astype(hm.float32).numpy(), rounded, rtol=2 * step, atol=1e-6)
    if dtype == "float16":
        np.testing.assert_allclose(got.numpy().ravel()[: len(want)], want, rtol=2e-3, atol=2e-3)
    traced = hm.trace(f)(*(narrow(v, dtype) for v in (A, B, IMAGE)))
    assert traced.dtype is got.dtype and traced.tolist() == got.tolist()


def test_gradients_are_wide_too() -> None:
    x = narrow(A[0]).requires_grad_()
    L.vector_norm(x).backward()
    assert x.grad.dtype == hm.float16
    np.testing.assert_allclose(x.grad.numpy(), [0.7681, 0.00512, 0.00256, -0.6401], rtol=2e-3)


def test_a_wider_argument_keeps_its_dtype() -> None:
    weight, running = hm.ones(4), hm.zeros(4, dtype=hm.float16)
    assert F.layer_norm(narrow(A), (4,), weight).dtype == hm.float32
    found = F.batch_norm(narrow(A), running, running + 1, training=True)
    assert found.dtype == hm.float16 and running.dtype == hm.float16 and running.tolist()[0] != 0


Z, W = [3 + 4j, 1j], [0j, 1 + 1j]


def test_lengths_of_complex_vectors_are_real() -> None:
    z = hm.asarray(Z)
    for found, want in (
        (F.pairwise_distance(z, 0 * z), [5.099]),
        (F.cdist(hm.asarray([Z]), hm.asarray([W])), [[5.099]]),
        (F.pdist(hm.asarray([Z, W])), [5.099]),
        (F.l1_loss(z, hm.asarray(W)), 3.0),
    ):
        assert found.dtype == hm.float32
        np.testing.assert_allclose(found.numpy().ravel(), np.ravel(want), rtol=1e-3)
    np.testing.assert_allclose(F.normalize(z, dim=0).numpy(), np.array(Z) / 26**0.5, rtol=1e-6)


@pytest.mark.parametrize("style", [lambda f: f, hm.trace], ids=["eager", "traced"])
def test_formulas_for_real_numbers_refuse_complex_ones(style: Any) -> None:
    z, w, rows = hm.asarray(Z), hm.asarray(W), hm.asarray([Z, W])
    for call in (
        lambda: F.mse_loss(z, w),
        lambda: F.smooth_l1_loss(z, w),
        lambda: F.huber_loss(z, w),
        lambda: F.nll_loss(rows, hm.tensor([0, 1])),
        lambda: F.cosine_similarity(rows, rows),
        lambda: F.layer_norm(rows, (2,)),
        lambda: F.rms_norm(rows, (2,)),
        lambda: F.batch_norm(rows, None, None, training=True),
        lambda: F.group_norm(rows, 1),
        lambda: F.instance_norm(rows[None]),
        lambda: F.local_response_norm(rows[None], 2),
        lambda: F.lp_pool1d(rows[None], 2, 2),
    ):
        with pytest.raises(hm.DTypeError, match="takes real numbers, got complex64"):
            style(call)()
