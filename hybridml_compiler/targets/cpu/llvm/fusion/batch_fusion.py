"""A chain as an LLVM function: for each slot, for each of its elements, a call of each stage for that element.

Meanwhile the parts of memory that the next element reads and writes are fetched: by a loop nest, which works in the
caches, a few lines before each few of its iterations, no more than a core can wait for at once ([Note: Prefetching]).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .....loops.ir import Kernel
from .....schedule.fusion.batch_fusion import BatchFusion
from ...spec import CpuSpec
from .. import ir
from ..contraction.emission import AS_EMITTED
from ..contraction.loops import i64, least, repeat
from ..kernel import KERNEL_TYPE
from ..kind import Kind
from ..registry import kind_of
from ..types import I8, I32, PTR, VOID, Literal

_LINE = 64
# Lines on their way to a core at once: 24 on Zen 4, 12 to 16 (and 48 to its L2) on Intel's.
_LINES = 24


def emit_chain(
    module: ir.Module, name: str, chain: BatchFusion, symbols: Sequence[str], iterations: Sequence[int]
) -> ir.Function:
    """`void chain(ptr buffers, i64 lo, i64 hi)` over slots; a stage's function runs `iterations` for one element."""
    function = ir.Function(module, KERNEL_TYPE, name)
    function.attributes.update(AS_EMITTED)
    b = function.build()
    buffers, lo, hi = function.args
    outside = 1 + max(k for stage in chain.stages for k in stage.operands) - len(chain.scratch)
    given = [b.operand(buffers, k) for k in range(outside + 1)]
    tables = [b.memory(PTR, len(stage.operands)) for stage in chain.stages]
    for table, stage in zip(tables, chain.stages, strict=True):
        for place, operand in enumerate(stage.operands):
            if operand < outside:
                b.set_operand(table, place, given[operand])
    functions = [module.function(symbol, KERNEL_TYPE) for symbol in symbols]
    idle, step = _idle(chain, iterations)

    def slot(number: Any) -> None:
        memory = b.gep(given[outside], [b.mul(number, i64(chain.slot_bytes))], source_etype=I8)
        first = b.udiv(b.mul(number, i64(chain.batch)), i64(chain.slots))
        end = b.udiv(b.mul(b.add(number, i64(1)), i64(chain.batch)), i64(chain.slots))
        repeat(b, first, end, 1, lambda element: run(memory, element))

    def run(memory: Any, element: Any) -> None:
        # Address of element 0 of each array of the chain's own, if this element is to be in the slot.
        starts = []
        for scratch in chain.scratch:
            before = b.sub(i64(scratch.offset), b.mul(element, i64(scratch.nbytes)))
            starts.append(b.gep(memory, [before], source_etype=I8))
        for number, (stage, table, called, count) in enumerate(
            zip(chain.stages, tables, functions, iterations, strict=True)
        ):
            for place, operand in enumerate(stage.operands):
                if operand >= outside:
                    b.set_operand(table, place, starts[operand - outside])
            start = b.mul(element, i64(count))
            if number == idle:
                fetching(called, table, element, start, count)
            else:
                b.call(called, [table, start, b.add(start, i64(count))])

    def fetching(called: Any, table: Any, element: Any, start: Any, count: int) -> None:
        """Iterations in small runs, each after its share of the lines of the next element."""
        following, end, pieces = b.add(element, i64(1)), b.add(start, i64(count)), -(-count // step)

        def piece(at: Any) -> None:
            for operand, nbytes in chain.ahead:
                share = -(-nbytes // (_LINE * pieces)) * _LINE
                here = b.add(b.mul(following, i64(nbytes)), b.mul(at, i64(share)))
                for line in range(0, share, _LINE):
                    _fetch(b, b.gep(given[operand], [b.add(here, i64(line))], source_etype=I8))
            first = b.add(start, b.mul(at, i64(step)))
            b.call(called, [table, first, least(b, b.add(first, i64(step)), end)])

        repeat(b, i64(0), i64(pieces), 1, piece)

    repeat(b, lo, hi, 1, slot)
    b.ret_void()
    return function


def _idle(chain: BatchFusion, iterations: Sequence[int]) -> tuple[int, int]:
    """(the loop nest during which lines are fetched, -1 for none; its iterations from one fetch to the next)."""
    lines = sum(nbytes // _LINE for _, nbytes in chain.ahead)
    for number, (stage, count) in enumerate(zip(chain.stages, iterations, strict=True)):
        alone = isinstance(stage.spec, Kernel) and stage.spec.granule == 1
        if alone and 0 < lines <= 2 * _LINES * count:
            return number, max(1, _LINES * count // lines)
    return -1, 1


def _fetch(b: ir.IRBuilder, pointer: Any) -> None:
    """A line into the second cache."""
    b.intrinsic("prefetch", VOID, [pointer, *(Literal(I32, str(x)) for x in (0, 2, 1))], [PTR])


def _iterations(chain: BatchFusion, cpu: CpuSpec) -> list[int]:
    """Iterations of each stage, for one element."""
    return [kind_of(stage.spec).range(stage.spec, cpu)[0] // chain.batch for stage in chain.stages]


BATCH_FUSION = Kind(
    emit=lambda module, name, chain, parts: emit_chain(module, name, chain, parts, _iterations(chain, module.cpu)),
    source=lambda chain, cpu, parts: (
        f"{chain} {parts} {_iterations(chain, cpu)} {chain.operands} {chain.scratch} {chain.ahead}"
    ),
    range=lambda chain, _: (chain.slots, 1),
    nanoseconds=lambda chain: sum(kind_of(stage.spec).nanoseconds(stage.spec) for stage in chain.stages),
    calls_blas=lambda chain, cpu: any(kind_of(stage.spec).calls_blas(stage.spec, cpu) for stage in chain.stages),
    parts=lambda chain, _: [stage.spec for stage in chain.stages],
)
