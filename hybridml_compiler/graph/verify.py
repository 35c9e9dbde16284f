"""The rules of the graph dialect, checked after every pass, so that the pass that breaks a graph is the one blamed.

A node never changes, so it is checked once in its life: after a pass only new nodes are checked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from .. import dtypes
from ..aval import Aval
from ..errors import CompileError, HybridmlError
from ..ops.op import Op
from ..sizes.dims import Dim
from .body import Body, bodies_of
from .ir import VERIFIED, Graph, Node, placed
from .text import graph_lines

_CONTEXT = 5  # lines of IR shown on either side of the fault
_KINDS: dict[Any, tuple[str, ...]] = {}  # faults of nodes, by all that they depend on
_MOST_KINDS = 1 << 13


def verify(graph: Graph, stage: str = "") -> None:
    """Raise `CompileError` with the lines around the fault unless `graph` follows the rules of the dialect.

    - inputs are input nodes, each listed once; every input node that an output needs is listed
    - a node's type is what its row infers from its inputs; inputs that the row unifies have one dtype
    - parameters are canonical, of plain immutable types, and hashable
    - constants are read-only, contiguous, and of one of the framework's dtypes

    `stage` names the maker of the graph in the error.
    """
    listed = set(graph.inputs)
    if len(listed) != len(graph.inputs):
        repeated = next(node for k, node in enumerate(graph.inputs) if node in graph.inputs[:k])
        raise _fault(graph, repeated, f"input {repeated.name!r} is listed twice", stage)
    for node in graph.nodes():
        if node.is_input:
            if node not in listed:
                raise _fault(graph, node, f"input {node.name!r} is used but not listed", stage)
            listed.discard(node)  # a constant or an application may not be listed
        elif not node.seen & VERIFIED:
            for message in _faults(node):
                raise _fault(graph, node, message, stage)
            for body in bodies_of(node):
                if not body.seen & VERIFIED:
                    verify(body.graph, stage)
                    body.seen |= VERIFIED
            node.seen |= VERIFIED
    for node in listed:
        raise _fault(graph, node, "a listed input is not an input node", stage)


def _faults(node: Node) -> Iterator[str]:
    if node.op is None:
        yield from _constant_faults(node)
        return
    # Most nodes are like another one: in a step of ResNet-18, 8357 of 9133. The text of the parameters tells apart
    # values that are equal and not the same, as 1 and True.
    text = repr(sorted(node.params.items())) if node.params else "[]"
    kind = node.op.key, tuple([n.aval for n in node.inputs]), text, node.aval
    found = _KINDS.get(kind)
    if found is None:
        if node.aval.symbolic or any(n.aval.symbolic for n in node.inputs):
            return  # `apply` has inferred it: to ask again is to decide again
        if len(_KINDS) >= _MOST_KINDS:
            _KINDS.clear()
        found = _KINDS[kind] = tuple(_faults_of_kind(node.op, kind[1], dict(node.params), text, node.aval))
    yield from found


def _faults_of_kind(op: Op, in_avals: Sequence[Aval], params: dict[str, Any], text: str, aval: Aval) -> Iterator[str]:
    for key, value in params.items():
        if not _is_plain(value):
            yield f"parameter {key}={value!r} is not a plain immutable value"
            return
    if not op.variadic and len(in_avals) != len(op.inputs):
        yield f"{op.name} takes {len(op.inputs)} inputs, got {len(in_avals)}"
        return
    unified = in_avals if op.variadic and op.unify else [in_avals[k] for k in op.unify]
    if len({aval.dtype for aval in unified}) > 1:
        yield f"{op.name} needs inputs of one dtype, got {', '.join(map(str, unified))}"
    try:
        canonical = op.canonical_params(in_avals, params)
        if repr(sorted(canonical.items())) != text:
            yield f"parameters are {params}, canonical is {canonical}"
        expected = op.infer_from(in_avals, canonical)
        expected = placed(op, in_avals, expected) if in_avals else expected.on(aval.device)
    except (HybridmlError, TypeError) as error:
        yield f"{op.name} refuses its inputs: {error}"
        return
    if expected != aval:
        yield f"the node is {aval}, {op.name} makes {expected}"


def _constant_faults(node: Node) -> Iterator[str]:
    value = node.value
    if value is None or node.inputs:
        yield "a node without an operation is an input or a constant and has no inputs"
    elif value.flags.writeable:
        yield "the array of a constant is writable"
    elif not value.flags.c_contiguous:
        yield "the array of a constant is not contiguous"
    elif not dtypes.is_known(value.dtype):
        yield f"a constant of dtype {value.dtype}"
    elif (value.shape, value.dtype) != (node.shape, node.dtype):
        yield f"the array of the constant is {value.dtype}{list(value.shape)}, the node is {node.aval}"


def _is_plain(value: Any) -> bool:
    """Whether the text can hold a value: a bool, number, string, None, dtype, body, or a tuple of those."""
    if type(value) is tuple:
        return all(map(_is_plain, value))
    return (
        value is None
        or type(value) in (bool, int, float, complex, str, Dim, Body)
        or (isinstance(value, np.dtype) and _known(value))
    )


def _known(dtype: np.dtype[Any]) -> bool:
    return dtypes.is_known(dtype)


def _fault(graph: Graph, node: Node, message: str, stage: str) -> CompileError:
    lines, line_of = graph_lines(graph, locations=True)
    at = line_of.get(node, 0)
    shown = range(max(0, at - _CONTEXT), min(len(lines), at + _CONTEXT + 1))
    text = "\n".join(f"{'>' if k == at else ' '} {k + 1:5} {lines[k]}" for k in shown)
    made = f" after {stage}" if stage else ""
    return CompileError(f"verify: graph {graph.name!r}{made} is broken: {message}\n{text}")
