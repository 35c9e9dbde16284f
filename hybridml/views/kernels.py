"""What a launch is called, and the floating-point operations of an operation."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

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
    """See `flops`."""
    assert node.op is not None
    return flops(node.op.kind, [n.shape for n in node.inputs], node.shape)


def launch_flops(launches: Sequence[Any]) -> list[int]:
    """Of each launch; one that finishes what the launch before it has begun has none of its own."""
    found, before = [], None
    for launch in launches:
        found.append(0 if launch.nodes and launch.nodes == before else sum(map(node_flops, launch.nodes)))
        before = launch.nodes
    return found


def shares(launch: Any) -> Mapping[str, float]:
    """The user's lines that a launch runs, each with its part: as its operations have floating-point ones."""
    weights: dict[str, float] = {}
    for node in launch.nodes:
        if node.where:
            weights[node.where] = weights.get(node.where, 0.0) + node_flops(node) + 1.0
    whole = sum(weights.values())
    return {line: weight / whole for line, weight in weights.items()} or {"": 1.0}
