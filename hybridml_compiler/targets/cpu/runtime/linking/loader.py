"""Object code to addresses: linked by `image`, or by LLJIT with JITLink where that cannot.

A missing symbol or a damaged object is an error there, where MCJIT accepts the first and crashes on the second.
"""

from __future__ import annotations

import ctypes
import itertools
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from hybridml_compiler.errors import CompileError
from hybridml_compiler.once import once
from hybridml_compiler.runtime.uninterrupted import uninterrupted
from hybridml_compiler.targets.cpu.runtime.jit import OPT
from hybridml_compiler.targets.cpu.runtime.linking import image
from hybridml_compiler.targets.cpu.spec import host_spec

from .....record import record

if TYPE_CHECKING:
    import llvmlite.binding as llvm

# What LLVM itself calls: loop idioms and large copies become memory functions, frem becomes fmod.
LIBC = ("memcpy", "memmove", "memset", "memcmp", "fmod", "fmodf")


@record
class Library:
    """Linked code: addresses are good for as long as this object lives."""

    addresses: Mapping[str, int]
    keep: tuple[object, ...]

    def address(self, name: str) -> int:
        """The address of an exported symbol."""
        try:
            return self.addresses[name]
        except KeyError:
            exported = ", ".join(self.addresses) or "nothing"
            raise CompileError(f"no symbol {name!r} in this library; it exports {exported}") from None


_numbers = itertools.count()


@once
def _linker() -> llvm.LLJIT:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    here = host_spec()
    machine = llvm.Target.from_triple(here.triple).create_target_machine(
        cpu=here.name, features=here.features, opt=OPT, reloc="pic", jit=True
    )
    linker = llvm.create_lljit_compiler(machine, use_jit_link=True)
    linker._owned = True  # by the process: threads may still be inside its code while the interpreter goes down
    return linker


@once
def _libc() -> dict[str, int]:
    found: dict[str, int] = {}
    libraries = [ctypes.CDLL(None if os.name == "posix" else "msvcrt")]
    with suppress(OSError):  # glibc keeps fmod in a library of its own; CPython may be linked without it
        libraries.append(ctypes.CDLL("libm.so.6"))
    for name in LIBC:
        for library in libraries:
            if hasattr(library, name):
                found[name] = address_of(getattr(library, name))
                break
    return found


def address_of(function: Any) -> int:
    """The address of a ctypes function."""
    address = ctypes.cast(function, ctypes.c_void_p).value
    assert address is not None
    return address


def python_api(result: Any, name: str, *arguments: Any) -> Any:
    """A function of CPython's C-API with its own prototype: those of `ctypes.pythonapi` are shared by everybody."""
    return ctypes.PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))


def never_freed(value: object) -> None:
    """Keeps what the interpreter may call or read to its very end, when modules have lost what they held."""
    python_api(None, "Py_IncRef", ctypes.py_object)(value)


def load(
    objects: Sequence[bytes],
    imports: Mapping[str, int] | None = None,
    exports: Sequence[str] = (),
    *,
    keep: Sequence[object] = (),
) -> Library:
    """Link objects to each other, to `imports` (name -> address) and to libc's memory functions.

    `keep` are owners of imported addresses; the result holds on to them. Raises CompileError where a symbol is missing
    or defined twice, or where an object is not one.
    """
    linked = link(objects, exports)
    return load_image(linked, imports, keep=keep) if linked else _load(objects, imports or {}, exports, keep)


def link(objects: Sequence[bytes], exports: Sequence[str]) -> image.Image | None:
    """Objects linked to each other, to be loaded here or in another process; None where only LLVM can do it."""
    return image.link(objects, exports) if image.SUPPORTED else None


def load_image(
    linked: image.Image, imports: Mapping[str, int] | None = None, *, keep: Sequence[object] = ()
) -> Library:
    """A library like that of `load`, of objects that have been linked."""
    addresses, memory = image.load(linked, {**_libc(), **(imports or {})})
    return Library(addresses, (memory, *keep))


def _load(
    objects: Sequence[bytes], imports: Mapping[str, int], exports: Sequence[str], keep: Sequence[object]
) -> Library:
    """A library like that of `load`, by LLVM's linker."""
    return uninterrupted(lambda: _load_by_llvm(objects, imports, exports, keep))


def _load_by_llvm(
    objects: Sequence[bytes], imports: Mapping[str, int], exports: Sequence[str], keep: Sequence[object]
) -> Library:
    import llvmlite.binding as llvm

    builder = llvm.JITLibraryBuilder()
    for data in objects:
        if not data:
            raise CompileError("cannot link an empty object")
        builder.add_object_img(data)
    for name, address in {**_libc(), **imports}.items():
        builder.import_symbol(name, address)
    for name in exports:
        builder.export_symbol(name)
    try:
        tracker = builder.link(_linker(), f"hybridml.{next(_numbers)}")
    except RuntimeError as error:
        raise CompileError(f"LLVM could not link generated code: {error}") from error
    return Library({name: int(tracker[name]) for name in exports}, (tracker, *keep))
