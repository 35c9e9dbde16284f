"""Which of our algorithms computes a convolution on this machine: the first row of a table that takes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache as once
from typing import Any

from llvmlite import ir

from ...runtime import jit
from ...runtime.threads import cores
from ...schedule.convolve import Convolution
from ...schedule.tiling import Machine, tiling_of, units
from ...schedule.weight_blocking import weight_blocking_of, weight_units
from .conv_direct import emit_direct
from .conv_weights import emit_weight_gradient

# Vector registers by the bits of one. Narrower ones have no fused multiply-add that we could rely on.
_REGISTERS = {512: 32, 256: 16}


@dataclass(frozen=True)
class Algorithm:
    """`accepts(convolution, machine)` gives a plan (any value with a repr that says all of it) or None.

    `emit(module, name, convolution, plan)` adds `void name(ptr buffers, i64 lo, i64 hi)` over the units of the plan;
    the buffers are the image, the weights and the result.
    """

    name: str
    accepts: Callable[[Convolution, Machine], Any]
    emit: Callable[[ir.Module, str, Convolution, Any], ir.Function]
    units: Callable[[Convolution, Any], int]


ALGORITHMS = (
    Algorithm("gradient of weights", weight_blocking_of, emit_weight_gradient, weight_units),
    Algorithm("direct", tiling_of, emit_direct, units),
)


@once
def own_algorithm(convolution: Convolution) -> tuple[Algorithm, Any] | None:
    """How we compute it, with the plan; None where a loop nest must."""
    bits = jit.host().vector_bits
    if bits not in _REGISTERS:
        return None
    machine = Machine(bits // 8, _REGISTERS[bits], cores())
    for algorithm in ALGORITHMS:
        plan = algorithm.accepts(convolution, machine)
        if plan is not None:
            return algorithm, plan
    return None


def has_convolution(convolution: Convolution) -> bool:
    return own_algorithm(convolution) is not None


def range_of_convolution(convolution: Convolution) -> int:
    """Extent of the range that threads share."""
    algorithm, plan = _chosen(convolution)
    return algorithm.units(convolution, plan)


def emit_convolution(module: ir.Module, name: str, convolution: Convolution) -> ir.Function:
    """`void convolution(ptr buffers, i64 lo, i64 hi)`; the buffers are the image, the weights and the result."""
    algorithm, plan = _chosen(convolution)
    return algorithm.emit(module, name, convolution, plan)


def convolution_source(convolution: Convolution) -> str:
    """All that `emit_convolution` depends on."""
    algorithm, plan = _chosen(convolution)
    return f"{convolution!r} by {algorithm.name} {plan!r}"


def _chosen(convolution: Convolution) -> tuple[Algorithm, Any]:
    found = own_algorithm(convolution)
    assert found is not None, convolution
    return found
