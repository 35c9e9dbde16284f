"""The matrix product of the process, under each signature it may come with."""

from __future__ import annotations

import ctypes
import itertools
import threading
from collections.abc import Callable

import numpy as np
import pytest

from hybridml_compiler.targets.cpu.runtime import blas

SHAPES = [(1, 1, 1), (3, 4, 5), (17, 1, 33), (64, 32, 16), (0, 3, 4), (5, 0, 4)]


def check(found: blas.Blas) -> None:
    rng = np.random.default_rng(0)
    kinds = [("f4", ctypes.c_float, found.sgemm, 1e-4), ("f8", ctypes.c_double, found.dgemm, 1e-12)]
    for (dtype, scalar, address, tolerance), (m, n, k), ta, tb in itertools.product(kinds, SHAPES, (0, 1), (0, 1)):
        a = rng.random((k, m) if ta else (m, k)).astype(dtype)
        b = rng.random((n, k) if tb else (k, n)).astype(dtype)
        c = rng.random((m, n)).astype(dtype)
        expected = 0.5 * (a.T if ta else a) @ (b.T if tb else b) + 2 * c
        pointers = [x.ctypes.data for x in (a, b, c)]
        rows = [max(1, x.shape[1]) for x in (a, b, c)]
        blas.function(address, scalar)(
            blas.ROW_MAJOR, 111 + ta, 111 + tb, m, n, k, 0.5, pointers[0], rows[0], pointers[1], rows[1], 2.0,
            pointers[2], rows[2],
        )  # fmt: skip
        np.testing.assert_allclose(c, expected, rtol=tolerance)


def test_the_products_agree_with_numpy() -> None:
    found = blas.find()
    symbols = blas.gemm_symbols()
    if found is None:
        assert symbols is None
    else:
        assert symbols == {"hml_sgemm": found.sgemm, "hml_dgemm": found.dgemm}
        check(found)


def test_column_major_order() -> None:
    pytest.importorskip("scipy")
    for found in (blas.find(), blas._from_scipy()):
        assert found is not None
        a, b = np.arange(6.0).reshape(2, 3), np.arange(12.0).reshape(3, 4)
        af, bf, c = np.asfortranarray(a), np.asfortranarray(b), np.zeros((2, 4), order="F")
        blas.function(found.dgemm, ctypes.c_double)(
            102, 111, 111, 2, 4, 3, 1.0, af.ctypes.data, 2, bf.ctypes.data, 3, 0.0, c.ctypes.data, 2
        )
        np.testing.assert_array_equal(c, a @ b)


def test_scipys_fortran_entry_points() -> None:
    pytest.importorskip("scipy")
    found = blas._from_scipy()
    assert found is not None and found.integer_bits == 32
    check(found)


def test_a_library_with_32_bit_integers() -> None:
    pytest.importorskip("scipy.linalg")
    narrow = [path for path in blas._libraries() if "scipy.libs" in path]
    found = [blas._in_library(ctypes.CDLL(path), path) for path in narrow]
    for library in filter(None, found):
        check(library)


def holds() -> tuple[Callable[[], None], Callable[[], None]]:
    symbols = blas.hold_symbols()
    hold, release = (ctypes.CFUNCTYPE(None)(symbols[name]) for name in ("hml_blas_hold", "hml_blas_release"))
    return hold, release


def test_threads_are_held_at_one() -> None:
    found = blas.find()
    if found is None or found.threads is None:  # nothing to hold
        return
    get = ctypes.CFUNCTYPE(ctypes.c_int32)(found.threads[0])
    put = ctypes.CFUNCTYPE(None, ctypes.c_int32)(found.threads[1])
    hold, release = holds()
    before = get()
    for count in (3, 1):
        put(count)
        hold()
        hold()
        assert get() == 1
        release()
        assert get() == 1
        release()
        assert get() == count
    put(before)


def test_threads_come_back_after_steps_at_one_time() -> None:
    found = blas.find()
    if found is None or found.threads is None:  # nothing to hold
        return
    get = ctypes.CFUNCTYPE(ctypes.c_int32)(found.threads[0])
    put = ctypes.CFUNCTYPE(None, ctypes.c_int32)(found.threads[1])
    hold, release = holds()
    before = get()
    put(2)

    def steps() -> None:
        for _ in range(2000):
            hold()
            release()

    workers = [threading.Thread(target=steps) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert get() == 2
    put(before)


def test_without_thread_control_the_symbols_do_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blas, "find", lambda: None)
    for address in blas.hold_symbols().values():
        ctypes.CFUNCTYPE(None)(address)()


def test_nothing_found_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blas, "NAMES", ())
    monkeypatch.setattr(blas, "_from_scipy", lambda: None)
    assert blas.find.__wrapped__() is None


def test_a_product_that_is_wrong_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blas, "_works", lambda found: False)
    assert blas.find.__wrapped__() is None
