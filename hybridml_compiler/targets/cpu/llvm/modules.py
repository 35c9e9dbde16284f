"""LLVM modules of a plan: one for every distinct kernel, and the step. Each has a source and can be emitted.

The source is the text to be compiled (a kernel of the loop dialect, a product, the launches of a step)
together with a fingerprint of the code that emits it. Object code is cached under the source, so that a kernel that has
been compiled before, in this process or another, is not even emitted: its text takes a sixth of the time of its IR.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from .... import config
from ....loops.ir import KernelSpec
from ....record import record
from ....runtime.fingerprint import fingerprint
from ....schedule.launch import Copy, Plan
from ....sizes.guards import collecting
from ..program import STEP
from ..runtime.jit import OPT, Source
from ..spec import CpuSpec
from . import ir
from .callee import Callee
from .registry import callee_of, kind_of
from .step import emit_step, launch_sources

# The code that decides what is emitted for a source and how it is compiled, as patterns of modules. All of the
# schedule: sources hold the fields of a blocking, emitters also call what it computes from them.
EMITTERS = (
    "targets.cpu.llvm.*",
    "targets.cpu.kernels.*",
    "loops.*",
    "schedule.*",
    "targets.cpu.runtime.jit",
    "targets.cpu.runtime.llvm_library",
    "targets.cpu.runtime.scratch",
    "targets.cpu.runtime.thread_block",
    "targets.cpu.runtime.sanitize",
    "sizes.*",
    "dtypes",
    "walk",
)


_MOST = 1024  # specs that are kept from one plan to the next


@record
class Module:
    symbol: str
    source: str
    cpu: CpuSpec
    emit: Callable[[], str]  # its LLVM IR
    opt: int = OPT

    @property
    def code(self) -> Source:
        """The source to compile."""
        symbol = "" if self.symbol == STEP else self.symbol
        return Source(self.source, self.emit, self.opt, symbol=symbol, cpu=self.cpu)


class PlanModules:
    """Specs of plans, with the modules of each for a CPU: launches of equal groups have one spec."""

    def __init__(self, cpu: CpuSpec) -> None:
        self.cpu = cpu
        self._known: dict[int, tuple[KernelSpec, list[Module]]] = {}  # by identity
        self._callees: dict[int, tuple[KernelSpec, Callee]] = {}

    def trimmed(self) -> PlanModules:
        """Itself, with no more than so many specs from the plans before."""
        if len(self._known) > _MOST:
            self._known.clear()
            self._callees.clear()
        return self

    def modules(self, spec: KernelSpec) -> list[Module]:
        """Modules of the specs that it calls, then its own."""
        found = self._known.get(id(spec))
        if found is None:
            found = self._known[id(spec)] = spec, _modules_of_spec(spec, self)
        return found[1]

    def callee(self, spec: KernelSpec) -> Callee:
        """The function of a spec."""
        found = self._callees.get(id(spec))
        if found is None:
            found = self._callees[id(spec)] = spec, callee_of(spec, self.cpu, self.modules(spec)[-1].symbol)
        return found[1]


def modules_of(plan: Plan, specs: PlanModules, *, timed: bool = False) -> list[Module]:
    """Distinct kernels in order of first use, then the step that launches them (`timed`: for a profile)."""
    cpu = specs.cpu
    found: dict[str, Module] = {}
    callees: list[Callee | None] = []
    for launch in plan.launches:
        if isinstance(launch.spec, Copy):
            callees.append(None)
            continue
        for module in specs.modules(launch.spec):
            found.setdefault(module.symbol, module)
        callees.append(specs.callee(launch.spec))
    lines = launch_sources(plan, callees)
    header = (
        f"{'timed ' * timed}step {len(plan.inputs)} inputs {len(plan.outputs)} outputs{' '.join(['', *plan.symbols])}"
    )
    # One call per launch, and each once: there is nothing in it to optimise ([Note: Compile time]).
    step = Module(STEP, _source("\n".join([header, *lines])), cpu, lambda: _step_text(plan, cpu, callees, timed), opt=0)
    return [*found.values(), step]


def _modules_of_spec(spec: KernelSpec, specs: PlanModules) -> list[Module]:
    kind, cpu = kind_of(spec), specs.cpu
    parts = [specs.modules(part) for part in kind.parts(spec, cpu)]
    names = [[own.symbol for *_, own in parts]] if parts else []
    source = _source(kind.source(spec, cpu, *names))
    symbol = "k_" + hashlib.sha256(source.encode()).hexdigest()[:16]

    def emit() -> str:
        module = new_module(symbol, cpu)
        with collecting(None):  # code is kept by its source, which says nothing of the guards of a program
            kind.emit(module, symbol, spec, *names)
        return str(module)

    return [*{module.symbol: module for part in parts for module in part}.values(), Module(symbol, source, cpu, emit)]


def _step_text(plan: Plan, cpu: CpuSpec, callees: list[Callee | None], timed: bool) -> str:
    module = new_module(STEP, cpu)
    emit_step(module, plan, callees, timed=timed)
    return str(module)


def new_module(name: str, cpu: CpuSpec) -> ir.Module:
    """An empty module, whose functions check their accesses under `HYBRIDML_SANITIZE`."""
    if not config.field("sanitize"):
        return ir.Module(name, cpu)
    from .checked import CheckedBuilder

    return ir.Module(name, cpu, CheckedBuilder)


def _source(text: str) -> str:
    checked = " checked" * config.field("sanitize")
    return f"; emitted{checked} by {fingerprint(*EMITTERS)}\n{text}"
