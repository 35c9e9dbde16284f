"""Kernels that do not need each other as one launch, whose blocks are divided among them (horizontal_fusion.py).

    update of w1      blocks 0-63       kernel(p0, p1, ...):
    update of b1      block 64     ->     block 0-64:  p's of the tensor whose block it is; the update, written once
    sum over rows     blocks 65-96        block 65-96: the sum

A launch takes the GPU some microseconds, and a small tensor a few of its blocks: the updates of an optimizer are many
launches of little work. Kernels of one text are written once, and a block looks for the operands of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from ...loops.ir import Buffer, Kernel
from ...record import record
from .contraction.kernel import CallSource
from .contraction.tiles import SHARED_BYTES
from .emit.kernel import ENTRY, Source
from .emit.types import BYTES

_MOST_OPERANDS = 480  # of a launch: 4 KB of arguments hold 8 bytes for each, and the range
_LARGE = 1 << 18  # iterations of a kernel that shares a launch with its like alone, for it has its own registers
_HEAD = re.compile(
    rf'extern "C" __global__ void __launch_bounds__\(\d+, \d+\)\n{ENTRY}\((.*), long long lo, long long hi\) '
)
_SHARED = ("__shared__", "__syncthreads")
_ARRAY = re.compile(r"__shared__ (?:__align__\(\d+\) )?([\w ]+) \w+\[(\d+)\];")


@record(eq=False)
class Stage:
    """A kernel of a region: its source, operands, the numbers of these among the region's, and its iterations."""

    source: Source
    operands: tuple[Buffer, ...]
    numbers: tuple[int, ...]
    total: int

    def blocks(self, most: int) -> int:
        return self.source.grid(self.total, most)


def launches(kernels: Sequence[Kernel], emitted: Callable[[Kernel], Source]) -> list[list[Stage]]:
    """The kernels by launch: those of as many threads, with no more operands than a launch takes, and no more shared
    memory than a block has: each text has its own."""
    parts: dict[object, list[list[Stage]]] = {}
    first = 0
    for kernel in kernels:
        source, operands = emitted(kernel), kernel.operands
        stage = Stage(source, operands, tuple(range(first, first + len(operands))), int(kernel.total))
        first += len(operands)
        part = parts.setdefault((source.block, source.text if stage.total > _LARGE else ""), [[]])
        if not _fits([*part[-1], stage]):
            part.append([])
        part[-1].append(stage)
    return [stages for part in parts.values() for stages in part if stages]


def _fits(stages: Sequence[Stage]) -> bool:
    texts = dict.fromkeys(stage.source.text for stage in stages)
    shared = sum(BYTES[kind] * int(size) for text in texts for kind, size in _ARRAY.findall(text))
    return sum(len(stage.operands) for stage in stages) <= _MOST_OPERANDS and shared <= SHARED_BYTES


def joined(stages: Sequence[Stage], most: int) -> CallSource:
    """The source of a launch of several kernels, each of `most` blocks or fewer."""
    alike: dict[str, list[Stage]] = {}
    for stage in stages:
        alike.setdefault(stage.source.text, []).append(stage)
    definitions, body, parameters, first = [], list[str](), list[str](), 0
    for number, (text, group) in enumerate(alike.items()):
        definitions.append(f"namespace stage{number} {{\n{_as_function(text)}}}\n")
        last = first + sum(stage.blocks(most) for stage in group)
        body.append(f"    {'else ' * (number > 0)}if (at < {last}) {{")
        body += _group(f"stage{number}", text, group, first, most, parameters)
        body.append("    }")
        first = last
    if any(word in text for text in alike for word in _SHARED):
        body.append("    __syncthreads();")  # the next turn writes to the same shared memory
    threads = stages[0].source.block
    lines = [
        *definitions,
        f'extern "C" __global__ void __launch_bounds__({threads}, {max(map(_least_blocks, alike))})',
        f"{ENTRY}({', '.join([*parameters, 'long long lo', 'long long hi'])}) {{",
        "  for (long long at = lo + blockIdx.x; at < hi; at += gridDim.x) {",
        *body,
        "  }",
        "}",
    ]
    operands = tuple(buffer for group in alike.values() for stage in group for buffer in stage.operands)
    alignment = max(stage.source.alignment for stage in stages)
    return CallSource("\n".join(lines) + "\n", False, threads, 1, alignment, operands, first)


def order(stages: Sequence[Stage]) -> list[int]:
    """The numbers of the operands in the order in which `joined` takes them."""
    alike: dict[str, list[Stage]] = {}
    for stage in stages:
        alike.setdefault(stage.source.text, []).append(stage)
    return [number for group in alike.values() for stage in group for number in stage.numbers]


def can_join(source: Source) -> bool:
    """Whether a kernel can be a part of another: one whose blocks are numbered by one number, and that checks none."""
    return _HEAD.search(source.text) is not None and not source.checked and "Idx.y" not in source.text


def _least_blocks(text: str) -> int:
    """Blocks that a multiprocessor has registers for."""
    found = re.search(r"__launch_bounds__\(\d+, (\d+)\)", text)
    assert found is not None
    return int(found[1])


def _as_function(text: str) -> str:
    """A kernel as a function that is told its block, and how many there are."""
    more = "long long lo, long long hi, long long block, long long blocks"
    head = rf"static __device__ __forceinline__ void run(\1, {more}) "
    return _HEAD.sub(head, text).replace("blockIdx.x", "block").replace("gridDim.x", "blocks")


def _group(
    name: str, text: str, stages: Sequence[Stage], first: int, most: int, parameters: list[str]
) -> Iterator[str]:
    """The lines that find the operands of a block, and run the function of its stage."""
    found = _HEAD.search(text)
    assert found is not None
    types = [parameter.rpartition(" ")[0] for parameter in found[1].split(", ")]
    for k, kind in enumerate(types):
        yield f"      {kind} b{k};"
    yield "      long long first, blocks, end;"
    for number, stage in enumerate(stages):
        blocks = stage.blocks(most)
        given = []
        for k, kind in enumerate(types):
            given.append(f"b{k} = p{len(parameters)};")
            parameters.append(f"{kind} p{len(parameters)}")
        condition = f"if (at < {first + blocks}) " if number < len(stages) - 1 else ""
        setting = f"first = {first}; blocks = {blocks}; end = {stage.total};"
        yield f"      {'else ' * (number > 0)}{condition}{{ {' '.join(given)} {setting} }}"
        first += blocks
    yield f"      {name}::run({', '.join(f'b{k}' for k in range(len(types)))}, 0, end, at - first, blocks);"
