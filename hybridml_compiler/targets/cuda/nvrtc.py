"""NVRTC, NVIDIA's compiler of CUDA C, called through ctypes: it needs neither a GPU nor a driver nor a toolkit.

The library is a wheel of its own (`nvidia-cuda-nvrtc`) or a toolkit's, loaded with the first kernel. What it has
compiled is kept in the cache of object code, under the source, the options, the architecture and the library's version.
"""

from __future__ import annotations

import ctypes
import re
from typing import Any, Literal

from ...errors import CompileError, DeviceError
from ...once import lazy, once
from ...record import record
from ...runtime import cache
from .libraries.files import libraries, loaded

Form = Literal["ptx", "cubin"]

# Every kernel is compiled with these, in tests as for a GPU. Each float instruction rounds once, as on the CPU.
OPTIONS = (
    "--std=c++17",
    "--fmad=false",  # a * b + c is two instructions unless it is written as one
    "--ftz=false",  # subnormal numbers stay
    "--prec-div=true",
    "--prec-sqrt=true",
    "--ptxas-options=-v",  # the log tells registers and spills
)
FAST = ("--std=c++17", "--use_fast_math", "--ptxas-options=-v")  # where the user asks for it
ARCHITECTURES = (80, 90, 100)  # that every kernel of the tests is compiled for
VIRTUAL = 80  # of the PTX that the simulator runs

_LENGTH = 8  # bytes of the log's length in a kept entry


@record
class Compiled:
    """Code for one architecture, and what the compiler said about it."""

    code: bytes
    log: str

    @property
    def spills(self) -> int:
        """Bytes that registers were stored to and loaded from memory for."""
        return sum(map(int, re.findall(r"(\d+) bytes spill", self.log)))

    @property
    def registers(self) -> int:
        """Registers of a thread."""
        return max(map(int, re.findall(r"Used (\d+) registers", self.log)), default=0)


def compile(source: str, form: Form, architecture: int = VIRTUAL, *, fast: bool = False) -> Compiled:
    """CUDA C as PTX, or as machine code of an architecture (90 for sm_90). DeviceError where NVRTC is not installed,
    CompileError for a source that it does not take."""
    options = options_for(form, architecture, fast)
    name = cache.key("nvrtc", source, "\n".join(options), form, str(_nvrtc().version))
    kept = cache.get(name)
    if kept is not None:
        return _unpacked(kept)
    made = _nvrtc().compile(source, form, options)
    cache.put(name, _packed(made))
    return made


def is_ptx(source: str) -> bool:
    """Whether a source is PTX, which nothing is compiled to here."""
    return re.search(r"^\s*\.version\s", source, re.MULTILINE) is not None


def options_for(form: Form, architecture: int, fast: bool = False) -> tuple[str, ...]:
    """The options of a compilation: those of all, or of fast math, and the architecture, virtual for PTX."""
    return (*(FAST if fast else OPTIONS), f"--gpu-architecture={'compute' if form == 'ptx' else 'sm'}_{architecture}")


def form_for(architecture: int) -> tuple[Form, int]:
    """Form and architecture of the code for a GPU: machine code; PTX of an older architecture, which the driver then
    compiles, where the GPU is newer than NVRTC."""
    known = _nvrtc().architectures
    return ("cubin", architecture) if architecture in known else ("ptx", max(a for a in known if a < architecture))


def is_installed() -> bool:
    """Whether there is a library of NVRTC."""
    return bool(_libraries())


def version() -> tuple[int, int]:
    """The version of NVRTC. DeviceError where it is not installed."""
    return _nvrtc().version


def _packed(made: Compiled) -> bytes:
    log = made.log.encode()
    return len(log).to_bytes(_LENGTH, "little") + log + made.code


def _unpacked(data: bytes) -> Compiled:
    end = _LENGTH + int.from_bytes(data[:_LENGTH], "little")
    return Compiled(data[end:], data[_LENGTH:end].decode())


def _libraries() -> list[str]:
    return libraries("nvrtc")


@once
def _nvrtc() -> _Nvrtc:
    found = _libraries()
    if not found:
        raise DeviceError(
            "cuda: kernels are compiled by NVRTC, which is not installed: pip install nvidia-cuda-nvrtc "
            "(or hybridml with its extra: pip install 'hybridml[cuda]')"
        )
    try:
        return _Nvrtc(found[0])
    except OSError as error:
        raise DeviceError(f"cuda: {found[0]} cannot be loaded ({error}): reinstall nvidia-cuda-nvrtc") from None


class _Nvrtc:
    """The library; several threads may compile at once."""

    def __init__(self, path: str) -> None:
        self.library = loaded(path, "nvrtc-builtins")
        major, minor = ctypes.c_int(), ctypes.c_int()
        self.library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
        self.version = major.value, minor.value

    @lazy
    def architectures(self) -> list[int]:
        """Architectures that it compiles for."""
        count = ctypes.c_int()
        self._call("GetNumSupportedArchs", ctypes.byref(count))
        found = (ctypes.c_int * count.value)()
        self._call("GetSupportedArchs", found)
        return list(found)

    def compile(self, source: str, form: Form, options: tuple[str, ...]) -> Compiled:
        program = ctypes.c_void_p()
        self._call("CreateProgram", ctypes.byref(program), source.encode(), b"kernel.cu", 0, None, None)
        try:
            given = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
            failed = self.library.nvrtcCompileProgram(program, len(options), given)
            log = self._bytes("ProgramLog", program).rstrip(b"\0").decode()
            if failed:
                raise CompileError(f"cuda: NVRTC does not take a generated kernel\n{log.rstrip()}\n{source}")
            return Compiled(self._bytes("PTX" if form == "ptx" else "CUBIN", program), log)
        finally:
            self.library.nvrtcDestroyProgram(ctypes.byref(program))

    def _bytes(self, what: str, program: ctypes.c_void_p) -> bytes:
        size = ctypes.c_size_t()
        self._call(f"Get{what}Size", program, ctypes.byref(size))
        data = ctypes.create_string_buffer(size.value)
        self._call(f"Get{what}", program, data)
        return data.raw

    def _call(self, name: str, *arguments: Any) -> None:
        code = getattr(self.library, f"nvrtc{name}")(*arguments)
        if code:
            raise CompileError(f"cuda: nvrtc{name} failed with code {code}")
