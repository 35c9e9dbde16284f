"""A compiled program on disk: all that an executable needs beside its graph, under a key of that graph.

    key of the graph --find--> StoredProgram --load--> Library

With it a process that compiles a graph which any process has compiled before skips every stage of the compiler, and
does not even import LLVM ([Note: Compile time]).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Sequence
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from hybridml_compiler.runtime import cache, host_callback
from hybridml_compiler.targets.cpu.runtime import polling, sanitize, scratch, threads
from hybridml_compiler.targets.cpu.runtime.linking import loader
from hybridml_compiler.targets.cpu.runtime.linking.image import Image
from hybridml_compiler.targets.cpu.runtime.pool_block import CALLED
from hybridml_compiler.targets.cpu.runtime.routines import symbols as routines
from hybridml_compiler.targets.cpu.runtime.thread_block import BEGIN, POLL, READY, SCRATCH

from ...record import record
from ..base import Program

STEP = "step"  # the symbol of a program's entry
LARGEST = 64 << 20  # bytes; a program with larger constants is made again, from kernels that are cached one by one


@record
class StoredProgram(Program):
    """A program with its code as bytes."""

    image: Image | None  # None where only LLVM can link: such a program is not kept
    constants: Sequence[np.ndarray]

    def pack(self) -> bytes:
        """The program as bytes; `unpack` is the inverse."""
        assert self.image is not None
        kinds = [(data.dtype.str, data.shape) for data in self.constants]
        head = json.dumps([list(self.fresh), self.arena_bytes, dict(self.facts), kinds]).encode()
        constants = [data.tobytes() for data in self.constants]
        return b"".join([len(head).to_bytes(8, "little"), head, *constants, self.image.pack()])

    @staticmethod
    def unpack(raw: bytes) -> StoredProgram:
        """Raises ValueError for bytes that `pack` has not made."""
        at = 8 + int.from_bytes(raw[:8], "little")
        fresh, arena_bytes, facts, kinds = json.loads(raw[8:at])
        constants = []
        for name, shape in kinds:
            data = np.empty(shape, name)
            data[...] = np.frombuffer(raw, data.dtype, data.size, at).reshape(shape)
            constants.append(data)
            at += data.nbytes
        return StoredProgram(fresh, arena_bytes, facts, Image.unpack(raw[at:]), constants)

    def save(self, name: str) -> None:
        """Keep the program for every process."""
        if sum(data.nbytes for data in self.constants) <= LARGEST:
            cache.put(name, self.pack())

    def load(self) -> Loaded:
        """The program, ready to run. CompileError if it imports symbols that this process does not have."""
        assert self.image is not None
        library = loader.load_image(self.image, imports(self.constants, self.image.slots), keep=self.constants)
        return Loaded(self.fresh, self.arena_bytes, self.facts, library)


@record
class Loaded(Program):
    """A program and its code, ready to run."""

    library: loader.Library


def find(name: str) -> StoredProgram | None:
    """The program that `save` has kept under this name, if any."""
    raw = cache.get(name)
    return None if raw is None else StoredProgram.unpack(raw)


def constant_symbol(number: int) -> str:
    """Name of a constant of a plan in generated code."""
    return f"hml_constant_{number}"


def imports(constants: Sequence[np.ndarray], names: Collection[str] | None = None) -> dict[str, int]:
    """Symbols that generated code may import, or of those only the named ones: looking for BLAS and starting the pool
    take time."""
    found = {constant_symbol(k): data.ctypes.data for k, data in enumerate(constants)}
    for symbols, make in _IMPORTS:
        if names is None or any(name in names for name in symbols):
            found |= make()
    found |= routines.natives(names or ())
    return found


def named_in(objects: Sequence[bytes]) -> set[str]:
    """The symbols of ours that objects name."""
    return {name.decode() for data in objects for name in re.findall(rb"hml_\w+", data)}


def _blas() -> Any:
    return import_module("hybridml_compiler.targets.cpu.runtime.blas")  # with the first product that it computes


_IMPORTS: tuple[tuple[tuple[str, ...], Callable[[], dict[str, int]]], ...] = (
    (("hml_sgemm", "hml_dgemm"), lambda: _blas().gemm_symbols() or {}),
    (("hml_blas_hold", "hml_blas_release"), lambda: _blas().hold_symbols()),
    ((host_callback.CALL,), host_callback.symbols),
    *(((name,), partial(routines.symbols, name)) for name in routines.SYMBOLS),
    ((SCRATCH, READY), scratch.symbols),
    (sanitize.SYMBOLS, sanitize.symbols),
    ((BEGIN, POLL), polling.symbols),
    (("hml_pool", *CALLED), threads.symbols),
)
