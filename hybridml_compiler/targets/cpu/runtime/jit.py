"""LLVM IR text to object code.

Compiling and linking (see `linking`) are two steps with bytes between them, so that the bytes can be cached on disk and
compiled in several threads.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from queue import SimpleQueue
from typing import Any, NamedTuple
from weakref import ref

from hybridml_compiler import time_limit
from hybridml_compiler.errors import CompileError
from hybridml_compiler.in_force import Changes
from hybridml_compiler.locks import rlock
from hybridml_compiler.runtime import cache
from hybridml_compiler.runtime.fingerprint import fingerprint
from hybridml_compiler.runtime.uninterrupted import start, uninterrupted, wait
from hybridml_compiler.targets.cpu.runtime import llvm_library, memory
from hybridml_compiler.targets.cpu.runtime.linking import elf, image
from hybridml_compiler.targets.cpu.runtime.llvm_library import Machine
from hybridml_compiler.targets.cpu.spec import CpuSpec, host_spec, llvm_version
from hybridml_compiler.weak import WeakMembers

OPT = 1  # code generation level: 1, 2 and 3 take the same time and give the same speed, 0 is 6-8 times slower code
# Without optimisation, a fifth of LLVM's time: for code that runs once per launch or result, beside what costs more. (A
# job of the pool on two threads takes 0.60 us instead of 0.58, and a large result 0.82 us as before.)
RARELY_CALLED = 0
MAX_COMPILE_THREADS = 8

# Modules in a call of LLVM, and characters of their text ([Note: Compile time]).
MOST_TOGETHER, LARGEST_TOGETHER = 8 if image.SUPPORTED else 1, 64 << 10

# What `image` links. LLVM's default for code of a JIT is the large model, which reaches every constant in two steps.
_CODE_MODEL = "small" if image.SUPPORTED else "jitdefault"


# Loop strength reduction is a fifth of LLVM's time and gains nothing, as kernels are emitted with invariants outside of
# their loops ([Note: Compile time]). No attribute of a function leaves it out. A version that does not know the option,
# or not that it may be given twice, ends the process: we give it to the one that it was tried with.
_PASS_LEFT_OUT = "-disable-lsr"

# Seconds for which a thread may keep the interpreter to itself. A module is three long calls of LLVM, after each of
# which its thread waits for one that emits or plans ([Note: Compile time]). Both are the process's, and set while
# anything here compiles: others get theirs back.
_TURN = 1e-4
_changes = Changes()


def _leaner() -> AbstractContextManager[None]:
    """LLVM without that pass, and short turns."""
    return _changes.hold({"leaner": _lean})


def _lean() -> Callable[[], object]:
    """Sets both; returns the undoing. In threads beside the main one: an interrupt comes between two settings nowhere
    else."""
    usual_turn = sys.getswitchinterval()
    sys.setswitchinterval(_TURN)
    _set_option(f"{_PASS_LEFT_OUT}=true")

    def undo() -> None:
        sys.setswitchinterval(usual_turn)
        _set_option(f"{_PASS_LEFT_OUT}=false")

    return undo


def _set_option(option: str) -> None:
    if llvm_library.llvm_version_info()[0] == llvm_library.TRIED:
        llvm_library.set_option(option)


def compile_ir(text: str, *, opt: int = OPT, cpu: CpuSpec | None = None) -> bytes:
    """Object code of a module of LLVM IR, for the CPU of this process unless another is given.

    LLVM's passes over IR are left out, which take half the time: code is final as emitted, with hoisted expressions and
    explicit vectors ([Note: Compile time]). Loops over elements ask for them (llvm/control/kernel.py). Raises
    CompileError with LLVM's message where the text is not valid IR.
    """
    return _compiled([text], opt, cpu or host_spec())


def _compiled(texts: Sequence[str], opt: int, cpu: CpuSpec) -> bytes:
    """One object of several modules."""
    memory.require(sum(map(len, texts)))
    return uninterrupted(lambda: _object(texts, opt, cpu))


def _object(texts: Sequence[str], opt: int, cpu: CpuSpec) -> bytes:
    with _leaner(), _machine(cpu, opt) as machine:
        try:
            return machine.object_of(texts)
        except ValueError as error:
            raise CompileError(f"LLVM rejected generated code: {error}") from error


_machines: list[Machine] = []
_idle: dict[tuple[CpuSpec, int], list[Machine]] = {}  # those that no thread has, by what they are for
_choosing = rlock()


@contextmanager
def _machine(cpu: CpuSpec, opt: int) -> Iterator[Machine]:
    """A code generator of this thread's own."""
    idle = _idle.setdefault((cpu, opt), [])
    with _choosing:
        machine = idle.pop() if idle else _new_machine(cpu, opt)
        machine.at_work.acquire()
    try:
        yield machine
    finally:
        machine.at_work.release()
        idle.append(machine)


def _new_machine(cpu: CpuSpec, opt: int) -> Machine:
    try:
        machine = Machine(cpu.triple, cpu.name, cpu.features, opt, _CODE_MODEL)
    except ValueError as error:
        raise CompileError(f"LLVM compiles nothing for {cpu.triple!r}: {error}") from error
    _machines.append(machine)
    return machine


def _key(text: str, opt: int, cpu: CpuSpec) -> str:
    return cache.key(text, f"opt={opt} {_CODE_MODEL} {_PASS_LEFT_OUT}", cpu.code_key, llvm_version())


class Source(NamedTuple):
    """A module to be compiled: the text that it is known by, and the function that emits its LLVM IR.

    One that defines nothing but this symbol for others may be compiled together with others. It is compiled for the
    CPU of this process unless another is given.
    """

    text: str
    emit: Callable[[], str]
    opt: int = OPT
    symbol: str = ""
    cpu: CpuSpec | None = None


def emitted_source(text: str, emit: Callable[[], str], *emitters: str, opt: int = OPT) -> Source:
    """A module known by this text and by the code of the modules that emit it (patterns of names), with the builder:
    where it is in the cache, they are not even loaded."""
    names = ("targets.cpu.llvm.ir", "targets.cpu.llvm.native", "targets.cpu.llvm.values", "targets.cpu.structs")
    return Source(f"; emitted by {fingerprint(*names, *emitters)}\n{text}", emit, opt)


def compile_source(source: Source) -> bytes:
    """Object code of a module, from the cache where it has been compiled before."""
    cpu = source.cpu or host_spec()
    name = _key(source.text, source.opt, cpu)
    data = cache.get(name)
    if data is None:
        data = compile_ir(source.emit(), opt=source.opt, cpu=cpu)
        cache.put(name, data)
    return data


def is_kept(source: Source) -> bool:
    """Whether a module is in the cache."""
    return cache.get(_key(source.text, source.opt, source.cpu or host_spec())) is not None


def compile_cached(text: str, *, opt: int = OPT, cpu: CpuSpec | None = None) -> bytes:
    """`compile_ir`, from the cache where it has been done before."""
    return compile_source(Source(text, lambda: text, opt, cpu=cpu))


def compile_sources(sources: Iterable[Source]) -> list[bytes]:
    """Object code of modules, in order."""
    with Compilation() as compilation:
        return compilation.objects(sources)


class _Job:
    """A module to be compiled. `done` is held until it has a result."""

    def __init__(self, name: str, source: Source) -> None:
        self.name, self.source, self.text = name, source, source.emit()
        self.cpu = source.cpu or host_spec()
        self.object: bytes | None = None
        self.error: BaseException | None = None
        self.done = threading.Lock()
        self.done.acquire()

    def result(self) -> bytes:
        """Its object code, once there is any."""
        if not self.done.acquire(timeout=time_limit.left()):
            raise time_limit.TimeIsUp
        self.done.release()
        if self.error is not None:
            raise self.error
        assert self.object is not None
        return self.object


class Compilation:
    """Object code of modules that become known one after the other.

    Only modules that are not in the cache are emitted and compiled: emitted here, compiled in threads meanwhile. A call
    of LLVM has a large fixed cost: modules that wait are compiled several per call.
    """

    def __init__(self) -> None:
        self.made: dict[str, _Job | bytes] = {}
        self.waiting: deque[_Job] = deque()
        self.turn = threading.Lock()
        self.threads = _most_threads()
        self.workers: list[threading.Lock] = []
        _compilations.add(self)
        self.work: SimpleQueue[object] = SimpleQueue()  # True for each module; anything else ends a worker

    def __enter__(self) -> Compilation:
        return self

    def __exit__(self, *exception: object) -> None:
        self.waiting.clear()
        self.work.put(False)
        for ended in self.workers:
            wait(ended)

    def add(self, source: Source) -> str:
        """Begin with a module; returns its name in the cache."""
        name = _key(source.text, source.opt, source.cpu or host_spec())
        if name in self.made:
            return name
        data = cache.get(name)
        if data is not None:
            self.made[name] = data
            return name
        memory.require()  # where a thread gets none while it begins, it never ends
        job = _Job(name, source)
        self.made[name] = job
        self.waiting.append(job)
        if self.threads > 1:
            self.work.put(True)
            if len(self.workers) < self.threads:
                # Where an interrupt leaves `__exit__` out, the end of this object ends them.
                self.workers.append(start(partial(_compile_alone, ref(self, self.work.put), self.work)))
        return name

    def objects(self, sources: Iterable[Source]) -> list[bytes]:
        """Object code of modules, in order."""
        names = [self.add(source) for source in sources]
        while self.waiting and not self.workers:
            time_limit.check()
            self._compile_some()
        return [found if isinstance(found := self.made[name], bytes) else found.result() for name in names]

    def _compile_some(self) -> None:
        with self.turn:
            jobs = self._next_jobs()
        if not jobs:
            return
        try:
            for job, data in zip(jobs, _compile_together(jobs), strict=True):
                cache.put(job.name, data)
                job.object = data
        except BaseException as error:
            for job in jobs:
                job.error = error if job.object is None else None
        for job in jobs:
            job.done.release()

    def _next_jobs(self) -> list[_Job]:
        """A thread's share of the waiting jobs, as far as they may be compiled together."""
        jobs: list[_Job] = []
        count, size = min(-(-len(self.waiting) // self.threads), MOST_TOGETHER), 0
        while self.waiting and len(jobs) < max(count, 1):
            size += len(self.waiting[0].text)
            if jobs and (size > LARGEST_TOGETHER or not _go_together(jobs[0], self.waiting[0])):
                break
            jobs.append(self.waiting.popleft())
        return jobs


_compilations: WeakMembers[Compilation] = WeakMembers()


def _end_workers() -> None:
    """At exit: an interrupt that nobody catches keeps its frames, and compilations in them whose end was left out."""
    for compilation in _compilations:
        compilation.work.put(False)


atexit.register(_end_workers)  # before what waits for threads, which is registered first


def _compile_alone(compilation: ref[Compilation], work: SimpleQueue[object]) -> None:
    """Compiles what is waiting until the compilation ends."""
    with _leaner():
        while (token := work.get()) is True:
            if (alive := compilation()) is not None:
                alive._compile_some()
            del alive
    work.put(token)  # for the next worker


def _go_together(one: _Job, other: _Job) -> bool:
    first, second = one.source, other.source
    if not (first.symbol and second.symbol) or first.opt != second.opt:
        return False
    return one.cpu == other.cpu and one.cpu.triple == host_spec().triple  # what `elf.cut` knows


def _compile_together(jobs: Sequence[_Job]) -> list[bytes]:
    """One object for each of the jobs."""
    opt, cpu = jobs[0].source.opt, jobs[0].cpu
    if len(jobs) == 1:
        return [_compiled([jobs[0].text], opt, cpu)]
    # What a module defines has a section of its own to be found by. A definition, and nothing else, ends its line so.
    texts = [job.text.replace(" {\n", f' section ".text.{job.source.symbol}" {{\n') for job in jobs]
    try:
        return elf.cut(_compiled(texts, opt, cpu), [job.source.symbol for job in jobs])
    except elf.Foreign:
        return [_compiled([job.text], opt, cpu) for job in jobs]


def _most_threads() -> int:
    return min(_cores(), MAX_COMPILE_THREADS)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


_held_for_fork: list[AbstractContextManager[object]] = []


def _before_fork() -> None:
    """Waits until no thread is inside of LLVM: the child gets its memory as it is, with all locks of C++ in it, and
    without the threads. A compilation takes milliseconds, of the largest programs some seconds."""
    ffi: Any = sys.modules.get("llvmlite.binding.ffi")  # which numba calls
    numbas: Any = getattr(getattr(ffi, "lib", None), "_lock", None)
    _hold_for_fork(numbas if hasattr(numbas, "__enter__") else nullcontext())
    _hold_for_fork(_choosing)
    for machine in _machines:
        _hold_for_fork(machine.at_work)


def _hold_for_fork(lock: AbstractContextManager[object]) -> None:
    lock.__enter__()
    _held_for_fork.append(lock)


def _after_fork() -> None:
    """Releases what the fork held, in the parent and in the child, which both go on in the thread that has forked."""
    while _held_for_fork:
        _held_for_fork.pop().__exit__(None, None, None)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)
