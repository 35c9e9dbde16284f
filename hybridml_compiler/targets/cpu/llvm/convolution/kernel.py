"""The algorithm that computes a convolution on a CPU: the first row of a table that can."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..... import dtypes
from .....loops.ir import Kernel, KernelSpec
from .....once import once
from .....record import record, replace
from .....schedule.kernels.convolution import Convolution, Pixels, Pretranspose, Weights
from ...kernels import conv_tiling, conv_winograd
from ...kernels.conv_depthwise import depthwise_tiling_of, depthwise_units
from ...kernels.conv_depthwise_nchw import plane_units, planes_of
from ...kernels.conv_tiling import Machine
from ...kernels.conv_weights_blocking import turns_gradient, weight_blocking_of, weight_units
from ...spec import CpuSpec
from .. import ir
from ..kernel import emit_epilogue
from .depthwise import emit_depthwise
from .depthwise_nchw import emit_planes
from .direct import emit_direct, emit_packed
from .pack import panel_of
from .packed import emit_pixels
from .weights import emit_weight_gradient
from .winograd import emit_winograd, emit_winograd_weights


@record
class Preparation:
    """A launch that prepares an operand; `emit` adds its function, with the operand and the memory to fill as buffers.

    Its last argument is the name of a function that turns squares, where features do not follow each other.
    """

    emit: Callable[[ir.Module, str, Convolution, Any, str], ir.Function]
    units: Callable[[Convolution, Any], int]
    nbytes: Callable[[Convolution, Any], int]


@record
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
    prepares: Preparation | None = None  # a launch that prepares the weights, if the algorithm reads prepared ones
    packs: Preparation | None = None  # and one that prepares the image, where that has a size
    turns: Callable[[Convolution], bool] = lambda _: False  # whether `emit` takes the name of a transpose
    parts: Callable[[Convolution, Any], Sequence[KernelSpec]] = lambda _, plan: ()  # whose names it takes too


ALGORITHMS = (
    Algorithm("gradient of weights", weight_blocking_of, emit_weight_gradient, weight_units, turns=turns_gradient),
    Algorithm("depthwise", depthwise_tiling_of, emit_depthwise, depthwise_units, finishes=True),
    Algorithm(
        "winograd",
        conv_winograd.winograd_of,
        emit_winograd,
        conv_winograd.units,
        finishes=True,
        prepares=Preparation(emit_winograd_weights, conv_winograd.weight_units, conv_winograd.transformed_bytes),
        turns=lambda c: conv_winograd.turns(c) or c.channels_first,
        parts=conv_winograd.parts,
    ),
    Algorithm(
        "direct",
        conv_tiling.tiling_of,
        emit_direct,
        conv_tiling.units,
        finishes=True,
        prepares=Preparation(emit_packed, conv_tiling.pack_units, conv_tiling.packed_bytes),
        turns=lambda c: c.channels_first,
    ),
)
NARROW = (
    Algorithm(
        "words",
        conv_tiling.tiling_of,
        emit_direct,
        conv_tiling.units,
        finishes=True,
        prepares=Preparation(emit_packed, conv_tiling.pack_units, conv_tiling.packed_bytes),
        packs=Preparation(emit_pixels, conv_tiling.pixel_units, conv_tiling.pixel_bytes),
        turns=lambda c: c.channels_first,
    ),
)
INTEGERS = (ALGORITHMS[1], ALGORITHMS[-1])
CHANNELS_FIRST = (  # those of the result
    Algorithm("planes", planes_of, emit_planes, plane_units, finishes=True),
    *ALGORITHMS[-2:],
)


@once
def own_algorithm(convolution: Convolution, cpu: CpuSpec) -> tuple[Algorithm, Any] | None:
    """(algorithm, its plan) of our own for a convolution; None where a loop nest must compute it."""
    if not cpu.registers:
        return None
    for algorithm in _algorithms(convolution):
        plan = algorithm.accepts(convolution, _machine(cpu))
        if plan is not None:
            return algorithm, plan
    return None


def _algorithms(convolution: Convolution) -> tuple[Algorithm, ...]:
    if convolution.stored is not None:
        return NARROW
    if convolution.channels_first:
        return CHANNELS_FIRST if convolution.dtype.kind == "f" else CHANNELS_FIRST[-1:]
    return ALGORITHMS if convolution.dtype.kind == "f" else INTEGERS


def has_convolution(convolution: Convolution, cpu: CpuSpec) -> bool:
    return own_algorithm(convolution, cpu) is not None


def range_of_convolution(convolution: Convolution, cpu: CpuSpec) -> int:
    """Extent of the range that threads share."""
    algorithm, plan = _chosen(convolution, cpu)
    return algorithm.units(convolution, plan)


def finishes(convolution: Convolution, cpu: CpuSpec) -> bool:
    """Whether the convolution's kernel takes an epilogue."""
    found = own_algorithm(convolution, cpu)
    return found is not None and found[0].finishes


def passing_convolution(convolution: Convolution, cpu: CpuSpec) -> Convolution | None:
    """The same without memory for its result, where the epilogue can read each row while it is in cache."""
    found = own_algorithm(convolution, cpu)
    passes = found is not None and found[0].emit is emit_direct and conv_tiling.can_pass(convolution, found[1])
    return replace(convolution, passing=True) if passes else None


def parts_of_convolution(convolution: Convolution, cpu: CpuSpec) -> list[KernelSpec]:
    algorithm, plan = _chosen(convolution, cpu)
    turn = [Pretranspose(convolution.dtype, plan.lanes)] if algorithm.turns(convolution) else []
    return [*algorithm.parts(convolution, plan), *turn]


def emit_convolution(
    module: ir.Module,
    name: str,
    convolution: Convolution,
    parts: Sequence[str] = (),
    epilogue: Kernel | None = None,
) -> ir.Function:
    """`void convolution(ptr buffers, i64 lo, i64 hi)`; the buffers are the image, the weights (both as prepared, if
    they are) and the result, or those of the epilogue."""
    algorithm, plan = _chosen(convolution, module.cpu)
    count = len(algorithm.parts(convolution, plan))
    more: dict[str, Any] = {"parts": parts[:count]} if count else {}
    if parts[count:]:
        more["turn"] = parts[count]
    if convolution.passing and epilogue is not None:
        more["buffers"] = 2 + len(epilogue.operands)
    if epilogue is None:
        return algorithm.emit(module, name, convolution, plan, **more)
    finish = emit_epilogue(module, f"{name}_epilogue", epilogue)
    return algorithm.emit(module, name, convolution, plan, finish, **more)


def convolution_source(convolution: Convolution, cpu: CpuSpec, parts: Sequence[str] = ()) -> str:
    """The text that determines the code of `emit_convolution`."""
    algorithm, plan = _chosen(convolution, cpu)
    return f"{convolution!r} by {algorithm.name} {plan!r} with {parts}"


def prepared_operands(convolution: Convolution, cpu: CpuSpec) -> tuple[Pixels | None, Weights | None]:
    """The prepared image and weights that the kernel reads in the place of its operands, if any."""
    found = own_algorithm(convolution, cpu)
    if found is None:
        return None, None
    sizes = [0 if p is None else p.nbytes(convolution, found[1]) for p in (found[0].packs, found[0].prepares)]
    return Pixels(convolution, sizes[0]) if sizes[0] else None, Weights(convolution, sizes[1]) if sizes[1] else None


def range_of_operand(operand: Weights | Pixels, cpu: CpuSpec) -> int:
    preparation, plan = _preparation(operand, cpu)
    return preparation.units(operand.convolution, plan)


def parts_of_operand(operand: Weights | Pixels, cpu: CpuSpec) -> list[Pretranspose]:
    c, (_, plan) = operand.convolution, _preparation(operand, cpu)
    if c.stored is not None:
        return [Pretranspose(dtypes.float32, plan.lanes)]
    return [Pretranspose(c.dtype, plan.lanes)] if panel_of(c).run else []


def emit_operand(module: ir.Module, name: str, operand: Weights | Pixels, parts: Sequence[str] = ()) -> ir.Function:
    """`void operand(ptr buffers, i64 lo, i64 hi)`; the buffers are the operand and its prepared form."""
    preparation, plan = _preparation(operand, module.cpu)
    return preparation.emit(module, name, operand.convolution, plan, parts[0] if parts else "")


def operand_source(operand: Weights | Pixels, cpu: CpuSpec, parts: Sequence[str] = ()) -> str:
    """The text that determines the code of `emit_operand`."""
    algorithm, plan = _chosen(operand.convolution, cpu)
    return f"{operand!r} for {algorithm.name} {plan!r} with {parts}"


def _preparation(operand: Weights | Pixels, cpu: CpuSpec) -> tuple[Preparation, Any]:
    algorithm, plan = _chosen(operand.convolution, cpu)
    found = algorithm.prepares if isinstance(operand, Weights) else algorithm.packs
    assert found is not None
    return found, plan


def reads_pairs(cpu: CpuSpec) -> bool:
    """Whether convolutions of bfloat16 multiply pairs of it; else they are those of float32."""
    return "avx512bf16" in _machine(cpu).features


def _machine(cpu: CpuSpec) -> Machine:
    features = cpu.enabled if cpu.vector_bits == 512 else frozenset[str]()
    return Machine(cpu.vector_bits // 8, cpu.registers, cpu.cores, features)


def _chosen(convolution: Convolution, cpu: CpuSpec) -> tuple[Algorithm, Any]:
    found = own_algorithm(convolution, cpu)
    assert found is not None, convolution
    return found
