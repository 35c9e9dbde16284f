"""The algorithm that computes a convolution on a CPU: the first row of a table that can."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..... import dtypes
from .....loops.ir import Kernel
from .....once import once
from .....record import record, replace
from .....schedule import cost
from .....schedule.kernels.convolution import Convolution, Pixels, Pretranspose, Weights
from .....sizes.dims import hint, is_dim
from ...kernels.conv_depthwise import depthwise_tiling_of
from ...kernels.conv_depthwise_nchw import planes_of
from ...kernels.conv_tiling import Machine, Tiling, can_pass, tiling_of
from ...kernels.conv_weights_blocking import weight_blocking_of
from ...kernels.conv_winograd import winograd_of
from ...kernels.plan import IMAGES, Amount, Plan
from ...spec import CpuSpec
from .. import ir
from ..contraction.emission import Emission
from ..kernel import emit_epilogue
from ..kind import CallKind, Kind
from .depthwise import Depthwise
from .depthwise_nchw import DepthwisePlanes
from .direct import DirectConvolution
from .pack import emit_packed, emit_pixels, panel_of
from .weights import WeightGradient
from .winograd import WinogradConvolution, emit_winograd_weights

# Adds the function that prepares an operand: its buffers are the operand, and the memory to fill.
Preparation = Callable[[ir.Module, str, Convolution, Any, Sequence[str]], ir.Function]


@record
class Algorithm:
    """`accepts(convolution, machine)` gives a plan, whose repr says all of it, or None. Its images are the batch, or
    the `channels` of a gradient of weights: their number may come with the call."""

    name: str
    accepts: Callable[[Convolution, Machine], Plan | None]
    emission: type[Emission[Any, Any]]
    images: str = "batch"
    finishes: bool = True  # then it takes an epilogue as well
    prepares: tuple[Preparation | None, Preparation | None] = (None, None)  # the image and the weights


GRADIENT = Algorithm("gradient of weights", weight_blocking_of, WeightGradient, "channels", finishes=False)
DEPTHWISE = Algorithm("depthwise", depthwise_tiling_of, Depthwise)
PLANES = Algorithm("planes", planes_of, DepthwisePlanes)
WINOGRAD = Algorithm("winograd", winograd_of, WinogradConvolution, prepares=(None, emit_winograd_weights))
DIRECT = Algorithm("direct", tiling_of, DirectConvolution, prepares=(emit_pixels, emit_packed))


@once
def own_algorithm(convolution: Convolution, cpu: CpuSpec) -> tuple[Algorithm, Plan] | None:
    """(algorithm, its plan) of our own for a convolution; None where a loop nest must compute it."""
    if not cpu.registers or "convolutions" in cpu.without:
        return None
    for algorithm in _algorithms(convolution):
        plan = algorithm.accepts(convolution.with_images(IMAGES), _machine(cpu))
        if plan is not None:
            return algorithm, plan
    return None


def _algorithms(convolution: Convolution) -> list[Algorithm]:
    """The algorithms to ask, in order: of those for its dtype and layout, the ones that take its symbolic sizes."""
    symbolic = {name for name in ("batch", "channels") if is_dim(getattr(convolution, name))}
    return [algorithm for algorithm in _of_layout(convolution) if symbolic <= {algorithm.images}]


def _of_layout(convolution: Convolution) -> tuple[Algorithm, ...]:
    floats, first = convolution.dtype.kind == "f", convolution.channels_first
    if convolution.stored is not None or (first and not floats):
        return (DIRECT,)
    if first:
        return PLANES, WINOGRAD, DIRECT
    return (GRADIENT, DEPTHWISE, WINOGRAD, DIRECT) if floats else (DEPTHWISE, DIRECT)


def has_convolution(convolution: Convolution, cpu: CpuSpec) -> bool:
    return own_algorithm(convolution, cpu) is not None


def convolution_plan(convolution: Convolution, cpu: CpuSpec) -> Plan:
    return _chosen(convolution, cpu)[1]


def finishes(convolution: Convolution, cpu: CpuSpec) -> bool:
    """Whether the convolution's kernel takes an epilogue."""
    found = own_algorithm(convolution, cpu)
    return found is not None and found[0].finishes


def passing_convolution(convolution: Convolution, cpu: CpuSpec) -> Convolution | None:
    """The same without memory for its result, where the epilogue can read each row while it is in cache."""
    found = own_algorithm(convolution, cpu)
    passes = found is not None and isinstance(found[1], Tiling) and can_pass(convolution, found[1])
    return replace(convolution, passing=True) if passes else None


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
    if epilogue is None:
        return algorithm.emission(module, name, convolution, plan, None, parts).emit()
    finish = emit_epilogue(module, f"{name}_epilogue", epilogue)
    return algorithm.emission(module, name, convolution, plan, finish, parts, 2 + len(epilogue.operands)).emit()


def convolution_source(convolution: Convolution, cpu: CpuSpec, parts: Sequence[str] = ()) -> str:
    """The text that determines the code of `emit_convolution`."""
    algorithm, plan = _chosen(convolution, cpu)
    return f"{convolution!r} by {algorithm.name} {plan!r} with {parts}"


def prepared_operands(convolution: Convolution, cpu: CpuSpec) -> tuple[Pixels | None, Weights | None]:
    """The prepared image and weights that the kernel reads in the place of its operands, if any."""
    found = own_algorithm(convolution, cpu)
    if found is None:
        return None, None
    image, weights = found[1].prepared(convolution)
    return (
        Pixels(convolution, image.nbytes) if image.nbytes else None,
        Weights(convolution, weights.nbytes) if weights.nbytes else None,
    )


def amount_of(operand: Weights | Pixels, cpu: CpuSpec) -> Amount:
    return _chosen(operand.convolution, cpu)[1].prepared(operand.convolution)[isinstance(operand, Weights)]


def parts_of_operand(operand: Weights | Pixels, cpu: CpuSpec) -> list[Pretranspose]:
    c, (_, plan) = operand.convolution, _chosen(operand.convolution, cpu)
    if c.stored is not None:
        return [Pretranspose(dtypes.float32, plan.lanes)]
    return [Pretranspose(c.dtype, plan.lanes)] if panel_of(c).run else []


def emit_operand(module: ir.Module, name: str, operand: Weights | Pixels, parts: Sequence[str] = ()) -> ir.Function:
    """`void operand(ptr buffers, i64 lo, i64 hi)`; the buffers are the operand and its prepared form."""
    algorithm, plan = _chosen(operand.convolution, module.cpu)
    prepare = algorithm.prepares[isinstance(operand, Weights)]
    assert prepare is not None
    return prepare(module, name, operand.convolution.with_images(IMAGES), plan, parts)  # it reads no images


def operand_source(operand: Weights | Pixels, cpu: CpuSpec, parts: Sequence[str] = ()) -> str:
    """The text that determines the code of `emit_operand`."""
    algorithm, plan = _chosen(operand.convolution, cpu)
    return f"{operand!r} for {algorithm.name} {plan!r} with {parts}"


def _machine(cpu: CpuSpec) -> Machine:
    features = cpu.enabled if cpu.vector_bits == 512 else frozenset[str]()
    return Machine(cpu.vector_bits // 8, cpu.registers, cpu.cores, features)


def _nanoseconds(convolution: Convolution) -> float:
    """Estimated time on one core. That of a gradient of weights says whether threads share its units, for any number of
    images: it is the time of `IMAGES` at least."""
    images = convolution.channels
    likely = replace(convolution, channels=max(hint(images), IMAGES)) if is_dim(images) else convolution
    return likely.flops * cost.FLOP_NS


def _chosen(convolution: Convolution, cpu: CpuSpec) -> tuple[Algorithm, Plan]:
    found = own_algorithm(convolution, cpu)
    assert found is not None, convolution
    return found


CONVOLUTION = CallKind(
    emit=emit_convolution,
    source=convolution_source,
    range=lambda convolution, cpu: (convolution_plan(convolution, cpu).units(convolution), 1),
    nanoseconds=_nanoseconds,
    parts=lambda convolution, cpu: convolution_plan(convolution, cpu).parts(convolution),
    computes=has_convolution,
    takes_epilogue=finishes,
    prepared=prepared_operands,
    passing=passing_convolution,
)
OPERAND = Kind(
    emit=emit_operand,
    source=operand_source,
    range=lambda operand, cpu: (amount_of(operand, cpu).units, 1),
    nanoseconds=lambda operand: cost.memory_cost(operand.nbytes),
    parts=parts_of_operand,
)
