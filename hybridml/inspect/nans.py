"""`debug_nans`: the operation, line and element where a NaN is made.

Eagerly every operation looks at its result: generated functions take their general path then, so that nothing is paid
for it at other times. A compiled program is run on copies of what it updates; its results and what it writes are looked
at, and where there is a NaN its graph is run again, node by node, to name the line. Nothing has been written by then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from hybridml_compiler import dtypes
from hybridml_compiler.errors import LOCATION, with_location
from hybridml_compiler.graph.flops import flops, total_flops
from hybridml_compiler.graph.interpret import interpret
from hybridml_compiler.graph.ir import Node
from hybridml_compiler.graph.sizes import at_sizes
from hybridml_compiler.locks import rlock
from hybridml_compiler.ops.op import Op
from hybridml_compiler.record import record, replace
from hybridml_compiler.sizes.values import bindings
from hybridml_compiler.targets.device import on_host

from ..core import codegen
from ..core.context import watch_var, watchers
from ..core.interpreter import interpreter_stack

if TYPE_CHECKING:
    from ..tracing.run.program import Program

_lock = rlock()
_watching = 0  # blocks that are open, in all threads
_TESTS = {"nan": np.isnan, "inf": np.isinf}


@record
class Watching:
    """The value of `watch_var`: `kinds` ("nan", "inf") that results are searched for, a `deadline`, which is called to
    raise if it has passed, and `count`, which is told the floating-point operations of all that is computed."""

    kinds: tuple[str, ...] = ()
    deadline: Callable[[], object] | None = None
    count: Callable[[int], object] | None = None

    def check(self, op: Op, operands: Sequence[Any], result: Any, where: str = "") -> None:
        """Raises FloatingPointError where an operation has made a NaN (or infinity) from operands that have none.

        operands, result: arrays, of any device.
        """
        if self.deadline is not None:
            self.deadline()
        if self.count is not None:
            self.count(flops(op.kind, [a.shape for a in operands], result.shape))
        message = self._found(op, list(map(on_host, operands)), on_host(result)) if self.kinds else ""
        if message:
            raise FloatingPointError(f"{message}{LOCATION}{where}" if where else with_location(message))

    def _found(self, op: Op, operands: Sequence[np.ndarray], result: np.ndarray) -> str:
        if op.kind == "creation" or not self._is_bad(result):
            return ""
        for name in self.kinds:
            here = _TESTS[name](_wide(result))
            if here.any() and not any(_is_float(a) and not _clean(a, name) for a in operands):
                index = tuple(int(k) for k in np.unravel_index(int(np.argmax(here)), result.shape))
                made_of = ", ".join(_describe(a, result.shape, index) for a in operands)
                count = int(here.sum())
                more = f", and {count - 1} more" if count > 1 else ""
                at = f" at index {index}" if index else ""
                return f"{op.name} made {name}{at}{more}, of {made_of or 'nothing'}"
        return ""

    def _is_bad(self, array: np.ndarray) -> bool:
        if not _is_float(array):
            return False
        wide = _wide(array)
        return any(_TESTS[name](wide).any() for name in self.kinds)

    def _refuse_own(self, name: str, outputs: list[np.ndarray], one_by_one: list[np.ndarray]) -> None:
        """Raises FloatingPointError for a NaN of a compiled program that its operations, one by one, do not make."""
        for k, (output, expected) in enumerate(zip(outputs, one_by_one, strict=True)):
            for kind in self.kinds if _is_float(output) else ():
                own = _TESTS[kind](_wide(output)) & ~_TESTS[kind](_wide(expected))
                if own.any():
                    index = tuple(int(i) for i in np.unravel_index(int(np.argmax(own)), output.shape))
                    raise FloatingPointError(
                        f"compiled, {name} made {kind} at index {index} of its result {k}, which its operations one by "
                        "one do not make: please report it; hm.config(fusion=False) may compute it rightly"
                    )

    def call(self, program: Program, arrays: Sequence[np.ndarray], own: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The outputs of a compiled program, once they have been looked at."""
        executable = program.executable
        if self.deadline is not None:
            self.deadline()
        if self.count is not None:
            sizes = bindings([node.shape for node in program.whole.inputs], [a.shape for a in own])
            self.count(total_flops((at_sizes(program.whole, sizes) if sizes else program.whole).nodes()))
        if not self.kinds:
            plain: list[np.ndarray] = executable(arrays)
            return plain
        shift = len(program.reads)
        donated = {k: i if i < program.lead else i + shift for k, i in program.donate.items()}
        given = list(arrays)
        for i in donated.values():
            given[i] = arrays[i].copy() if isinstance(arrays[i], np.ndarray) else arrays[i]
        outputs: list[np.ndarray] = executable(given)
        if any(self._is_bad(on_host(output)) for output in outputs):

            def visit(node: Node, operands: list[np.ndarray], value: np.ndarray) -> None:
                assert node.op is not None
                # A function of the library was captured in a call at another line.
                self.check(node.op, operands, value, "" if program.tracer.silent else node.where)

            one_by_one = interpret(program.whole, [on_host(array) for array in own], visit)
            self._refuse_own(program.name, list(map(on_host, outputs)), one_by_one)
        for k, i in donated.items():
            if outputs[k] is given[i] and isinstance(given[i], np.ndarray):
                np.copyto(arrays[i], given[i])
                outputs[k] = arrays[i]
        return outputs


class debug_nans:
    """Raises FloatingPointError where an operation makes a NaN of numbers: with its name, the line, the first element.

    A context manager; called as `debug_nans(True)` or `debug_nans(False)`, it switches for the rest of the program as
    well. It holds for this thread or task. With `infinities` an operation that makes an infinity of finite numbers is
    found, too. Traced functions commit nothing of a call that raises.

    >>> import hybridml as hm
    >>> try:
    ...     with hm.debug_nans():
    ...         y = hm.log(hm.tensor([1.0, -1.0]))
    ... except FloatingPointError as error:
    ...     print(str(error).splitlines()[0])
    log made nan at index (1,), of -1.0
    """

    __slots__ = ("_outer",)

    def __init__(self, on: bool = True, *, infinities: bool = False) -> None:
        self._outer = watch_var.get()
        kinds = ("nan", "inf") if infinities else ("nan",)
        watch(replace(self._outer or Watching(), kinds=kinds if on else ()))

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: object) -> None:
        watch(self._outer)


def watch(to: Watching | None) -> None:
    """Sets what is looked at from now on in this thread or task; None, and an empty one: nothing."""
    global _watching
    before = watch_var.get()
    if to == Watching():
        to = None
    watch_var.set(to)
    with _lock:
        _watching += (to is not None) - (before is not None)
        codegen.set_mode(_mode if _watching else interpreter_stack)
        watchers.value += (to is not None) - (before is not None)


@contextmanager
def counting(count: Callable[[int], object]) -> Iterator[None]:
    """A context in which `count` is told the floating-point operations of each operation and program, as it ends or
    begins."""
    outer = watch_var.get()
    try:
        watch(replace(outer or Watching(), count=count))
        yield
    finally:
        watch(outer)


def _mode() -> Any:
    """Mode of the generated functions: not None where they are to take the general path, which checks."""
    return interpreter_stack() or watch_var.get()


def _is_float(array: np.ndarray) -> bool:
    return dtypes.is_inexact(array.dtype)


def _wide(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float32) if array.dtype.kind == "V" else array


def _clean(array: np.ndarray, name: str) -> bool:
    wide = _wide(array)
    return not np.isnan(wide).any() if name == "nan" else bool(np.isfinite(wide).all())


def _describe(array: np.ndarray, shape: tuple[int, ...], index: tuple[int, ...]) -> str:
    """The element that an elementwise operation has read, or the type of a larger operand."""
    try:
        element = np.broadcast_to(array, shape)[index]
    except ValueError:
        return f"{array.dtype}{list(array.shape)}"
    return str(element) if array.shape == shape or array.size == 1 else f"{array.dtype}{list(array.shape)}"
