"""The code of one program: a module of LLVM IR per kernel, compiled while others are being planned."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import ModuleType

from ...aval import Aval
from ...errors import CompileError
from ...loops.ir import Kernel, KernelSpec
from ...record import replace
from ...schedule.control import Control
from ...schedule.launch import Copy, Plan
from ...sizes.dims import hint
from ...sizes.guards import collecting, structural
from ..base import Stage
from .llvm.callee import Callee
from .llvm.modules import Module, PlanModules, modules_of
from .program import STEP, Loaded, StoredProgram, imports, named_in
from .runtime import allocation, jit, polling, scratch, threads
from .runtime.linking import loader
from .runtime.linking.loader import Library
from .runtime.spans import Recorder
from .spec import host_spec


def _may_be_in_place(spec: KernelSpec) -> bool:
    """Whether its code may be that of a step of the loop or branch that it is launched in."""
    from .llvm.control.fits import is_of_elements, may_fit

    return may_fit(spec) if isinstance(spec, Kernel) else isinstance(spec, Control) and is_of_elements(spec)


def _shared(callee: Callee) -> tuple[ModuleType, ...]:
    """The parts of all programs that linking will want, and finds in the cache."""
    return (scratch, polling, threads) if callee.parallel else (scratch, polling) if callee.is_long else ()


class Code:
    """Made by `begin` for each launch, and by `finish`, inside of `compiling`; its texts can be had without that."""

    def __init__(self, specs: PlanModules, outputs: Sequence[Aval], stage: Stage) -> None:
        self.cpu, self._specs, self._outputs, self._stage = specs.cpu, specs, outputs, stage
        self._begun: dict[str, bool] = {}  # modules by symbol: whether their code was in the cache
        self._modules: list[Module] | None = None
        self._compilation: jit.Compilation | None = None
        self._shared: set[str] = set()  # names of those that are begun with

    @contextmanager
    def compiling(self) -> Iterator[None]:
        with jit.Compilation() as self._compilation:
            memory = allocation.source([hint(aval.nbytes) for aval in self._outputs])
            if memory is not None:  # whoever makes the results wants it, and finds its code in the cache
                self._compilation.add(memory)
            yield
        self._compilation = None

    def begin(self, spec: KernelSpec, is_body: bool = False) -> None:
        if is_body and _may_be_in_place(spec):  # or LLVM would compile what nobody calls
            return
        with self._stage("source"):
            modules = self._specs.modules(spec)
        if self._compilation is None:
            return
        with self._stage("codegen"):
            for module in modules:
                if module.symbol not in self._begun:
                    name = self._compilation.add(module.code)
                    self._begun[module.symbol] = isinstance(self._compilation.made[name], bytes)
            for part in _shared(self._specs.callee(spec)):
                if part.__name__ not in self._shared:
                    self._shared.add(part.__name__)
                    self._compilation.add(part.source())

    def modules(self, plan: Plan, *, timed: bool = False) -> list[Module]:
        """One of every distinct kernel, then that of the step that launches them."""
        if timed:
            return modules_of(plan, self._specs, timed=True)
        if self._modules is None:
            with self._stage("source"):
                self._modules = modules_of(plan, self._specs)
        return self._modules

    def module(self, spec: KernelSpec) -> Module | None:
        """The module of a launch's spec; None for a copy, which has no code."""
        return None if isinstance(spec, Copy) else self._specs.modules(spec)[-1]

    def kernels(self, plan: Plan) -> int:
        return len(self.modules(plan)) - 1

    def text(self, plan: Plan) -> str:
        return "\n".join(f"; ---- {module.symbol}\n{module.emit()}" for module in self.modules(plan))

    def objects(self, plan: Plan) -> dict[str, bytes]:
        """Object code of every kernel and of the step by symbol, which may be for another CPU: nothing is loaded.

        They import what `program.imports` names.
        """
        modules = self.modules(plan)
        with self._stage("codegen"):
            objects = jit.compile_sources([module.code for module in modules])
        return {module.symbol: data for module, data in zip(modules, objects, strict=True)}

    def finish(self, plan: Plan, facts: Mapping[str, int], key: str | None) -> Loaded:
        assert self._compilation is not None
        self._require_here()
        modules = self.modules(plan)
        with self._stage("codegen"):
            objects = self._compilation.objects([module.code for module in modules])
        with self._stage("link"):
            program = self._linked(objects, plan, facts, key)
        cached = sum(self._begun.get(module.symbol, False) for module in modules)
        return replace(program, facts={**facts, "cached_kernels": cached})

    def _linked(self, objects: list[bytes], plan: Plan, facts: Mapping[str, int], key: str | None) -> Loaded:
        image = None if key is None else loader.link(objects, [STEP])
        program = StoredProgram(plan.fresh, plan.arena_bytes, facts, image, plan.constants)
        if key is None or image is None:
            library = loader.load(objects, imports(plan.constants, named_in(objects)), [STEP], keep=plan.constants)
            return Loaded(plan.fresh, plan.arena_bytes, facts, library)
        loaded = program.load()
        program.save(key)
        return loaded

    def _require_here(self) -> None:
        if obstacle := self.cpu.obstacle_on(host_spec()):
            raise CompileError(
                f"a program cannot be loaded here: {obstacle}. Compile it for this process's CPU (`host_spec()`), or "
                "take its object code, `Code.objects(plan)`, to a CPU that it is for"
            )

    def timed(self, plan: Plan) -> tuple[Library, Recorder]:
        """The same program with a step that reads the clock round every launch, and where it writes that to."""
        self._require_here()
        recorder = Recorder()
        with collecting(None), structural():
            objects = jit.compile_sources([module.code for module in self.modules(plan, timed=True)])
        symbols = imports(plan.constants, named_in(objects)) | recorder.imports
        return loader.load(objects, symbols, [STEP], keep=(*plan.constants, recorder)), recorder
