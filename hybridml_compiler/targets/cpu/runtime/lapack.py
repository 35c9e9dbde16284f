"""Routines of linear algebra as addresses: `hml_cholesky_s` and others, each compiled when it is first asked for
(`lapack_ir.py`, `lapack_routines_ir.py`).

They need the product that BLAS has; where there is none, NumPy computes what they would.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any

from hybridml_compiler.once import once
from hybridml_compiler.targets.cpu.runtime import blas, jit, threads
from hybridml_compiler.targets.cpu.runtime.linking import loader

LETTERS = {"f": "s", "d": "d"}  # by NumPy's character of a dtype
NAMES = ("cholesky", "solve", "solve_triangular", "inv", "det", "slogdet")
SYMBOLS = tuple(f"hml_{name}_{letter}" for name in NAMES for letter in LETTERS.values())


def symbol(name: str, char: str) -> str:
    """The symbol of a row's routine."""
    return f"hml_{name}_{LETTERS[char]}"


def has(name: str) -> bool:
    """Whether there is a routine for a row."""
    return name in NAMES and blas.gemm_symbols() is not None


def address(symbol: str) -> int:
    """The address of `i64 routine(ptr operands, ptr sizes)`: 0, or 1 where it refuses a matrix."""
    return _library(symbol).address(symbol)


def symbols(symbol: str) -> dict[str, int]:
    """What generated code imports by this name; nothing where there is none."""
    return {symbol: address(symbol)} if blas.gemm_symbols() is not None else {}


@once
def _library(symbol: str) -> loader.Library:
    _, name = symbol.split("_", 1)
    name, letter = name.rsplit("_", 1)

    def emit() -> str:
        from ..spec import host_spec
        from . import lapack_routines_ir

        return lapack_routines_ir.text(name, letter, host_spec())

    source = jit.emitted_source(symbol, emit, "targets.cpu.runtime.lapack_*")
    return loader.load([jit.compile_source(source)], _imports(), [symbol])


@once
def _imports() -> dict[str, int]:
    libc: Any = ctypes.CDLL(None if os.name == "posix" else "msvcrt")
    found = {name: loader.address_of(getattr(libc, name)) for name in ("malloc", "free", "log")}
    return found | (blas.gemm_symbols() or {}) | blas.hold_symbols() | threads.symbols()
