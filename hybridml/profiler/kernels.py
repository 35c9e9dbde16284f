"""Names of launches, and their floating-point operations by source line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hybridml_compiler.graph.flops import node_flops, operations, total_flops
from hybridml_compiler.graph.ir import Node
from hybridml_compiler.schedule.launch import goes_on

_MOVES = ("movement", "gather", "creation")


def kernel_name(launch: Any) -> str:
    """`matmul f32 128x512x784`, `copy`; a loop by the operations that it runs: `exp sum divide`."""
    kind = type(launch.spec).__name__
    if kind == "Copy":
        return "copy"
    names = list(dict.fromkeys(node.op.name for node in launch.nodes if node.op and node.op.kind not in _MOVES))
    names = names or list(dict.fromkeys(node.op.name for node in launch.nodes if node.op))
    listed = " ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    if kind in ("Kernel", "Region"):
        return listed or "loop"
    if kind == "Chain":
        return f"chain: {listed}"
    return str(launch.spec) if len(str(launch.spec)) < 80 else f"{kind.lower()}: {listed}"


def launch_flops(launches: Sequence[Any]) -> list[int]:
    """Floating-point operations per launch; none for one that finishes what the launch before it has begun."""
    found, before = [], None
    for launch in launches:
        found.append(0 if goes_on(launch, before) else total_flops(launch.nodes))
        before = launch
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
    spec = work_by_line(launch.nodes)
    whole = sum(spec.values()) + len(spec)  # a line that only moves data counts, too
    return {line: (count + 1) / whole for line, count in spec.items()} or {"": 1.0}
