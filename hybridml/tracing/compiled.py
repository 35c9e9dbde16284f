"""Eager composites as one compiled call: eager is trace at the granularity of one library function.

A composite on a large array run operation by operation writes every intermediate to memory, on one thread: softmax of
4096x1024 took 9 ms, gelu of 4M elements 28. Compiled once for each signature it is what a traced program would run,
with the same bits, and one node on the tape (2.2 and 1.0 ms).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

from hybridml_compiler import dtypes
from hybridml_compiler.compile_policy import COMPOSITE as LARGE
from hybridml_compiler.compile_policy import MOST, PAIRS, STEPS
from hybridml_compiler.ops.table import OPS

from ..core.context import beside, current_interpreter, place_var
from ..core.dispatch import narrow_products
from ..core.tensor import Tensor, place_of
from ..core.tracebacks import shorten

if TYPE_CHECKING:
    from .function import TracedFunction

P = ParamSpec("P")
R = TypeVar("R")


def program_of(fn: Callable[P, R], dynamic: bool = False) -> Callable[P, R]:
    """A composite as compiled calls, one program per signature (see compile_policy.py), made at the first call."""
    traced: list[TracedFunction] = []

    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if not traced:
            traced.append(_traced(fn, dynamic))
        result: R = traced[0](*args, **kwargs)
        return result

    return call


def _traced(fn: Callable[..., Any], dynamic: bool) -> TracedFunction:
    from .function import TracedFunction  # not with the package: eager programs of small arrays never trace

    return TracedFunction(fn, most=MOST, silent=True, dynamic=dynamic)


def compiled(fn: Callable[P, R], dynamic: bool = False, work: int = 1) -> Callable[P, R]:
    """Decorator of a composite of tensors: compiled where an argument is large and nothing traces yet.

    Any argument: a small image under large weights is work enough. `dynamic`: see `trace`; `work`: what an element
    of an argument counts for.
    """
    program = program_of(fn, dynamic)

    @functools.wraps(fn)
    def composite(*args: P.args, **kwargs: P.kwargs) -> R:
        for a in args:
            if type(a) is Tensor:
                if a._array.size * work >= LARGE:
                    break
            elif issubclass(type(a), Tensor) and place_of(cast(Tensor, a)) != place_var.get():
                return beside((a,), lambda: fn(*args, **kwargs))
        else:
            try:
                return fn(*args, **kwargs)
            except Exception as error:
                shorten(error)
                raise
        if current_interpreter() is not None:
            return fn(*args, **kwargs)
        return program(*args, **kwargs)

    return composite


def compiled_for_all_sizes(fn: Callable[P, R]) -> Callable[P, R]:
    """`compiled`, for a composite of sequences, whose batches differ in length: its second program takes all."""
    return compiled(fn, dynamic=True, work=STEPS)


def compiled_for_pairs(fn: Callable[P, R]) -> Callable[P, R]:
    """`compiled`, for a composite of all pairs of what its arguments have."""
    return compiled(fn, work=PAIRS)


@compiled
def matmul_bfloat16(x: Tensor, y: Tensor) -> Tensor:
    """The product of bfloat16 tensors, with sums in float32. Compiled, it reads them as they are in memory."""
    product = OPS["matmul"].fn(OPS["astype"].fn(x, dtypes.float32), OPS["astype"].fn(y, dtypes.float32))
    rounded: Tensor = OPS["astype"].fn(product, dtypes.bfloat16)
    return rounded


narrow_products["bfloat16"] = matmul_bfloat16
