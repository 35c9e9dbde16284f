"""The matrix product that is already in the process, under one signature, for generated code to call.

NumPy brings a BLAS (its wheels: OpenBLAS with 64-bit integers); it costs nothing to load, and much less per call than
`numpy.matmul`. Loading a second copy for compute is never worth it: two pools of spinning threads halve each other's
speed. SciPy's capsules are therefore only the last resort, where NumPy's own BLAS cannot be found.

BLAS is held at one thread while our code runs (`hold_symbols`): rows are split over our own pool instead, which is as
fast as BLAS's own threads, and much faster with a busy neighbour ([Note: Runtime]).
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from hybridml_compiler.once import once
from hybridml_compiler.targets.cpu.runtime import jit
from hybridml_compiler.targets.cpu.runtime.linking import loader

from ....record import record

ROW_MAJOR, NO_TRANS, TRANS = 101, 111, 112


class Names(NamedTuple):
    """Names of the two products in a build of BLAS (`{}` is s or d), whether its integers have 64 bits, and names of
    LAPACK's routines there."""

    gemm: str
    bits: int
    lapack: str


NAMES = (
    Names("scipy_cblas_{}gemm64_", 64, "scipy_{}_64_"),  # NumPy's and SciPy's wheels
    Names("cblas_{}gemm64_", 64, "{}_64_"),  # OpenBLAS with the usual suffix: Debian, Julia, conda
    Names("cblas_{}gemm_64", 64, "{}_64"),  # MKL and the reference BLAS
    Names("cblas_{}gemm$NEWLAPACK$ILP64", 64, "{}$NEWLAPACK$ILP64"),  # Accelerate, macOS 13.3 and later
    Names("scipy_cblas_{}gemm", 32, "scipy_{}_"),
    Names("cblas_{}gemm", 32, "{}_"),
)

# (get, set): the number of threads of a library; OpenBLAS in its spellings, MKL, BLIS.
THREADS = (
    ("scipy_openblas_get_num_threads64_", "scipy_openblas_set_num_threads64_"),
    ("openblas_get_num_threads64_", "openblas_set_num_threads64_"),
    ("scipy_openblas_get_num_threads", "scipy_openblas_set_num_threads"),
    ("openblas_get_num_threads", "openblas_set_num_threads"),
    ("MKL_Get_Max_Threads", "MKL_Set_Num_Threads"),
    ("bli_thread_get_num_threads", "bli_thread_set_num_threads"),
)

LIBRARY_NAMES = re.compile(r"openblas|mkl_rt|libblis|flexiblas|cblas|libblas|accelerate", re.IGNORECASE)
ACCELERATE = "/System/Library/Frameworks/Accelerate.framework/Accelerate"


@record
class Blas:
    """A matrix product found: addresses with the uniform 64-bit signature, and where it came from."""

    sgemm: int
    dgemm: int
    threads: tuple[int, int] | None
    source: str
    integer_bits: int
    keep: tuple[Any, ...]
    lapack: str = ""  # names of LAPACK's routines in it


def gemm_symbols() -> dict[str, int] | None:
    """`hml_sgemm` and `hml_dgemm`, or None where the process has no BLAS that we know.

    Signature: `void (i32 order, i32 ta, i32 tb, i64 m, i64 n, i64 k, T alpha, ptr a, i64 lda, ptr b, i64 ldb, T beta,
    ptr c, i64 ldc)` with CBLAS's constants. Where `integer_bits` of `find()` is 32, sizes must stay below 2**31.
    """
    found = find()
    return None if found is None else {"hml_sgemm": found.sgemm, "hml_dgemm": found.dgemm}


def lapack_symbol(name: str) -> int | None:
    """The address of LAPACK's routine `name` (`ssyevd`), by Fortran's convention, in the library of the products."""
    found = find()
    if found is None or not found.lapack:
        return None
    routine = getattr(found.keep[0], found.lapack.format(name), None)
    return None if routine is None else loader.address_of(routine)


def hold_symbols() -> dict[str, int]:
    """`hml_blas_hold` and `hml_blas_release` (`void ()`): between them BLAS runs on one thread.

    Holds are counted, since the number of threads is the whole process's: of two steps at one time the first would
    restore the number it found, and the second the 1 that the first had set. They do nothing where BLAS has no threads.
    """
    found = find()
    library = _holding(None if found is None else found.threads)
    return {name: library.address(name) for name in _HOLDS}


@once  # and so never unloaded
def _holding(threads: tuple[int, int] | None) -> loader.Library:
    if threads is None:
        return loader.load([jit.compile_cached(_NO_HOLD)], exports=_HOLDS)
    imports = dict(zip(("get_threads", "set_threads"), threads, strict=True))
    return loader.load([jit.compile_source(_source("hold"))], imports, _HOLDS)


_HOLDS = ("hml_blas_hold", "hml_blas_release")
_NO_HOLD = "".join(f"define void @{name}() {{ ret void }}\n" for name in _HOLDS)


@once
def find() -> Blas | None:
    """The first BLAS of this process that multiplies correctly."""
    for path in _libraries():
        with suppress(OSError):
            found = _in_library(ctypes.CDLL(path), path)
            if found is not None and _works(found):
                return found
    found = _from_scipy()
    return found if found is not None and _works(found) else None


def _libraries() -> Iterator[str]:
    """Paths of possible BLAS libraries: loaded already (Linux), or beside NumPy, whose copy is loaded by definition."""
    seen: set[str] = set()
    with suppress(OSError), open("/proc/self/maps") as maps:
        loaded = {line.split(maxsplit=5)[-1].strip() for line in maps if LIBRARY_NAMES.search(line)}
        seen |= {path for path in loaded if os.path.isfile(path)}
    package = os.path.dirname(np.__file__)
    for folder in (os.path.join(os.path.dirname(package), "numpy.libs"), os.path.join(package, ".dylibs")):
        if os.path.isdir(folder):
            seen |= {entry.path for entry in os.scandir(folder) if LIBRARY_NAMES.search(entry.name)}
    # NumPy's first, so that no other package's copy is woken for compute.
    yield from sorted(seen, key=lambda path: ("numpy" not in path, path))
    if sys.platform == "darwin":
        yield ACCELERATE


def _in_library(library: ctypes.CDLL, path: str) -> Blas | None:
    for names in NAMES:
        pair = [names.gemm.format(letter) for letter in "sd"]
        if all(hasattr(library, name) for name in pair):
            addresses = [loader.address_of(getattr(library, name)) for name in pair]
            keep: tuple[Any, ...] = (library,)
            if names.bits == 32:
                shim = _shim(addresses, "cblas_32")
                addresses, keep = [shim.address("hml_sgemm"), shim.address("hml_dgemm")], (library, shim)
            return Blas(addresses[0], addresses[1], _threads(library), path, names.bits, keep, names.lapack)
    return None


def _threads(library: ctypes.CDLL) -> tuple[int, int] | None:
    for get, put in THREADS:
        if hasattr(library, get) and hasattr(library, put):
            return loader.address_of(getattr(library, get)), loader.address_of(getattr(library, put))
    return None


def _from_scipy() -> Blas | None:
    """SciPy's Fortran entry points: 32-bit integers by reference. Costs a slow import and a second library."""
    try:
        capsules = import_module("scipy.linalg.cython_blas").__pyx_capi__
        addresses = [_capsule(capsules[name]) for name in ("sgemm", "dgemm")]
    except (ImportError, AttributeError, KeyError):
        return None
    shim = _shim(addresses, "fortran")
    return Blas(shim.address("hml_sgemm"), shim.address("hml_dgemm"), None, "scipy.linalg.cython_blas", 32, (shim,))


def _capsule(capsule: Any) -> int:
    name = loader.python_api(ctypes.c_char_p, "PyCapsule_GetName", ctypes.py_object)
    pointer = loader.python_api(ctypes.c_void_p, "PyCapsule_GetPointer", ctypes.py_object, ctypes.c_char_p)
    return int(pointer(capsule, name(capsule)))


def _shim(addresses: list[int], convention: str) -> loader.Library:
    """The uniform signature round functions that have another one."""
    imports = dict(zip(("sgemm", "dgemm"), addresses, strict=True))
    return loader.load([jit.compile_source(_source(convention))], imports, ("hml_sgemm", "hml_dgemm"))


def _source(what: str) -> jit.Source:
    def emit() -> str:
        from hybridml_compiler.targets.cpu.runtime import blas_ir

        return blas_ir.text(what)

    return jit.emitted_source(f"blas {what}", emit, "targets.cpu.runtime.blas_ir")


def function(address: int, scalar: type[ctypes.c_float] | type[ctypes.c_double]) -> Any:
    """A product of `gemm_symbols` as a ctypes function."""
    i, q, p = ctypes.c_int32, ctypes.c_int64, ctypes.c_void_p
    return ctypes.CFUNCTYPE(None, i, i, i, q, q, q, scalar, p, q, p, q, scalar, p, q)(address)


def _works(found: Blas) -> bool:
    """Multiply 2x3 by 3x4 in both types: a library under a familiar name may have other integers."""
    left, right = np.arange(6.0).reshape(2, 3), np.arange(12.0).reshape(4, 3)
    expected = 2 * np.einsum("mk,nk->mn", left, right) + 1
    for address, dtype, scalar in ((found.sgemm, "f4", ctypes.c_float), (found.dgemm, "f8", ctypes.c_double)):
        a, b, c = left.astype(dtype), right.astype(dtype), np.ones((2, 4), dtype)
        function(address, scalar)(
            ROW_MAJOR, NO_TRANS, TRANS, 2, 4, 3, 2.0, a.ctypes.data, 3, b.ctypes.data, 3, 1.0, c.ctypes.data, 4
        )
        if not np.array_equal(c, expected):
            return False
    return True
