"""Programs of shapes alone: `fn.lower(...)`, what it compiles to, and what that costs in time and memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hybridml_compiler.graph.text import print_graph
from hybridml_compiler.schedule.memory import held
from hybridml_compiler.sizes.dims import hint

from ..core.pytree import tree_map
from ..display.reports import size
from ..inspect.explained import KernelCost
from ..inspect.explanation import executables_of, kernels_of
from ..inspect.shapes import captured, placeholder
from ..tracing.casting import alike
from ..tracing.specialize.path_tree import without_values
from .timeline import buffers_of

if TYPE_CHECKING:
    from ..tracing.function import TracedFunction


@dataclass(frozen=True)
class MemoryAnalysis:
    """Bytes that a call needs: its arguments and captured tensors, its results, and what it computes on the way.

    `peak_bytes` is their sum, as a program keeps the memory of all its temporaries; `alive_bytes` is what of it holds
    values at the worst launch, and `lines` says which lines of the source made that. Names as in JAX's
    `compiled.memory_analysis()`.
    """

    argument_size_in_bytes: int
    output_size_in_bytes: int
    alias_size_in_bytes: int  # results that are written to arguments
    temp_size_in_bytes: int
    constant_size_in_bytes: int
    alive_bytes: int
    lines: Mapping[str, int]

    @property
    def peak_bytes(self) -> int:
        """Bytes in use at the worst moment of a call, arguments and results included."""
        return (
            self.argument_size_in_bytes
            + self.output_size_in_bytes
            + self.temp_size_in_bytes
            + self.constant_size_in_bytes
        )

    def __str__(self) -> str:
        parts = [
            f"memory of a call: {size(self.peak_bytes)}",
            f"{size(self.argument_size_in_bytes):>10}  arguments and captured tensors",
            f"{size(self.output_size_in_bytes):>10}  results",
            f"{size(self.temp_size_in_bytes):>10}  in between; most hold values, {size(self.alive_bytes)}, where:",
        ]
        return "\n".join([*parts, *[f"{size(n):>14}  {line or '(no line)'}" for line, n in [*self.lines.items()][:12]]])


class Compiled:
    """The program of a function for some types, compiled and not run. Calling it calls the traced function."""

    def __init__(self, fn: TracedFunction[..., Any], executable: Any, kernels: Sequence[KernelCost]) -> None:
        self._fn, self._executable, self._kernels = fn, executable, kernels

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._fn(*args, **kwargs)

    def as_text(self) -> str:
        """The graph after the compiler's passes, as text."""
        found: str = self._executable.ir
        return found

    def cost_analysis(self) -> dict[str, float]:
        """Estimates for one call: "flops", "bytes accessed", "kernels", and "optimal_seconds" on one core."""
        return {
            "flops": sum(kernel.flops for kernel in self._kernels),
            "bytes accessed": float(sum(kernel.bytes for kernel in self._kernels)),
            "kernels": float(len(self._kernels)),
            "optimal_seconds": sum(kernel.ns for kernel in self._kernels) / 1e9,
        }

    def memory_analysis(self) -> MemoryAnalysis:
        """The memory of one call, by source line."""
        executable = self._executable
        parts = getattr(executable, "executables", [executable])  # a program of several devices has some
        given = sum(hint(aval.nbytes) for aval in executable.inputs)
        made = sum(hint(aval.nbytes) for aval in executable.outputs)
        written = sum(hint(executable.inputs[k].nbytes) for k in executable.donate.values())
        between = sum(hint(aval.nbytes) for part in parts for aval in part.outputs) - made
        temporary = sum(hint(part.arena_bytes) for part in parts) + between
        plans = [part.stages.plan for part in parts]
        constants = sum(data.nbytes for plan in plans for data in plan.constants)
        worst = [_held(part, len(plan.launches)) for part, plan in zip(parts, plans, strict=True)]
        lines = max(worst, key=lambda lines: sum(lines.values()))
        return MemoryAnalysis(given, made, written, temporary, constants, sum(lines.values()), lines)


def _held(executable: Any, launches: int) -> dict[str, int]:
    """The bytes that hold values at the launch where they are most, by the lines that made them."""
    return held([(first, min(last, launches - 1), n, where) for first, last, n, _, where in buffers_of(executable)])


class Lowered:
    """A function captured for the types of its arguments. Source: JAX's ahead-of-time stages.

    `out_info`: the result's container, with a `ShapeDtypeStruct` for each tensor.
    """

    def __init__(self, fn: TracedFunction[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._fn, self._given = fn, tree_map(placeholder, (args, kwargs))
        self._path, self.out_info, self._stood_in = captured("lower", vars(fn)["__wrapped__"], *self._given)

    def as_text(self) -> str:
        """The graph as it was captured, as text."""
        return print_graph(self._path.program.whole)

    def compile(self) -> Compiled:
        """The compiled program, which calls with such arguments will run; those of lazy layers that have no values yet
        are compiled anew, with them."""
        fn = alike(self._fn, self._fn._fn) if self._stood_in else self._fn
        with without_values("lower"):
            call = fn.resolve(*self._given)
        (executable,) = executables_of(call.entry, call.path)
        return Compiled(self._fn, executable, [kernel for kernel, _ in kernels_of(call.entry, call.path)])
