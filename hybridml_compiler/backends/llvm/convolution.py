"""Which of our algorithms computes a convolution on this machine: the first row of a table that takes it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache as once
from typing import Any

from ...loops.ir import Kernel
from ...runtime import jit
from ...runtime.threads import cores
from ...schedule import tiling, winograd
from ...schedule.convolve import Convolution, Turn, Weights
from ...schedule.depthwise import depthwise_tiling_of, depthwise_units
from ...schedule.planes import plane_units, planes_of
from ...schedule.tiling import Machine
from ...schedule.weight_blocking import turns_gradient, weight_blocking_of, weight_units
from . import ir
from .conv_depthwise import emit_depthwise
from .conv_direct import emit_direct, emit_packed
from .conv_pack import panel_of
from .conv_planes import emit_planes
from .conv_weights import emit_weight_gradient
from .conv_winograd import emit_winograd, emit_winograd_weights
from .kernel import emit_epilogue


@dataclass(frozen=True)
class Preparation:
    """`emit` adds a function as that of an algorithm; its buffers are the weights and the memory that it fills.

    Its last argument is the name of a function that turns squares, where features do not follow each other.
    """

    emit: Callable[[ir.Module, str, Convolution, Any, str], ir.Function]
    units: Callable[[Convolution, Any], int]
    nbytes: Callable[[Convolution, Any], int]


@dataclass(frozen=True)
class Algorithm:
    """`accepts(convolution, machine)` gives a plan (any value with a repr that says all of it) or None.

    `emit(module, name, convolution, plan)` adds `void name(ptr buffers, i64 lo, i64 hi)` over the units of the plan;
    the buffers are the image, the weights and the result.
    """

    name: str
    accepts: Callable[[Convolution, Machine], Any]
    emit: Callable[..., ir.Function]
    units: Callable[[Convolution, Any], int]
    finishes: bool = False  # then `emit` takes an epilogue as well
    prepares: Preparation | None = None  # then it reads what this makes of the weights
    turns: Callable[[Convolution], bool] = lambda _: False  # does `emit` take the name of a function that turns?


ALGORITHMS = (
    Algorithm("gradient of weights", weight_blocking_of, emit_weight_gradient, weight_units, turns=turns_gradient),
    Algorithm("depthwise", depthwise_tiling_of, emit_depthwise, depthwise_units, finishes=True),
    Algorithm(
        "winograd",
        winograd.winograd_of,
        emit_winograd,
        winograd.units,
        finishes=True,
        prepares=Preparation(emit_winograd_weights, winograd.weight_units, winograd.transformed_bytes),
        turns=lambda c: winograd.turns(c) or c.channels_first,
    ),
    Algorithm(
        "direct",
        tiling.tiling_of,
        emit_direct,
        tiling.units,
        finishes=True,
        prepares=Preparation(emit_packed, tiling.pack_units, tiling.packed_bytes),
        turns=lambda c: c.channels_first,
    ),
)
CHANNELS_FIRST = (  # those of the result
    Algorithm("planes", planes_of, emit_planes, plane_units, finishes=True),
    *ALGORITHMS[-2:],
)


def own_algorithm(convolution: Convolution) -> tuple[Algorithm, Any] | None:
    """How we compute it, with the plan; None where a loop nest must."""
    return _own_algorithm(convolution, jit.host())


@once
def _own_algorithm(convolution: Convolution, host: jit.Host) -> tuple[Algorithm, Any] | None:
    if not host.registers:
        return None
    machine = Machine(host.vector_bits // 8, host.registers, cores())
    for algorithm in CHANNELS_FIRST if convolution.channels_first else ALGORITHMS:
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


def finishes(convolution: Convolution) -> bool:
    """Does its kernel take an epilogue?"""
    found = own_algorithm(convolution)
    return found is not None and found[0].finishes


def parts_of_convolution(convolution: Convolution) -> list[Turn]:
    algorithm, plan = _chosen(convolution)
    return [Turn(convolution.dtype, plan.lanes)] if algorithm.turns(convolution) else []


def emit_convolution(
    module: ir.Module,
    name: str,
    convolution: Convolution,
    parts: Sequence[str] = (),
    epilogue: Kernel | None = None,
) -> ir.Function:
    """`void convolution(ptr buffers, i64 lo, i64 hi)`; the buffers are the image, the weights (or what is made of
    them first) and the result, or those of the epilogue."""
    algorithm, plan = _chosen(convolution)
    more = {"turn": parts[0]} if parts else {}
    if epilogue is None:
        return algorithm.emit(module, name, convolution, plan, **more)
    finish = emit_epilogue(module, f"{name}_epilogue", epilogue)
    return algorithm.emit(module, name, convolution, plan, finish, **more)


def convolution_source(convolution: Convolution, parts: Sequence[str] = ()) -> str:
    """All that `emit_convolution` depends on."""
    algorithm, plan = _chosen(convolution)
    return f"{convolution!r} by {algorithm.name} {plan!r} with {parts}"


def prepared_weights(convolution: Convolution) -> Weights | None:
    """What the kernel reads in the place of the weights, if anything."""
    found = own_algorithm(convolution)
    if found is None or found[0].prepares is None:
        return None
    return Weights(convolution, found[0].prepares.nbytes(convolution, found[1]))


def range_of_weights(weights: Weights) -> int:
    preparation, plan = _preparation(weights)
    return preparation.units(weights.convolution, plan)


def parts_of_weights(weights: Weights) -> list[Turn]:
    _, plan = _preparation(weights)
    return [Turn(weights.convolution.dtype, plan.lanes)] if panel_of(weights.convolution).run else []


def emit_weights(module: ir.Module, name: str, weights: Weights, parts: Sequence[str] = ()) -> ir.Function:
    """`void weights(ptr buffers, i64 lo, i64 hi)`; the buffers are the weights and what is made of them."""
    preparation, plan = _preparation(weights)
    return preparation.emit(module, name, weights.convolution, plan, parts[0] if parts else "")


def weights_source(weights: Weights, parts: Sequence[str] = ()) -> str:
    """All that `emit_weights` depends on."""
    algorithm, plan = _chosen(weights.convolution)
    return f"{weights!r} for {algorithm.name} {plan!r} with {parts}"


def _preparation(weights: Weights) -> tuple[Preparation, Any]:
    algorithm, plan = _chosen(weights.convolution)
    assert algorithm.prepares is not None
    return algorithm.prepares, plan


def _chosen(convolution: Convolution) -> tuple[Algorithm, Any]:
    found = own_algorithm(convolution)
    assert found is not None, convolution
    return found
