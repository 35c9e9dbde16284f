"""Routines of linear algebra as addresses: `hml_cholesky_s` and others, each compiled when it is first asked for
(`batches_ir.py`).

They need the product that BLAS has; where there is none, NumPy computes what they would.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any

from hybridml_compiler.once import once
from hybridml_compiler.targets.cpu.runtime import allocation, blas, jit, threads
from hybridml_compiler.targets.cpu.runtime.linking import loader

LETTERS = {"f": "s", "d": "d"}  # by NumPy's character of a dtype
# By the name of a row: LAPACK's routines that it calls, without the letter of their dtype.
NAMES: dict[str, tuple[str, ...]] = {
    "cholesky": (),
    "solve": (),
    "solve_triangular": (),
    "inv": (),
    "det": (),
    "slogdet": (),
    "lu": (),
    "qr": ("geqrf", "orgqr"),
    "svd": ("gesdd",),
    "svdvals": ("gesdd",),
    "eigh": ("syevd",),
    "eigvalsh": ("syevd",),
}
SYMBOLS = tuple(f"hml_{name}_{letter}" for name in NAMES for letter in LETTERS.values())


def symbol(name: str, char: str) -> str:
    """The symbol of a row's routine."""
    return f"hml_{name}_{LETTERS[char]}"


def has(name: str) -> bool:
    """Whether there is a routine for a row."""
    if name not in NAMES or blas.gemm_symbols() is None:
        return False
    return all([blas.lapack_symbol(letter + called) for called in NAMES[name] for letter in LETTERS.values()])


def address(symbol: str) -> int:
    """The address of `i64 routine(ptr operands, ptr sizes)`: 0, or 1 where it refuses a matrix."""
    return _library(symbol).address(symbol)


def symbols(symbol: str) -> dict[str, int]:
    """The address of a routine by its symbol, for generated code; nothing where there is none."""
    return {symbol: address(symbol)} if has(_parts(symbol)[0]) else {}


def _parts(symbol: str) -> tuple[str, str]:
    """The name of the row and the letter of a symbol."""
    name, _, letter = symbol.removeprefix("hml_").rpartition("_")
    return name, letter


@once
def _library(symbol: str) -> loader.Library:
    name, letter = _parts(symbol)
    called = {f"lapack_{c}": blas.lapack_symbol(letter + c) or 0 for c in NAMES[name]}

    def emit() -> str:
        from ...spec import host_spec
        from . import batches_ir

        return batches_ir.text(name, letter, host_spec())

    source = jit.emitted_source(symbol, emit, "targets.cpu.runtime.lapack.*")
    return loader.load([jit.compile_source(source)], _imports() | called, [symbol])


@once
def _imports() -> dict[str, int]:
    libc: Any = ctypes.CDLL(None if os.name == "posix" else "msvcrt")
    found = {name: loader.address_of(getattr(libc, name)) for name in ("malloc", "free", "log")}
    found |= allocation.handler().functions  # none but on Linux
    return found | (blas.gemm_symbols() or {}) | blas.hold_symbols() | threads.symbols()
