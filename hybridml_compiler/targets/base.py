"""The protocol of targets: what the pipeline and its callers ask of a machine that plans are compiled for.

    graph --passes, schedule (which asks for `capabilities`)--> plan --Code--> Program --executable--> Executable

A target is a folder beside this file. The pipeline names none: it asks for that of a device (registry.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ..aval import Aval
from ..record import record
from ..sizes.dims import Size

if TYPE_CHECKING:  # a program that is found on disk needs no schedule
    from ..loops.ir import KernelSpec
    from ..schedule.kernels.library import Capabilities
    from ..schedule.launch import Plan
    from .shapes import Shapes

Stage = Callable[[str], AbstractContextManager[None]]  # times a part of a stage under its name


class Program(Protocol):
    """A compiled plan, without the graph that it was made of: what a target may keep on disk."""

    @property
    def facts(self) -> Mapping[str, int]:
        """The fields of `Stats` that a program found on disk knows."""

    @property
    def fresh(self) -> Sequence[int]:
        """Positions of the outputs with memory of their own."""

    @property
    def arena_bytes(self) -> Size:
        """Bytes of the memory that a call needs beside inputs and outputs."""


class Code(Protocol):
    """The code of one program, made while the program is being planned."""

    def compiling(self) -> AbstractContextManager[None]:
        """Inside of it, what is begun is compiled at once."""

    def begin(self, spec: KernelSpec) -> None:
        """Begins with the code of a launch, while others are still being planned. Once or more for a spec, of any kind
        but copies; its loop nests are `spec.nests`."""

    def text(self, plan: Plan) -> str:
        """The code of every kernel, for people."""

    def kernels(self, plan: Plan) -> int:
        """Number of distinct kernels."""

    def finish(self, plan: Plan, facts: Mapping[str, int], key: str | None) -> Program:
        """The program; kept on disk under the key, unless that is None."""


@record
class Interface:
    """The arrays that a program takes and returns, and who explains a call that failed."""

    name: str
    inputs: Sequence[Aval]
    outputs: Sequence[Aval]  # all of the graph's, in order
    donate: Mapping[int, int]  # output -> input whose memory it is written to
    # The error of a call whose arrays (on the host) these are, in which an index or a call of NumPy has failed
    explain_failure: Callable[[Sequence[np.ndarray]], Exception]


class Executable(Protocol):
    """`exe(arrays)` runs a program: one array of the target's per input; returns one per output.

    A donated output is the array of the input that it overwrites; the others are fresh.
    """

    stats: Any
    stages: Any

    @property
    def ir(self) -> str:
        """Text of the graph that was compiled, after the passes."""

    @property
    def launches(self) -> Sequence[Any]:
        """The launches of one call, in order."""

    def __call__(self, arrays: Sequence[Any]) -> list[Any]: ...


class Target(Protocol):
    """A machine that plans are compiled for."""

    name: str

    @property
    def key(self) -> str:
        """Text of all that decides about the code, beside the graph and the compiler."""

    @property
    def capabilities(self) -> Capabilities:
        """Answers to what the schedule asks."""

    def find(self, key: str) -> Program | None:
        """The program that was kept under the key by any process; None where there is none that runs here."""

    def code(self, outputs: Sequence[Aval], stage: Stage) -> Code:
        """The code of a program with these outputs, to be made."""

    def executable(
        self, program: Any, interface: Interface, stats: Any, stages: Any, shapes: Shapes | None = None
    ) -> Executable:
        """The program as a callable; `shapes` where its graph has symbols for sizes, which only a target that
        `takes_sizes` is given. Several threads may call it at once."""
