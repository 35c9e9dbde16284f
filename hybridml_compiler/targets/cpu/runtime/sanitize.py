"""Functions that code calls to check its accesses (`HYBRIDML_SANITIZE`), and the error that a violation becomes.

Bounds are {first byte, byte behind the last, text}. The first violation of the process is written down, whichever
thread it is in, until a step sees it; an access that violates bounds is made to memory that is nobody's, or left out.
"""

from __future__ import annotations

import ctypes
from typing import NoReturn

from hybridml_compiler.errors import CompileError
from hybridml_compiler.once import once
from hybridml_compiler.targets.cpu.runtime import jit
from hybridml_compiler.targets.cpu.runtime.linking import loader

INSIDE, WITHIN, MASKED, LANES = "hml_inside", "hml_within", "hml_within_masked", "hml_within_lanes"
NARROW, VIOLATED = "hml_narrow", "hml_violated"
SYMBOLS = (INSIDE, WITHIN, MASKED, LANES, NARROW, VIOLATED)
LARGEST = 1 << 12  # bytes of an access


@once
def _memory() -> ctypes.Array[ctypes.c_int64]:
    """Memory of the record (`sanitize_ir`), then memory that is nobody's."""
    return (ctypes.c_int64 * (8 + LARGEST // 8))()


@once
def _library() -> loader.Library:
    start = ctypes.addressof(_memory())
    imports = {"hml_violation": start, "hml_nowhere": start + 64}

    def emit() -> str:
        from hybridml_compiler.targets.cpu.runtime import sanitize_ir

        return sanitize_ir.text()

    source = jit.emitted_source("sanitize", emit, "targets.cpu.runtime.sanitize*")
    return loader.load([jit.compile_source(source)], imports, SYMBOLS, keep=[_memory()])


def symbols() -> dict[str, int]:
    """Addresses of the functions that generated code imports."""
    return {name: _library().address(name) for name in SYMBOLS}


def complain() -> NoReturn:
    """Raise the error of the violation that is written down, and forget it."""
    _, *texts, offset, size, wanted = _memory()[:6]
    kernel, buffer = (ctypes.string_at(text).decode() for text in texts)
    _memory()[0] = 0
    raise CompileError(
        f"HYBRIDML_SANITIZE: {kernel} {wanted} bytes at offset {offset} of {buffer}, which has {size} bytes. This is a "
        "defect of hybridml; please report it with the program"
    )


def violations() -> bool:
    """Whether one is written down."""
    return bool(_memory()[0])
