"""A digest of a graph: equal for graphs that compute the same by the same operations in the same order of nodes.

A kernel of a user is told by its body as well: the version of its row says what code it is read from, and not how.

It names the compiled program of a graph in the cache, so it covers all that the compiler looks at: operations,
parameters, operands, types and the data of constants; and nothing that it does not: names and the user's lines.
"""

from __future__ import annotations

import hashlib

from ..aval import Aval
from .ir import Graph, Node, symbols_in


def digest(graph: Graph) -> str:
    """Hexadecimal SHA-256; the same in every process."""
    nodes = graph.nodes()
    number = {node: k for k, node in enumerate(nodes)}
    types: dict[Aval, str] = {}
    data = hashlib.sha256()
    lines = [f"{len(graph.inputs)} {[[number[node] for node in nodes] for nodes in (graph.outputs, graph.checks)]}"]
    lines += [s.text for s in symbols_in(nodes) if s.most is not None]
    for node in nodes:
        kind = types.get(node.aval)
        if kind is None:
            kind = types[node.aval] = str(node.aval)
        if node.op is not None:
            operands = [number[n] for n in node.inputs]
            read = "" if node.op.body is None else node.op.body([n.aval for n in node.inputs], node.params).key
            lines.append(f"{node.op.key}{operands}{node.text}{kind}{read}")
        else:
            lines.append(f"{_content(node)}{kind}")
    data.update("\n".join(lines).encode())
    return data.hexdigest()


def _content(node: Node) -> str:
    if node.value is None:
        return "input"
    # bfloat16 has no buffer of its own
    data = node.value.tobytes() if node.dtype.kind == "V" else node.value.data
    return f"const {hashlib.sha256(data).hexdigest()}"
