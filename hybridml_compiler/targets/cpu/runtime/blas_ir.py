"""The native half of blas.py: products of other conventions under our signature, and the hold of BLAS's threads."""

from __future__ import annotations

from typing import Any

from ..llvm.native import KINDS, Literal, Native, NativeBuilder, i32, native
from ..llvm.native import text as module_text
from ..spec import host_spec

ROW_MAJOR, NO_TRANS = 101, 111  # CBLAS's
I8, I32 = KINDS["i8"], KINDS["i32"]


def _gemm(letter: str, scalar: str, convention: str) -> Native:
    """`hml_sgemm` or `hml_dgemm`, by a function `sgemm` or `dgemm` of this convention."""

    @native(
        "void", *["i32"] * 3, *["i64"] * 3, scalar, "ptr", "i64", "ptr", "i64", scalar, "ptr", "i64",
        name=f"hml_{letter}gemm",
    )  # fmt: skip
    def gemm(
        c: NativeBuilder, order: Any, ta: Any, tb: Any, m: Any, n: Any, k: Any, alpha: Any, a: Any, lda: Any, b: Any,
        ldb: Any, beta: Any, out: Any, ldc: Any,
    ) -> None:  # fmt: skip
        m, n, k, lda, ldb, ldc = (c.trunc(x, I32) for x in (m, n, k, lda, ldb, ldc))
        if convention == "cblas_32":
            c.extern("void", f"{letter}gemm", order, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, out, ldc)
            return
        # Fortran knows columns first only: a row-major C = A B is the column-major C' = B' A', so the operands change
        # places.
        rows = order == ROW_MAJOR
        ta, tb = (c.select(t == NO_TRANS, Literal(I8, str(ord("N"))), Literal(I8, str(ord("T")))) for t in (ta, tb))
        (ta, tb), (m, n), (a, b), (lda, ldb) = (
            (c.select(rows, y, x), c.select(rows, x, y)) for x, y in ((ta, tb), (m, n), (a, b), (lda, ldb))
        )
        ta, tb, m, n, k, alpha, lda, ldb, beta, ldc = (
            _by_reference(c, x) for x in (ta, tb, m, n, k, alpha, lda, ldb, beta, ldc)
        )
        c.extern("void", f"{letter}gemm", ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, out, ldc)

    return gemm


def _by_reference(c: NativeBuilder, x: Any) -> Any:
    place = c.local(x.type.text)
    place.store(x)
    return place


def _saved(c: NativeBuilder) -> Any:
    """Holds the number of threads to give back, 0 if there is none. Between the last release and its `set_threads`
    another hold may begin: it then finds 1, saves nothing, and BLAS has its threads back a moment early."""
    return c.words("saved")


@native("void")
def hml_blas_hold(c: NativeBuilder) -> None:
    with c.if_then(c.words("count").update("add", 1, "seq_cst") == 0):
        threads = c.extern("i32", "get_threads")
        with c.if_then(threads != 1):
            _saved(c).store(threads, "seq_cst")
            c.extern("void", "set_threads", i32(1))


@native("void")
def hml_blas_release(c: NativeBuilder) -> None:
    with c.if_then(c.words("count").update("sub", 1, "seq_cst") == 1):
        threads = _saved(c).update("xchg", i32(0), "seq_cst")
        with c.if_then(threads != 0):
            c.extern("void", "set_threads", threads)


def text(what: str) -> str:
    """The module of the hold, or of the products of a convention."""
    gemms = [_gemm(letter, scalar, what) for letter, scalar in (("s", "float"), ("d", "double"))]
    return module_text(f"blas_{what}", host_spec(), *((hml_blas_hold, hml_blas_release) if what == "hold" else gemms))
