"""The kinds of node that a call of library code computes, rather than a loop nest: the call, and its operands.

A matcher gives the call and the nodes in memory that it reads, or None where a loop nest must do. `readable` says
whether such a call reads an operand in place, so that it needs no copy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ...aval import Aval
from ...graph.ir import Graph, Node
from ...loops.builder import LoopBuilder
from ...loops.ir import Kernel, KernelSpec
from ...loops.transforms import parallelized
from ...once import lazy
from ...ops.fourier import AxisTransform
from ...record import record, replace
from .. import cost
from ..kept import Kept
from . import gemm

if TYPE_CHECKING:
    from .convolution import Convolution, Pixels, Weights
    from .gemm import Product
    from .transform_steps import Steps

    Call = Product | Convolution
    Matched = tuple[Call, Node, Node]  # a call, and the nodes in memory that it reads
    Prepared = Weights | Pixels

InMemory = Callable[[Node], bool]
Schedule = Callable[[LoopBuilder, Kernel], Kernel]


@record
class Library:
    match: Callable[[Node, InMemory, bool], Matched | None]  # the last: may it widen operands by itself?
    readable: Callable[[Node, InMemory], bool]
    reason: str
    reads_narrow: Callable[[Node], bool]  # is there a call that widens operands of this node by itself?


@record(eq=False)
class Capabilities:
    """Abilities of a target that the schedule asks for; without any, those of one that runs loop nests alone."""

    has_library: Callable[[Call], bool] = lambda _: False  # can it compute the call?
    takes_epilogue: Callable[[Call], bool] = lambda _: False  # and elementwise work on its result? (see epilogue.py)
    cores: int = 1  # that threads may use
    # Loop nests come from lowering in serial loops: as the target runs them (see loops/transforms.py)
    schedule: Schedule = parallelized
    # and those of the elements of a call's matrix, whose loops over rows and columns both stay (see epilogue.py).
    schedule_matrix: Schedule = parallelized
    # the launches that prepare its left and its right operand
    prepared: Callable[[Call], tuple[Prepared | None, Prepared | None]] = lambda _: (None, None)
    reads_narrow: Callable[[Node], bool] = lambda _: False  # does the call for this node widen its operands by itself?
    # How often a product would compute an element of its left operand while packing it (see prologue.py); 0: it cannot.
    computes_left: Callable[[Product], int] = lambda _: 0
    # the call whose result its epilogue alone reads, without memory for it; None if it needs that
    passing: Callable[[Call], Call | None] = lambda _: None
    # Do two products, one of them with fewer rows, add up in the same order?
    same_sums: Callable[[Product, Product], bool] = lambda _, __: False
    # the passes of Fourier transforms of such an array; None where it has no kernels for them
    transforms: Callable[[Aval, Sequence[AxisTransform]], Steps | None] = lambda _, __: None
    # Into how many parts does a product cut k, each of which makes a row of results that are added then?
    sum_blocks: Callable[[Product], int] = lambda _: 1
    # Is it a gain to run two products row by row of the matrix that both read (see row_fusion.py)?
    runs_rows: Callable[[Product, Product], bool] = lambda _, __: False
    halves: bool = False  # do calls that read bfloat16 as it is stored do so with float16?
    # Is it worth a kernel to run so many rows of that length one by one (see grouping.py)?
    worth_rows: Callable[[int, int], bool] = cost.worth_rows
    # How many elements of a long reduction have a partial result (see lowering/split.py)?
    part_of: Callable[[int, int, int], int] = cost.part_of
    splits_positions: bool = False  # Are those of extremes found in parts, too?
    runs_control: bool = False  # loops and choices (see schedule/control.py)? They are calls of NumPy where it does not
    tiles_time: bool = False  # Does it run loops in tiles of rows and steps (see time_tiling.py)?
    # Does it run a fusion tile by tile (see tile_fusion.py)? None: it runs chains (see batch_fusion.py).
    runs_tiles: Callable[[KernelSpec], bool] | None = None
    # Is it a gain to launch kernels that do not need each other as one (see horizontal_fusion.py)? None: by their cost,
    # where there are several cores.
    merges: Callable[[Sequence[Kernel]], bool] | None = None
    merged_bytes: int | None = None  # that kernels may keep alive by waiting for others; None: as cost.py has it
    # Are convolutions of the graph faster with their channels last (see passes/layout.py)?
    channels_last: Callable[[Graph], bool] = lambda _: True
    updates_in_place: bool = False  # Is memory that is donated written where it is, or copied in any case?
    takes_sizes: bool = False  # programs whose sizes come with the call? There is one for each size where it does not
    # What settings may forbid (see config.py):
    fuses: bool = True  # Are several operations computed in one launch?
    shares_memory: bool = True  # Do values take the memory of others that are dead by then?
    recomputes: bool = True  # May several launches compute one value?
    in_place: bool = True  # Do values take the memory of what they replace?

    @lazy
    def kept(self) -> Kept:
        """The work of the plans before."""
        return Kept()

    @lazy
    def unfused(self) -> Capabilities:
        """The abilities without those by which several operations are computed in one launch."""
        return replace(
            self,
            fuses=False,
            takes_epilogue=lambda _: False,
            computes_left=lambda _: 0,
            runs_rows=lambda _, __: False,
            runs_tiles=None,
            tiles_time=False,
        )


def _convolution_of(node: Node, in_memory: InMemory, widening: bool) -> Matched | None:
    from . import convolution  # with the first of them, as in the next two

    return convolution.convolution_of(node, in_memory, widening)


def _readable(node: Node, in_memory: InMemory) -> bool:
    from . import convolution

    return convolution.readable(node, in_memory)


def _reads_narrow(node: Node) -> bool:
    from . import convolution

    return convolution.reads_narrow(node)


LIBRARY: dict[str, Library] = {
    "contraction": Library(
        lambda node, in_memory, _: gemm.product_of(node, in_memory),
        gemm.readable,
        "operand of a matrix product",
        gemm.reads_narrow,
    ),
    "convolution": Library(_convolution_of, _readable, "operand of a convolution", _reads_narrow),
}
