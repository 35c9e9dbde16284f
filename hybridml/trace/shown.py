"""What a traced function shows of the program of its last call."""

from __future__ import annotations

import html
import os
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hybridml_compiler.errors import ArgumentError
from hybridml_compiler.graph import ir
from hybridml_compiler.graph.text import print_graph

from .branches import Ask, way
from .entry import Entry
from .outcome import Outcome

if TYPE_CHECKING:
    from ..views.page import View


@dataclass(frozen=True)
class CacheInfo:
    """Calls that traced and compiled (`compiles`), calls that did not (`hits`), compiled signatures kept
    (`entries`).
    """

    compiles: int
    hits: int
    entries: int


@dataclass(frozen=True)
class Stats:
    """What the last compiled signature cost and costs, in milliseconds; kernels and bytes of one call.

    `first_ms` is what the first call took in all: capture, passes, code generation and the run.
    """

    trace_ms: float
    passes_ms: float
    codegen_ms: float
    first_ms: float
    steady_ms: float
    kernels: int
    bytes: int


def _answer(ask: Ask, value: bytes) -> str:
    """` is True`, for a single value."""
    return f" is {np.frombuffer(value, ask.node.dtype)[0]}" if ask.node.aval.shape == () else ""


class Shown:
    """The part of `TracedFunction` that only looks."""

    _name: str
    _last: Entry | None
    _trace_ms: float

    def _shown(self) -> Outcome:
        shown = None if self._last is None else self._last.shown()
        if shown is None:
            raise ArgumentError(f"{self._name} has not been called yet: there is nothing compiled to show")
        return shown

    def _parts(self) -> Iterator[tuple[str, ir.Graph | None, Any]]:
        """What the last call has run, in order: segments, each with the question that it ends in (graph and executable
        are None where the value was there by then), and the end, without one."""
        outcome = self._shown()
        for ask, value in way(None if self._last is None else self._last.root, outcome):
            answer = _answer(ask, value)
            question = f"{ask.what}{answer} at {ask.where}"
            yield question, *((None, None) if ask.segment is None else (ask.segment.graph, ask.segment.executable))
        yield "", outcome.program.graph, outcome.program.executable

    @property
    def ir(self) -> str:
        """Text of the captured graphs of the last call, below the guards of its symbolic sizes: one, or a segment for
        each value that Python has asked for, with the question below it.

        >>> import hybridml as hm
        >>> f = hm.trace(lambda x: hm.exp(x) if x.sum() > 0 else -x)
        >>> y = f(hm.tensor([1.0]))
        >>> [line.split(" at ")[0] for line in f.ir.splitlines() if line.startswith("# ")]
        ['# bool() is True']
        """
        sized = None if self._last is None else self._last.sized
        lines = [] if sized is None else [f"# {guard}  {guard.where}" for guard in sized.guards.list]
        for question, graph, _ in self._parts():
            lines += [] if graph is None else [print_graph(graph)]
            lines += [f"# {question}"] if question else []
        return "\n".join(lines)

    @property
    def llvm(self) -> str:
        """LLVM IR of what the last call has run, in the parts of `ir`."""
        lines = []
        for question, _, executable in self._parts():
            lines += [] if executable is None else [executable.llvm]
            lines += [f"; {question}"] if question else []
        return "\n".join(lines)

    @property
    def stats(self) -> Stats:
        """Times, kernels and bytes of the last call's program."""
        entry = self._shown()
        found = entry.program.executable.stats
        ms = getattr(found, "milliseconds", {})
        compile_ms = entry.program.compile_ms
        passes = sum(ms.get(k, 0.0) for k in ("verify", "passes", "plan"))
        each = [getattr(executable, "stats", None) for _, _, executable in self._parts()]
        return Stats(
            self._trace_ms, passes, compile_ms - passes, entry.first_ms,
            statistics.median(entry.steady_ms) if entry.steady_ms else entry.run_ms,
            sum(getattr(s, "kernels", 0) for s in each), sum(getattr(s, "nbytes", 0) for s in each),
        )  # fmt: skip

    def show(self) -> View:
        """A page of the last call's program: source lines, kernels, graph IR and LLVM IR, each leading to the others.

        It is shown in a notebook; `show().save(path)` writes it for a browser. Programs of more than 160 operations are
        drawn kernel by kernel. Raises ArgumentError before the first call.

        >>> import hybridml as hm
        >>> f = hm.trace(lambda x: hm.exp(x * 2) + 1)
        >>> y = f(hm.ones((4,)))
        >>> f.show().title
        '<lambda>: 3 operations in 1 kernel'
        """
        from ..views.page import view

        program = self._shown().program
        return view(self._name, program.executable, program.graph)

    def save_html(self, path: str | os.PathLike[str]) -> None:
        """Write `show()` as an HTML file that needs nothing but itself."""
        self.show().save(path)

    def _repr_html_(self) -> str:
        shown = None if self._last is None else self._last.shown()
        return f"<pre>{html.escape(repr(self))}</pre>" if shown is None else self.show()._repr_html_()
