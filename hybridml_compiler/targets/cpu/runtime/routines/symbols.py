"""Routines as addresses: `hml_cholesky_s` and others, each compiled when it is first asked for (`batches_ir.py`).

Linear algebra needs the product that BLAS has; where there is none, NumPy computes what its routines would.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from hybridml_compiler.once import once
from hybridml_compiler.ops import custom
from hybridml_compiler.targets.cpu.runtime import allocation, jit, threads
from hybridml_compiler.targets.cpu.runtime.linking import loader
from hybridml_compiler.targets.cpu.spec import CpuSpec, host_spec

LETTERS = {"f": "s", "d": "d"}  # by NumPy's character of a dtype
ORDERED = {c: f"{np.dtype(c).kind.replace('b', 'u')}{np.dtype(c).itemsize}" for c in "?bBhHiIlLqQfd"}


class Uses(NamedTuple):
    """The kernels that a routine calls, and the routines of LAPACK, without the letter of their dtype; the letters that
    there are, and whether products of BLAS are called."""

    kernels: tuple[str, ...] = ()
    called: tuple[str, ...] = ()
    letters: Mapping[str, str] = LETTERS
    blas: bool = True


_ORDER = Uses(letters=ORDERED, blas=False)
_FACTORS = Uses(("triangle", "lu"))
NAMES = {  # of rows
    "cholesky": Uses(("triangle", "cholesky")),
    "solve": _FACTORS,
    "solve_triangular": Uses(("triangle",)),
    "inv": _FACTORS,
    "det": _FACTORS,
    "slogdet": _FACTORS,
    "lu": _FACTORS,
    "qr": Uses(),
    "svd": Uses(called=("gesdd",)),
    "svdvals": Uses(called=("gesdd",)),
    "eigh": Uses(called=("syevd",)),
    "eigvalsh": Uses(called=("syevd",)),
    "argtopk": Uses(blas=False),
    "sort": _ORDER,
    "argsort": _ORDER,
    "searchsorted": _ORDER,
    "true_positions": Uses(letters={"?": "u1"}, blas=False),
}
SYMBOLS = tuple(f"hml_{name}_{letter}" for name, uses in NAMES.items() for letter in sorted({*uses.letters.values()}))


def symbol(name: str, char: str) -> str:
    """The symbol of a row's routine, or of native code."""
    return name if custom.is_native(name) else f"hml_{name}_{NAMES[name].letters[char]}"


def has(name: str) -> bool:
    """Whether there is a routine for a row, or the native code."""
    if custom.is_native(name):
        return custom.address_of(name) is not None
    from hybridml_compiler.targets.cpu.runtime import blas  # with the first routine, as below

    if name not in NAMES or (NAMES[name].blas and blas.gemm_symbols() is None):
        return False
    return all([blas.lapack_symbol(letter + called) for called in NAMES[name].called for letter in LETTERS.values()])


def address(symbol: str) -> int:
    """The address of `i64 routine(ptr operands, ptr sizes)`: 0, or 1 where it refuses a matrix."""
    return (custom.address_of(symbol) if custom.is_native(symbol) else None) or _library(symbol).address(symbol)


def symbols(symbol: str) -> dict[str, int]:
    """The address of a routine by its symbol, for generated code; nothing where there is none."""
    return {symbol: address(symbol)} if has(_parts(symbol)[0]) else {}


def natives(names: Iterable[str]) -> dict[str, int]:
    """The addresses of those symbols that are native code of users; of what this process lacks there is none."""
    found = {name: custom.address_of(name) for name in names if custom.is_native(name)}
    return {name: address for name, address in found.items() if address is not None}


def _parts(symbol: str) -> tuple[str, str]:
    """The name of the row and the letter of a symbol."""
    name, _, letter = symbol.removeprefix("hml_").rpartition("_")
    return name, letter


@once
def _library(symbol: str) -> loader.Library:
    return loader.load(jit.compile_sources(sources(symbol, host_spec())), imports(symbol), [symbol])


def sources(symbol: str, cpu: CpuSpec) -> list[jit.Source]:
    """The modules of a routine: its kernels and its own."""
    name, letter = _parts(symbol)

    def kernel(of: str) -> str:
        from . import kernels_ir

        return kernels_ir.text(of, letter, cpu)

    def own() -> str:
        from . import batches_ir

        return batches_ir.text(name, letter, cpu)

    emits = {f"kernel {of} {letter}": partial(kernel, of) for of in NAMES[name].kernels} | {symbol: own}
    made = [jit.emitted_source(text, emit, "targets.cpu.runtime.routines.*") for text, emit in emits.items()]
    return [source._replace(cpu=cpu) for source in made]


def imports(symbol: str) -> dict[str, int]:
    """Addresses that a routine's modules import."""
    from hybridml_compiler.targets.cpu.runtime import blas

    name, letter = _parts(symbol)
    found = _common() if NAMES[name].blas else _plain()
    return found | {f"lapack_{c}": blas.lapack_symbol(letter + c) or 0 for c in NAMES[name].called}


@once
def _common() -> dict[str, int]:
    from hybridml_compiler.targets.cpu.runtime import blas

    return _plain() | (blas.gemm_symbols() or {}) | blas.hold_symbols()


@once
def _plain() -> dict[str, int]:
    libc: Any = ctypes.CDLL(None if os.name == "posix" else "msvcrt")
    found = {name: loader.address_of(getattr(libc, name)) for name in ("malloc", "free", "log")}
    found |= allocation.handler().functions  # none but on Linux
    return found | threads.symbols()
