"""CuPy's functions for rows without a kernel, on the arrays of the stand-in: NumPy and SciPy compute them.

They take what CuPy's own take and no more, work in memory of the allocator in force, and refuse a captured stream. A
singular matrix is an error only where it is asked to be one, as in CuPy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
from scipy import linalg, special

# Used as they are, since CuPy computes them by kernels of its own.
KERNELS = (
    "broadcast_to", "concatenate", "cumprod", "diagonal", "flip", "frexp", "full_like", "gcd", "isfinite", "lcm",
    "ldexp", "matmul", "moveaxis", "ones", "ones_like", "stack", "take_along_axis", "where", "zeros",
)  # fmt: skip


class Libraries:
    """The libraries that CuPy asks, over the memory and streams of a `Runtime`. `missing`: those that are not there."""

    def __init__(self, runtime: Any) -> None:
        self.runtime, self.raises, self.missing = runtime, False, set[str]()

    def refuse_if_missing(self, library: str) -> None:
        if library in self.missing:
            raise ImportError(f"lib{library}.so: cannot open shared object file")

    def call(self, library: str, compute: Callable[..., Any]) -> Callable[..., Any]:
        """A function by a library, in memory of the allocator in force."""

        def run(*arguments: Any, **options: Any) -> Any:
            self.refuse_if_missing(library)
            self.runtime.calls.append(library)
            self.runtime.current.refuse_if_captured()
            try:
                workspace = self.runtime.allocator and self.runtime.allocator(64)
            except MemoryError:
                raise MemoryError("std::bad_alloc") from None  # as Thrust says it
            if workspace is not None:
                self.runtime.view(workspace.address)[:64] = 0
            try:
                return compute(*arguments, **options)
            except np.linalg.LinAlgError:
                assert self.raises, "CuPy says nothing of a singular matrix, unless it is told to"
                raise

        return run

    @contextmanager
    def errstate(self, linalg: str) -> Iterator[None]:
        assert linalg == "raise"
        self.raises = True
        try:
            with np.errstate(all="ignore"):  # as CuPy says nothing of overflows
                yield
        finally:
            self.raises = False

    @contextmanager
    def using_allocator(self, allocator: Callable[[int], Any]) -> Iterator[None]:
        before, self.runtime.allocator = self.runtime.allocator, allocator
        try:
            yield
        finally:
            self.runtime.allocator = before

    def cupy(self) -> dict[str, Any]:
        """Names of the module `cupy`."""
        solver = {name: self.call("cusolver", getattr(np.linalg, name)) for name in SOLVER}
        solver["solve"], solver["pinv"] = self.call("cusolver", _solve), self.call("cusolver", _pinv)
        transforms = {name: self.call("cufft", getattr(np.fft, name)) for name in TRANSFORMS}
        cache = SimpleNamespace(clear=lambda: self.runtime.calls.append("plans dropped"))
        return {
            **{name: getattr(np, name) for name in KERNELS},
            "sort": self.call("thrust", lambda x, axis=-1: np.sort(x, axis, kind="stable")),
            "argsort": self.call("thrust", lambda x, axis=-1: np.argsort(x, axis, kind="stable")),
            "searchsorted": _searchsorted,
            "linalg": SimpleNamespace(**solver),
            "fft": SimpleNamespace(**transforms, config=SimpleNamespace(get_plan_cache=lambda: cache)),
        }

    def load(self, name: str) -> Any:
        """Another module of CuPy's."""
        if name == "cupyx.scipy.special":
            return special
        if name == "cupyx":
            return SimpleNamespace(errstate=self.errstate)
        assert name == "cupyx.scipy.linalg"
        self.refuse_if_missing("cusolver")
        return SimpleNamespace(
            lu=self.call("cusolver", _lu),
            expm=self.call("cusolver", _expm),
            solve_triangular=self.call("cusolver", _solve_triangular),
        )


SOLVER = ("cholesky", "det", "eigh", "eigvalsh", "inv", "qr", "slogdet", "svd")
TRANSFORMS = ("fft", "fftn", "ifftn", "irfft", "rfftn")


def _searchsorted(a: Any, v: Any, side: str) -> Any:
    assert a.ndim == 1, "object too deep for desired array"
    return np.asarray(np.searchsorted(a, v, side)).view(type(v))  # type: ignore[call-overload]


def _pinv(a: Any, rcond: Any) -> Any:
    return np.linalg.pinv(a, rtol=rcond)


def _solve(a: Any, b: Any) -> Any:
    assert a.shape[:-1] == b.shape[:-1], "a must have (..., M, M) shape and b must have (..., M, K)"
    return np.linalg.solve(a, b)


def _solve_triangular(a: Any, b: Any, lower: bool, unit_diagonal: bool) -> Any:
    assert a.shape[:-1] == b.shape[:-1], "incompatible dimensions"
    found = np.empty_like(b)
    for k in np.ndindex(a.shape[:-2]):
        found[k] = linalg.solve_triangular(a[k], b[k], lower=lower, unit_diagonal=unit_diagonal, check_finite=False)
    return found


def _lu(a: Any, check_finite: bool) -> Any:
    assert a.ndim == 2
    return tuple(np.asarray(part).view(type(a)) for part in linalg.lu(a, check_finite=check_finite))


def _expm(a: Any) -> Any:
    assert a.ndim == 2
    return linalg.expm(a).view(type(a))
