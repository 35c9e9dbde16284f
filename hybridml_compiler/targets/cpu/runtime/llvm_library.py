"""LLVM: the C functions that we call of llvmlite's shared library, without llvmlite's Python.

`import llvmlite.binding` takes 50 ms, and the library 7 of these. The others go to 60 Python modules: a builder of IR,
and what `importlib.resources` needs to find one file. It also holds one lock around every call, though LLVM may be
called by any number of threads with a context and a target machine for each.

llvmlite does not document these functions. `VERSIONS` are those whose declarations were read; of any other version they
are compared with ours before the first call.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from ctypes import POINTER, byref, c_bool, c_char_p, c_int, c_size_t, c_uint, c_void_p
from importlib import import_module
from typing import Any

from hybridml_compiler.locks import rlock
from hybridml_compiler.once import once

# The first line of a module that goes through LLVM's passes over IR, and the version that they were tried with.
PASSES, TRIED = "; passes", 22

VERSIONS = ("0.45", "0.46", "0.47", "0.48", "0.49", "0.50")

_TEXT = POINTER(c_char_p)  # of a string that LLVM allocates


# Results and arguments; `None` as a result is C's void.
_FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "GetVersionInfo": (c_uint, ()),
    "SetCommandLine": (None, (c_char_p, c_char_p)),
    "DisposeString": (None, (c_void_p,)),
    "GetHostCPUName": (None, (_TEXT,)),
    "GetHostCPUFeatures": (c_int, (_TEXT,)),
    "GetDefaultTargetTriple": (None, (_TEXT,)),
    "InitializeNativeTarget": (None, ()),
    "InitializeNativeAsmPrinter": (None, ()),
    "InitializeAllTargetInfos": (None, ()),
    "InitializeAllTargets": (None, ()),
    "InitializeAllTargetMCs": (None, ()),
    "InitializeAllAsmPrinters": (None, ()),
    "GetTargetFromTriple": (c_void_p, (c_char_p, _TEXT)),
    "CreateTargetMachine": (c_void_p, (c_void_p, *[c_char_p] * 3, c_int, c_char_p, c_char_p, c_int, c_int, c_char_p)),
    "CreateTargetMachineData": (c_void_p, (c_void_p,)),
    "CopyStringRepOfTargetData": (None, (c_void_p, _TEXT)),
    "DisposeTargetData": (None, (c_void_p,)),
    "ContextCreate": (c_void_p, ()),
    "ContextDispose": (None, (c_void_p,)),
    "ParseAssembly": (c_void_p, (c_void_p, c_char_p, _TEXT)),
    "LinkModules": (c_int, (c_void_p, c_void_p, _TEXT)),
    "SetTarget": (None, (c_void_p, c_char_p)),
    "SetDataLayout": (None, (c_void_p, c_char_p)),
    "VerifyModule": (c_bool, (c_void_p, _TEXT)),
    "DisposeModule": (None, (c_void_p,)),
    "CreatePipelineTuningOptions": (c_void_p, ()),
    "PTOSetLoopVectorization": (None, (c_void_p, c_bool)),
    "PTOSetSLPVectorization": (None, (c_void_p, c_bool)),
    "PTOSetLoopUnrolling": (None, (c_void_p, c_bool)),
    "CreatePassBuilder": (c_void_p, (c_void_p, c_void_p)),
    "buildPerModuleDefaultPipeline": (c_void_p, (c_void_p, c_int)),
    "RunNewModulePassManager": (None, (c_void_p, c_void_p, c_void_p)),
    "DisposeNewModulePassManger": (None, (c_void_p,)),
    "TargetMachineEmitToMemory": (c_void_p, (c_void_p, c_void_p, c_int, _TEXT)),
    "GetBufferStart": (c_void_p, (c_void_p,)),
    "GetBufferSize": (c_size_t, (c_void_p,)),
    "DisposeMemoryBuffer": (None, (c_void_p,)),
}
# Python's threads go on while one is in these. Any other call takes less than a change of threads.
_LONG = frozenset(
    ("ParseAssembly", "LinkModules", "VerifyModule", "RunNewModulePassManager", "TargetMachineEmitToMemory")
)


@once
def library_path() -> str:
    """The file of llvmlite's library. Raises ImportError where there is no llvmlite."""
    names = {"darwin": "libllvmlite.dylib", "win32": "llvmlite.dll"}
    folder = os.path.dirname(import_module("llvmlite").__file__ or "")
    return os.path.join(folder, "binding", names.get(sys.platform, "libllvmlite.so"))


class _Library:
    """The functions as attributes, by their names without the prefix, each looked up when it is first called."""

    def __init__(self) -> None:
        version = str(import_module("llvmlite").__version__)
        if version.rpartition(".")[0] not in VERSIONS:
            compare_declarations()
        try:
            self._alone = ctypes.PyDLL(library_path())
        except OSError as error:
            raise ImportError(f"llvmlite {version} cannot be loaded: {error}") from error
        self._beside = ctypes.CDLL(library_path(), handle=self._alone._handle)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        function: Any = (self._beside if name in _LONG else self._alone)[f"LLVMPY_{name}"]
        function.restype, function.argtypes = _FUNCTIONS[name]
        setattr(self, name, function)
        return function  # type: ignore[no-any-return]


@once
def library() -> _Library:
    """The library, with this machine's target. Raises ImportError where it cannot be loaded."""
    loaded = _Library()
    loaded.InitializeNativeTarget()
    loaded.InitializeNativeAsmPrinter()
    return loaded


@once
def _all_targets() -> None:
    """Makes the targets of other machines known."""
    for kind in ("TargetInfos", "Targets", "TargetMCs", "AsmPrinters"):
        getattr(library(), f"InitializeAll{kind}")()


def compare_declarations() -> None:
    """Raises ImportError where llvmlite itself declares one of the functions otherwise."""
    import llvmlite.binding

    for name, (result, arguments) in _FUNCTIONS.items():
        theirs: Any = getattr(llvmlite.binding.ffi.lib, f"LLVMPY_{name}", None)
        declared = getattr(theirs, "argtypes", None) or arguments  # it leaves those without pointers out
        same = theirs is not None and [*map(_kind, declared)] == [*map(_kind, arguments)]
        if not same or (result is not None and _kind(theirs.restype) != _kind(result)):
            raise ImportError(
                f"llvmlite {llvmlite.__version__} declares LLVMPY_{name} otherwise than versions {VERSIONS[0]} to "
                f"{VERSIONS[-1]}: pip install 'llvmlite<{llvmlite.__version__}', or a newer hybridml"
            )


def _kind(declared: Any) -> str:
    """The letter of `struct` for a type of ctypes; `P` for any pointer."""
    kind = declared._type_
    return kind if isinstance(kind, str) and kind not in "zZ" else "P"


class _Text:
    """A place for a string that LLVM allocates."""

    def __init__(self) -> None:
        self.pointer = c_char_p()
        self._as_parameter_ = byref(self.pointer)

    def take(self) -> str:
        """The string, which is empty where there is none. Its memory is given back."""
        found = self.pointer.value or b""
        library().DisposeString(self.pointer)
        self.pointer.value = None
        return found.decode("utf-8", "replace")


def llvm_version_info() -> tuple[int, int, int]:
    """The version of LLVM: major, minor, patch."""
    packed = library().GetVersionInfo()
    return packed >> 16, packed >> 8 & 255, packed & 255


def host_cpu() -> tuple[str, dict[str, bool], str]:
    """LLVM's name of this CPU, whether it has each feature, and the triple of the platform."""
    name, features, triple = _Text(), _Text(), _Text()
    library().GetHostCPUName(name)
    library().GetHostCPUFeatures(features)
    library().GetDefaultTargetTriple(triple)
    listed = (feature for feature in features.take().split(",") if feature)
    return name.take(), {feature[1:]: feature[0] == "+" for feature in listed}, triple.take()


def set_option(option: str) -> None:
    """Gives LLVM an option of its command line."""
    library().SetCommandLine(b"hybridml", option.encode())


class Machine:
    """A code generator for a CPU, for the thread that holds `at_work`. It is never disposed of: there are few.

    Raises ValueError where LLVM knows no such platform.
    """

    def __init__(self, triple: str, cpu: str, features: str, opt: int, code_model: str) -> None:
        self.triple, said, llvm = triple.encode(), _Text(), library()
        target = llvm.GetTargetFromTriple(self.triple, said)
        if not target:
            said.take()
            _all_targets()
            target = llvm.GetTargetFromTriple(self.triple, said)
        if not target:
            raise ValueError(said.take())
        made_for = self.triple + b"-elf" * (os.name == "nt")  # LLVM links no objects of Windows' own format there
        how = (opt, b"pic", code_model.encode(), False, True, b"")
        self.handle = llvm.CreateTargetMachine(target, made_for, cpu.encode(), features.encode(), *how)
        if not self.handle:
            raise ValueError(f"no code generator for {cpu!r}")
        data = llvm.CreateTargetMachineData(self.handle)
        llvm.CopyStringRepOfTargetData(data, said)
        llvm.DisposeTargetData(data)
        self.layout = said.take().encode()
        self.at_work = rlock()
        self._builder: int | None = None  # of passes

    def object_of(self, texts: Sequence[str]) -> bytes:
        """Object code of modules of LLVM IR, linked to one. Raises ValueError with LLVM's message for text that is no
        valid IR."""
        llvm, said = library(), _Text()
        with self._linked(texts) as module:
            wrong = llvm.VerifyModule(module, said)
            message = said.take()  # which LLVM allocates in either case
            if wrong:
                raise ValueError(message)
            buffer = llvm.TargetMachineEmitToMemory(self.handle, module, True, said)
            if not buffer:
                raise ValueError(said.take())
            data = ctypes.string_at(llvm.GetBufferStart(buffer), llvm.GetBufferSize(buffer))
            llvm.DisposeMemoryBuffer(buffer)
            return data

    @contextmanager
    def _linked(self, texts: Sequence[str]) -> Iterator[int]:
        """A module of all the texts, in a context of its own: what a compilation allocates goes with it, and no two
        threads share any of it."""
        llvm, said, modules = library(), _Text(), list[int]()
        context = llvm.ContextCreate()
        try:
            for text in texts:
                module = llvm.ParseAssembly(context, text.encode(), said)
                if not module:
                    raise ValueError(f"LLVM IR parsing error\n{said.take()}")
                modules.append(module)
                llvm.SetTarget(module, self.triple)
                llvm.SetDataLayout(module, self.layout)
                if text.startswith(PASSES) and llvm_version_info()[0] == TRIED:
                    self._run_passes(module)
            while len(modules) > 1:
                if llvm.LinkModules(modules[0], modules.pop(1), said):  # which ends the second
                    raise ValueError(said.take())
            yield modules[0]
        finally:
            for module in modules:
                llvm.DisposeModule(module)
            llvm.ContextDispose(context)

    def _run_passes(self, module: int) -> None:
        """LLVM's passes of level 1, on a valid module: those of level 2 take twice the time and gain nothing here."""
        llvm, said = library(), _Text()
        if llvm.VerifyModule(module, said):
            raise ValueError(said.take())
        said.take()
        if self._builder is None:
            options = llvm.CreatePipelineTuningOptions()
            for what in ("LoopVectorization", "SLPVectorization", "LoopUnrolling"):
                getattr(llvm, f"PTOSet{what}")(options, False)
            self._builder = llvm.CreatePassBuilder(self.handle, options)
        passes = llvm.buildPerModuleDefaultPipeline(self._builder, 1)  # which one run uses up
        llvm.RunNewModulePassManager(passes, module, self._builder)
        llvm.DisposeNewModulePassManger(passes)
