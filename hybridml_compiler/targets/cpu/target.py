"""A CPU as a target (see targets/base.py): programs run on that of this process; for another one there are objects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ... import config
from ...aval import Aval
from ...errors import CompileError
from ...once import lazy, once
from ...record import replace
from ..base import Interface, Stage, Target
from . import program
from .executable import CpuExecutable
from .program import Loaded
from .spec import CpuSpec, host_spec, llvm_version

if TYPE_CHECKING:
    from ...placement.performance import Performance
    from ...schedule.kernels.library import Capabilities
    from .code import Code
    from .llvm.modules import PlanModules


class Cpu(Target):
    """A program that is found on disk needs neither the schedule nor the code generators: they are imported late."""

    name = "cpu"

    def __init__(self, spec: CpuSpec) -> None:
        self.spec = spec
        self._modules: dict[bool, PlanModules] = {}  # by whether their accesses are checked

    def limited(self, own_products: bool, own_convolutions: bool) -> Cpu:
        given = {"products": own_products, "convolutions": own_convolutions}
        without = tuple(name for name, own in given.items() if not own)
        return self if without == self.spec.without else _limited(replace(self.spec, without=without))

    @property
    def key(self) -> str:
        return f"{self.spec.key} {llvm_version()}"

    @property
    def performance(self) -> Performance:
        from ..performance import cpu_performance

        return cpu_performance(self.spec.cores)

    @lazy
    def capabilities(self) -> Capabilities:
        from .capabilities import capabilities

        return capabilities(self.spec)

    def find(self, key: str) -> Loaded | None:
        try:
            stored = program.find(key)
            return None if stored is None else stored.load()
        except (CompileError, TypeError, ValueError):
            return None

    def code(self, outputs: Sequence[Aval], stage: Stage) -> Code:
        from .code import Code
        from .llvm.modules import PlanModules

        modules = self._modules.setdefault(config.field("sanitize"), PlanModules(self.spec))
        return Code(modules.trimmed(), outputs, stage)

    def executable(self, program: Loaded, interface: Interface) -> CpuExecutable:
        return CpuExecutable(program, interface)


_limited = once(Cpu)
TARGET = Cpu(host_spec())
