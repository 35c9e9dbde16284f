"""The protocol of targets: what the pipeline and its callers ask of a machine that plans are compiled for.

    graph --passes, schedule (which asks for `capabilities`)--> plan --Code--> Program --executable--> Executable

A target is a folder beside this file. The pipeline names none: it asks for that of a device (registry.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from ..aval import Aval
from ..once import lazy
from ..record import record
from ..sizes.dims import Size

if TYPE_CHECKING:  # a program that is found on disk needs no schedule
    from ..loops.ir import KernelSpec
    from ..placement.by_cost import Choice
    from ..placement.performance import Performance
    from ..schedule.kernels.library import Capabilities
    from ..schedule.launch import Plan
    from .shapes import Shapes

Stage = Callable[[str], AbstractContextManager[None]]  # times a part of a stage under its name


@record
class Program:
    """A compiled plan, without the graph that it was made of: what a target may keep on disk."""

    fresh: Sequence[int]  # positions of the outputs with memory of their own
    arena_bytes: Size  # of the memory that a call needs beside inputs and outputs
    facts: Mapping[str, int]  # the fields of `Stats` that a program found on disk knows


class Code(Protocol):
    """The code of one program, made while the program is being planned."""

    def compiling(self) -> AbstractContextManager[None]:
        """Inside of it, what is begun is compiled at once."""

    def begin(self, spec: KernelSpec, is_body: bool = False) -> None:
        """Begins with the code of a launch, while others are still being planned. Once or more for a spec, of any kind
        but copies; its loop nests are `spec.nests`. `is_body`: it is launched by a step of a loop, or in a branch."""

    def text(self, plan: Plan) -> str:
        """The code of every kernel, for people."""

    def kernels(self, plan: Plan) -> int:
        """Number of distinct kernels."""

    def finish(self, plan: Plan, facts: Mapping[str, int], key: str | None) -> Program:
        """The program; kept on disk under the key, unless that is None."""


@record
class Interface:
    """The arrays that a program takes and returns, and what is known about its making."""

    name: str
    inputs: Sequence[Aval]
    outputs: Sequence[Aval]  # all of the graph's, in order
    donate: Mapping[int, int]  # output -> input whose memory it is written to
    stats: Any
    stages: Any  # by which it was made; worked out when somebody looks
    shapes: Shapes | None = None  # of a graph with symbols for sizes, which only a target that `takes_sizes` is given


class Executable:
    """`exe(arrays)` runs a program: one array of the target's per input; returns one per output.

    A donated output is the array of the input that it overwrites; the others are fresh. Several threads may call it at
    once.
    """

    choice: Choice | None = None  # of devices by cost, where it was made so

    def __init__(self, program: Program, interface: Interface) -> None:
        self.name, self.inputs, self.donate = interface.name, interface.inputs, interface.donate
        self.stats, self.stages, self.shapes = interface.stats, interface.stages, interface.shapes
        self.fresh, self.arena_bytes = program.fresh, program.arena_bytes
        self.outputs = [interface.outputs[k] for k in program.fresh]  # the fresh ones

    def run(self, arrays: Sequence[Any]) -> Sequence[Any] | None:
        """The fresh outputs; None where an index check or a call of NumPy has failed, which is then explained."""
        raise NotImplementedError

    def __call__(self, arrays: Sequence[Any]) -> list[Any]:
        return self._placed(self.run(arrays), arrays)

    def _placed(self, results: Sequence[Any] | None, arrays: Sequence[Any]) -> list[Any]:
        """All outputs of a call, with these fresh ones."""
        if results is None:
            cautious = self.stages.cautious
            if cautious is not None:
                found: list[Any] = cautious(arrays)
                return found
            raise self.stages.failure(arrays)
        if not self.donate:
            return list(results)
        fresh = dict(zip(self.fresh, results, strict=True))
        count = len(fresh) + len(self.donate)
        return [fresh[k] if k in fresh else arrays[self.donate[k]] for k in range(count)]

    @property
    def where(self) -> Mapping[Any, str]:
        """The devices of the graph's operations that another one computes than has their values."""
        return {} if self.choice is None else self.choice.where

    def replayed(self) -> Executable:
        """The program for many calls: a device may record its launches, and replay them."""
        return self

    def computed_by(self, spec: KernelSpec) -> str:
        """A sentence about a launch that is no code of the target's: whose it is, and why; "" for the target's own."""
        return ""

    @property
    def ir(self) -> str:
        """Text of the graph that was compiled, after the passes."""
        return str(self.stages.ir)

    @property
    def llvm(self) -> str:
        """The target's code of every kernel and of the step that launches them."""
        return str(self.stages.llvm)

    @property
    def launches(self) -> Sequence[Any]:
        """The launches of one call, in order."""
        launches: Sequence[Any] = self.stages.launches
        return launches


class Target:
    """A machine that plans are compiled for: `code` and `executable`, and what is not as it is given here."""

    name: str

    @property
    def key(self) -> str:
        """Text of all that decides about the code, beside the graph and the compiler."""
        return self.name

    @property
    def performance(self) -> Performance:
        """Speeds and size of its device, by which operations are placed (see performance.py)."""
        from ..placement.performance import UNKNOWN

        return UNKNOWN

    @lazy
    def capabilities(self) -> Capabilities:
        """Answers to what the schedule asks."""
        from ..schedule.kernels.library import Capabilities

        return Capabilities()

    def limited(self, own_products: bool, own_convolutions: bool) -> Target:
        """The target with or without kernels of its own for these, where it can do without."""
        return self

    def find(self, key: str) -> Program | None:
        """The program that was kept under the key by any process; None where there is none that runs here."""
        return None

    def code(self, outputs: Sequence[Aval], stage: Stage) -> Code:
        """The code of a program with these outputs, to be made."""
        raise NotImplementedError

    def executable(self, program: Any, interface: Interface) -> Executable:
        """A program as a callable."""
        raise NotImplementedError
