"""Methods by which a traced function is inspected: the door to the inspector and profiler, loaded when asked for."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from hybridml_compiler.config import Settings
from hybridml_compiler.errors import ArgumentError
from hybridml_compiler.graph import ir
from hybridml_compiler.graph.text import print_graph

from .casting import configured
from .run.compiled_path import CompiledPath
from .specialize.entry import Entry
from .specialize.path_tree import ValueBranch, way

if TYPE_CHECKING:
    from ..inspect.explained import Explanation
    from ..inspect.fetch import Fetch
    from ..inspect.graph import Graph
    from ..profiler.lowered import Lowered
    from ..profiler.page import View

F = TypeVar("F", bound=Callable[..., Any])


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
    """Times of the last compiled signature, in milliseconds, with the kernels and bytes of one call.

    `first_ms` is what the first call took in all: capture, passes, code generation and the run.
    """

    trace_ms: float
    passes_ms: float
    codegen_ms: float
    first_ms: float
    steady_ms: float
    kernels: int
    bytes: int


def _answer(ask: ValueBranch, value: bytes) -> str:
    """` is True`, for a single value."""
    return f" is {np.frombuffer(value, ask.node.dtype)[0]}" if ask.node.aval.shape == () else ""


def _here(method: F) -> F:
    """Decorator of a method: in a block of `config` it looks at the programs of that."""

    @wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return method(configured(self), *args, **kwargs)

    return cast(F, call)


class Introspection:
    """The part of `TracedFunction` that only looks."""

    _name: str
    _last: Entry | None
    _trace_ms: float
    _reported: set[str]
    made_for: tuple[Settings, Settings] = ((), ())  # the settings of the program and of the blocks around

    @property
    @_here
    def last_path(self) -> CompiledPath | None:
        """The path of the last call; None where it was none of a program."""
        return None if self._last is None else self._last.shown()

    def _shown(self) -> CompiledPath:
        shown = self.last_path
        if shown is None and self._reported:
            reasons = "; it ".join(sorted(self._reported))
            raise ArgumentError(f"{self._name} has no compiled program to show, as its calls run eagerly: it {reasons}")
        if shown is None:
            raise ArgumentError(
                f"{self._name} has not been called yet: there is nothing compiled to show; call it, or give arguments "
                "to explain(...) or graph_of(...)"
            )
        return shown

    def _parts(self) -> Iterator[tuple[str, ir.Graph | None, Any]]:
        """Yields the parts that the last call has run: segments, each with the question that it ends in (graph and
        executable are None where the value was known already), and the end, without one."""
        path = self._shown()
        for ask, value in way(None if self._last is None else self._last.root, path):
            answer = _answer(ask, value)
            question = f"{ask.what}{answer} at {ask.where}"
            yield question, *((None, None) if ask.segment is None else (ask.segment.graph, ask.segment.executable))
        yield "", path.program.graph, path.program.executable

    @property
    @_here
    def ir(self) -> str:
        """Text of the captured graphs of the last call, below the guards of its symbolic sizes: one, or a segment for
        each value that Python has asked for, with the question below it. Where several devices compute one, the
        program of each follows, with what it receives and sends, and where the devices were chosen by cost, with that.

        >>> import hybridml as hm
        >>> f = hm.trace(lambda x: hm.exp(x) if x.sum() > 0 else -x)
        >>> y = f(hm.tensor([1.0]))
        >>> [line.split(" at ")[0] for line in f.ir.splitlines() if line.startswith("# ")]
        ['# bool() is True']
        """
        sized = None if self._last is None else self._last.sized
        lines = [] if sized is None else [f"# {guard}  {guard.where}" for guard in sized.guards.list]
        for question, graph, executable in self._parts():
            lines += [] if graph is None else [print_graph(graph)]
            programs, choice = getattr(executable, "programs", ()), getattr(executable, "choice", None)
            if choice is not None and choice.whole is not None and not programs:
                lines.append(f"# on {choice.whole.device}: {choice.whole}")
            for part in programs:
                share = executable.shares.get(part)
                lines += [f"# on {part.device}{'' if share is None else f': {share}'}", print_graph(part.graph)]
            lines += [f"# {question}"] if question else []
        return "\n".join(lines)

    @property
    @_here
    def graph(self) -> Graph:
        """The graph of the last compiled call, as captured: nodes with types, parameters, users and the user's lines.

        A read-only object (see inspect/graph.py) with the names of `run(fetch=...)`; `graph.optimized` is what the
        compiler's passes make of it, `graph.to_networkx()` a copy for graph algorithms, `graph.draw()` a drawing. Where
        Python has asked for values, it is all that leads to what the path returns and writes, numbered once, where
        `ir` has a segment for each value, numbered anew, and what only decides the path. Raises ArgumentError before
        the first compiled call.

        >>> import hybridml as hm
        >>> f = hm.trace(lambda x: hm.exp(x * 2) + 1)
        >>> y = f(hm.ones((4,)))
        >>> [node.op for node in f.graph if node.inputs]
        ['multiply', 'exp', 'add']
        """
        from ..inspect.graph import graph_of

        return graph_of(self._shown())

    @_here
    def graph_of(self, *args: Any, **kwargs: Any) -> Graph:
        """The graph of a call with these arguments, which is not run; it is traced and compiled if it is new.

        Raises TraceError where such a call runs eagerly.

        >>> import hybridml as hm
        >>> f = hm.trace(lambda x: x.sum())
        >>> f.graph_of(hm.ones((4, 2))).inputs[0].shape
        (4, 2)
        """
        from ..inspect.graph import graph_of

        traced: Any = self
        return graph_of(traced.resolve(args, kwargs).path)

    @_here
    def lower(self, *args: Any, **kwargs: Any) -> Lowered:
        """Captures a call with arguments of these types, which is not run; `.compile()` says what it costs.

        args, kwargs: the function's, with `hm.ShapeDtypeStruct`s in the places of tensors where there are none. Nothing
        is computed, and no memory touched. `compile()` makes the program that such calls run from then on; its
        `cost_analysis()` has operations and bytes, `memory_analysis()` the bytes of a call, by source line. TraceError
        where Python asks for the value of a tensor, and where such calls run eagerly. Source: JAX's stages.

        >>> import hybridml as hm
        >>> f = hm.trace(lambda x: hm.exp(x * 2).sum(0))
        >>> compiled = f.lower(hm.ShapeDtypeStruct((64, 16), hm.float32)).compile()
        >>> compiled.memory_analysis().argument_size_in_bytes, compiled.cost_analysis()["kernels"]
        (4096, 1.0)
        """
        from ..profiler.lowered import Lowered

        traced: Any = self
        return Lowered(traced, args, kwargs)

    @property
    @_here
    def llvm(self) -> str:
        """LLVM IR of what the last call has run, in the parts of `ir`."""
        lines = []
        for question, _, executable in self._parts():
            lines += [] if executable is None else [executable.llvm]
            lines += [f"; {question}"] if question else []
        return "\n".join(lines)

    @property
    @_here
    def stats(self) -> Stats:
        """Times, kernels and bytes of the last call's program."""
        entry = self._shown()
        from statistics import median

        found = entry.program.executable.stats
        ms = getattr(found, "milliseconds", {})
        compile_ms = entry.program.compile_ms
        passes = sum(ms.get(k, 0.0) for k in ("verify", "passes", "plan"))
        each = [getattr(executable, "stats", None) for _, _, executable in self._parts()]
        return Stats(
            self._trace_ms, passes, compile_ms - passes, entry.first_ms,
            median(entry.steady_ms) if entry.steady_ms else entry.run_ms,
            sum(getattr(s, "kernels", 0) for s in each), sum(getattr(s, "nbytes", 0) for s in each),
        )  # fmt: skip

    @_here
    def explain(self, *args: Any, **kwargs: Any) -> Explanation:
        """Explains what a call with these arguments runs (see `hybridml.explain`); without any, the last call."""
        from ..inspect.explanation import explain, explain_last

        traced: Any = self
        return explain(traced, *args, **kwargs) if args or kwargs or self._last is None else explain_last(traced)

    @_here
    def run(self, *args: Any, fetch: Fetch, feed: Mapping[Any, Any] | None = None, **kwargs: Any) -> Any:
        """Values from inside of a call with these arguments, without the call (see fetch.py).

        `fetch` is one name or a list of them, `feed` gives other values than those that the function computes: names
        of arguments, captured tensors and variables, `"file.py:12"` or a line number for what a line computes, `"%3"`
        for a node of `graph`. Only what is needed is computed, and nothing is written.

        Raises ArgumentError for names that are not there, ShapeError and DTypeError for fed arrays that do not fit.

        >>> import hybridml as hm
        >>> f = hm.trace(lambda x: hm.exp(x * 2) + 1)
        >>> f.run(hm.tensor([1.0, 2.0]), fetch="%2").tolist()
        [2.0, 4.0]
        """
        from ..inspect.fetch import run

        traced: Any = self
        return run(traced, args, kwargs, fetch, feed or {})

    @_here
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
        from ..profiler.page import view

        program = self._shown().program
        return view(self._name, program.executable, program.graph)

    def save_html(self, path: str | os.PathLike[str]) -> None:
        """Writes `show()` as an HTML file that needs nothing but itself."""
        self.show().save(path)

    def _checked(self, call: Callable[[], Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        from ..inspect.audits import checked

        traced: Any = self
        return checked(traced, call, args, kwargs)

    def _repr_html_(self) -> str:
        from html import escape

        shown = self.last_path
        return f"<pre>{escape(repr(self))}</pre>" if shown is None else self.show()._repr_html_()
