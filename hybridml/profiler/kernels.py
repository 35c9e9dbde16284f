"""What a launch is called, and the floating-point operations of an operation."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from hybridml_compiler.graph.body import bodies_of
from hybridml_compiler.graph.ir import Node
from hybridml_compiler.sizes.dims import hint

_MOVES = ("movement", "gather", "creation")


def kernel_name(launch: Any) -> str:
    """`matmul f32 128x512x784`, `copy`; a loop by the operations that it runs: `exp sum divide`."""
    kind = type(launch.work).__name__
    if kind == "Copy":
        return "copy"
    names = list(dict.fromkeys(node.op.name for node in launch.nodes if node.op and node.op.kind not in _MOVES))
    names = names or list(dict.fromkeys(node.op.name for node in launch.nodes if node.op))
    listed = " ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    if kind in ("Kernel", "Region"):
        return listed or "loop"
    if kind == "Chain":
        return f"chain: {listed}"
    return str(launch.work) if len(str(launch.work)) < 80 else f"{kind.lower()}: {listed}"


def flops(kind: str, inputs: Sequence[Any], shape: Sequence[int]) -> int:
    """Of an operation on operands of these shapes: an element of an elementwise result is one, whatever it is made of;
    a product and a convolution have two for each multiplication. Moving data has none."""
    size = _size(shape)
    if kind == "elementwise":
        return size
    if kind in ("reduction", "scan"):
        return _size(inputs[0]) if inputs else size
    if kind == "contraction":
        return 2 * size * hint(inputs[0][-1])
    if kind == "convolution":  # by (kh, kw, groups, c, o)
        kh, kw, _, channels, _ = inputs[1]
        return 2 * size * _size((kh, kw, channels))
    return 0


def _size(shape: Sequence[int]) -> int:
    return math.prod(map(hint, shape))


def node_flops(node: Node) -> int:
    """See `flops`; of a loop or branch, see `operations`."""
    assert node.op is not None
    return flops(node.op.kind, [n.shape for n in node.inputs], node.shape)


def operations(nodes: Iterable[Node]) -> Iterator[tuple[Node, int]]:
    """Operations with how often they run: for a loop (a node for each result) what its body runs, in every step that it
    has at most; for a branch what either way runs."""
    known: set[Any] = set()
    for node in nodes:
        bodies = list(bodies_of(node))
        if not bodies:
            yield node, 1
            continue
        key = *(body.key for body in bodies), *map(id, node.inputs)
        if key not in known:
            known.add(key)
            trips = hint(node.params.get("length") or 1)
            for body in bodies:
                inner = (n for n in body.graph.nodes() if n.op is not None)
                yield from ((n, times * trips) for n, times in operations(inner))


def launch_flops(launches: Sequence[Any]) -> list[int]:
    """Of each launch; one that finishes what the launch before it has begun has none of its own."""
    found, before = [], None
    for launch in launches:
        again = launch.nodes and launch.nodes == before
        found.append(0 if again else sum(node_flops(n) * times for n, times in operations(launch.nodes)))
        before = launch.nodes
    return found


def work_by_line(nodes: Iterable[Node]) -> dict[str, int]:
    """Floating-point operations of each of the user's lines."""
    found: dict[str, int] = {}
    for node, times in operations(nodes):
        if node.where:
            found[node.where] = found.get(node.where, 0) + node_flops(node) * times
    return found


def shares(launch: Any) -> Mapping[str, float]:
    """The user's lines that a launch runs, each with its part: as its operations have floating-point ones."""
    work = work_by_line(launch.nodes)
    whole = sum(work.values()) + len(work)  # a line that only moves data counts, too
    return {line: (count + 1) / whole for line, count in work.items()} or {"": 1.0}
