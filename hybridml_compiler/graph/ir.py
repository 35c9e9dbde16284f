"""The graph dialect: immutable, pure, hash-consed nodes over whole arrays.

    graph  = name(inputs) -> outputs, checks
    node   = input(aval)                       an argument; every call makes a new one
           | const(array)                      a captured literal; small ones are interned by content
           | op(inputs; params) : aval         a row of the operation table applied to nodes

Equality is `is`: two nodes with the same op, inputs and parameters are one object, so common subexpressions are
eliminated by construction, and a node that nothing reaches does not exist. No node has an effect: state, random numbers
and in-place updates are inputs and outputs (see `hybridml.trace`). What may raise is the
exception: the checks of a graph are nodes that are computed for their errors alone (see checks.py).
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from typing import Any

import numpy as np

from .. import aval as avals
from .. import dtypes
from ..aval import CPU, Aval, together
from ..once import lazy
from ..ops.op import Op
from ..record import record
from ..sizes.atoms import Symbol
from ..sizes.collector import collector
from ..sizes.dims import Dim, symbols_of
from ..sizes.guards import known, structural
from ..sizes.steps import is_of_steps
from ..sizes.values import has_dims
from ..walk import postorder
from ..weak import WeakValues

_INTERNED: WeakValues[Any, Node] = WeakValues()
_operands = operator.attrgetter("inputs")
_SMALL_CONSTANT = 64  # elements; larger constants are kept by identity, hashing megabytes would cost more than it saves


class Node:
    """A value of the graph. Make one with `input_node`, `constant` or `apply`, never directly."""

    __slots__ = (
        "__weakref__", "aval", "dtype", "inputs", "kind", "name", "op", "params", "seen", "shape", "text", "value",
        "where",
    )  # fmt: skip

    op: Op | None  # None for inputs and constants
    kind: str  # how it is computed: the kind of its row, or "opaque"; "" for inputs and constants
    inputs: tuple[Node, ...]
    params: Mapping[str, Any]
    text: str  # of the parameters, sorted: equal exactly where they are
    aval: Aval
    shape: tuple[int, ...]  # of the aval, as the stages ask for it thirty times in a node's life
    dtype: np.dtype
    value: np.ndarray | None  # data of a constant
    seen: int  # bits of those that need not look at it again (see `new_bit`)
    name: str  # of an input, for people
    where: str  # user's line that made the node, for people: no part of its identity

    @property
    def is_input(self) -> bool:
        return self.op is None and self.value is None

    @property
    def is_constant(self) -> bool:
        return self.value is not None

    def __repr__(self) -> str:
        what = self.op.name if self.op else ("const" if self.is_constant else f"input {self.name}")
        return f"<{what}: {self.aval}>"


_BITS = count()


def new_bit() -> int:
    """A bit for `seen` of nodes: of a check, or of a table of rules. A node never changes, so each looks at it once."""
    return 1 << next(_BITS)


VERIFIED = new_bit()  # of nodes that obey the dialect (verify.py), for which only types of operands matter


def _new(
    op: Op | None,
    inputs: tuple[Node, ...],
    params: Mapping[str, Any],
    text: str,
    aval: Aval,
    where: str,
    kind: str | None = None,
) -> Node:
    node = Node()
    node.op, node.inputs, node.params, node.text, node.aval = op, inputs, params, text, aval
    node.shape, node.dtype = aval.shape, aval.dtype
    node.value, node.name, node.where, node.seen = None, "", where, 0
    node.kind = _kind(op, inputs, aval) if kind is None else kind
    return node


def _kind(op: Op | None, inputs: tuple[Node, ...], aval: Aval) -> str:
    """The kind of a node: that of its row, but for complex numbers where only NumPy computes with them."""
    if op is None:
        return ""
    if op.complex_kernels or op.kind == "control":
        return op.kind
    if op.kind == "effect":  # a callback, as NumPy's functions are
        return "opaque"
    return "opaque" if aval.dtype.kind == "c" or any(n.aval.dtype.kind == "c" for n in inputs) else op.kind


def input_node(aval: Aval, name: str = "", where: str = "") -> Node:
    node = _new(None, (), {}, "", aval, where)
    node.name = name
    return node


def constant(
    array: np.ndarray | float | int | bool, dtype: np.dtype | None = None, *, weak: bool = False, device: str = CPU
) -> Node:
    data = np.asarray(array, dtype=dtype)
    data = np.array(data, dtype=dtypes.canonical(data.dtype), order="C")
    data.flags.writeable = False
    key: Any = None
    if data.size <= _SMALL_CONSTANT:
        key = ("const", data.dtype.str, data.shape, data.tobytes(), weak, device)
        found = _INTERNED.get(key)
        if found is not None:
            return found
    node = _new(None, (), {}, "", Aval(data.shape, data.dtype, weak, device), "")
    node.value = data
    return node if key is None else _INTERNED.add(key, node)


def apply(
    op: Op, inputs: Sequence[Node], params: Mapping[str, Any] | None = None, where: str = "", device: str = CPU
) -> Node:
    """The node `op(inputs; params)`; shapes and dtypes are checked by the row's `infer`, devices by `together`.

    `device` is where an operation without inputs makes its result.
    """
    nodes = tuple(inputs)
    avals, latest = tuple([n.aval for n in nodes]), _latest
    if latest is not None and params is latest[2][0] and op is latest[0] and avals == latest[1]:
        canonical, text, out = latest[2]
    else:
        canonical, text, out = _inferred(op, avals, params or {})
    key: Any = (op.key, tuple(map(id, nodes)), text) if nodes else (op.key, device, text)
    found = _INTERNED.get(key)
    if found is None:
        found = _INTERNED.add(key, _new(op, nodes, canonical, text, out if nodes else out.on(device), where))
    elif where and not found.where:  # it was made by no line of a user
        found.where = where
    return found


def canonical_params(op: Op, avals: Sequence[Aval], params: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters as a node has them; the row's own errors for operands or parameters that it refuses."""
    global _latest
    _latest = latest = op, tuple(avals), _inferred(op, tuple(avals), params)
    return latest[2][0]


def placed(op: Op, avals: Sequence[Aval], out: Aval) -> Aval:
    """The type of a result with its device: that of the operands, unless the row itself says where it is."""
    return out if op.kind in _SAYS_WHERE else out.on(together(avals))


def with_inputs(node: Node, inputs: tuple[Node, ...]) -> Node:
    """The same application to other operands of the same types: `apply` without inferring again, twice as fast."""
    assert node.op is not None
    key = node.op.key, tuple(map(id, inputs)), node.text
    found = _INTERNED.get(key)
    if found is None:
        made = _new(node.op, inputs, node.params, node.text, node.aval, node.where, node.kind)
        if node.seen & VERIFIED and all([a.aval is b.aval for a, b in zip(inputs, node.inputs, strict=True)]):
            made.seen = VERIFIED
        found = _INTERNED.add(key, made)
    return found


def _text(params: Mapping[str, Any]) -> str:
    # repr and not hash: 0.0 == -0.0 and 1 == True, but they are different constants
    return repr(sorted(params.items())) if params else ""


_SAYS_WHERE = ("transfer", "control")  # kinds whose rows infer the device of a result
_Inferred = tuple[dict[str, Any], str, Aval]
_TOLD_BY_TEXT: frozenset[type] = frozenset({bool, int, float, str, type(None)})
PLAIN: set[type] = {*_TOLD_BY_TEXT, tuple}  # and dtypes, and bodies: their repr says all of them
_known: dict[Any, _Inferred] = {}
_types: dict[Aval, Aval] = {}  # of results: equal ones are one object
# What `canonical_params` found last: the node that a trace makes of it next need not find it again (5 us of 40).
_latest: tuple[Op, tuple[Aval, ...], _Inferred] | None = None
_MOST_KNOWN = 4096  # layers of a model repeat each other: three of four applications in a transformer are known


def _inferred(op: Op, avals: tuple[Aval, ...], params: Mapping[str, Any]) -> _Inferred:
    """(canonical parameters, their text, type of the result), remembered for operands and parameters seen before."""
    plain = True
    for value in params.values():
        if type(value) not in PLAIN and not isinstance(value, np.dtype):
            plain = False
        if has_dims(value):
            return _symbolic(op, avals, params)
    for aval in avals:
        if Dim in map(type, aval.shape):
            return _symbolic(op, avals, params)
    given = op.key, avals, _text(params), dtypes.default_float()
    found = _known.get(given) if plain else None
    if found is not None:
        return found
    canonical = op.canonical_params(avals, params)
    out = placed(op, avals, op.infer_from(avals, canonical))
    out = _types.setdefault(out, out)
    made = canonical, _text(canonical), out
    return _remembered(given, made) if plain else made


def _remembered(given: Any, made: _Inferred) -> _Inferred:
    if len(_known) >= _MOST_KNOWN:
        _known.clear()
        _types.clear()
    _known[given] = made
    return made


def _symbolic(op: Op, avals: tuple[Aval, ...], params: Mapping[str, Any]) -> _Inferred:
    """`_inferred` where sizes come with the call: the decisions of the row are guards of the program
    (sizes/dims.py)."""
    given = _steps_given(op, avals, params)
    found = None if given is None else _known.get(given)
    if found is not None:
        return found
    with structural(False):
        canonical = op.canonical_params(avals, params)
        out = op.infer_from(avals, canonical)
        shape = tuple([known(n) for n in out.shape])
    # The symbol n of another trace is another one, whose size at hand is another.
    hints = sorted(f"{s}={s.hint}<={s.most}" for s in symbols_of(*canonical.values()))
    out = placed(op, avals, Aval(shape, out.dtype, out.weak, out.device))
    made = canonical, " ".join([_text(canonical), *hints]), out
    return made if given is None else _remembered(given, made)


def _steps_given(op: Op, avals: tuple[Aval, ...], params: Mapping[str, Any]) -> Any:
    """A key of the row, its operands and parameters, where their sizes are numbers or those of steps of loops, and no
    guard says more: their form decides all then. Else None. A loop that is captured asks for each a dozen times."""
    guards = collector.get()
    if (guards is not None and guards.found) or op.version:
        return None  # a row of a user's may ask questions of its own
    try:
        operands = tuple([(_form(a.shape), a.dtype, a.weak, a.device) for a in avals])
        return op.key, operands, _form(tuple(params)), _form(tuple(params.values())), dtypes.default_float()
    except _NotFormal:
        return None


class _NotFormal(Exception):
    """A value of which equal ones are not known to be the same."""


def _form(value: Any) -> Any:
    if type(value) is Dim:
        if not is_of_steps(value):
            raise _NotFormal
        return value.terms
    if type(value) is tuple or type(value) is list:
        return tuple(map(_form, value))
    if type(value) not in _TOLD_BY_TEXT and not isinstance(value, np.dtype):
        raise _NotFormal
    return repr(value)


@record(eq=False)
class Graph:
    """Inputs in call order and outputs in result order. Inputs need not be used; outputs may repeat or be inputs."""

    inputs: tuple[Node, ...]
    outputs: tuple[Node, ...]
    name: str = "graph"
    checks: tuple[Node, ...] = ()  # computed for the errors that they raise

    @property
    def roots(self) -> tuple[Node, ...]:
        """The outputs, and then the checks: all that is asked for."""
        return (*self.outputs, *self.checks) if self.checks else self.outputs

    def with_roots(self, roots: Sequence[Node]) -> Graph:
        """The graph with nodes in place of its roots, in their order; itself where they are the same."""
        if tuple(roots) == self.roots:
            return self
        n = len(self.outputs)
        return Graph(self.inputs, tuple(roots[:n]), self.name, tuple(roots[n:]))

    @lazy
    def _nodes(self) -> list[Node]:
        return topological(self.roots, self.inputs)

    def nodes(self) -> list[Node]:
        """Every node that a root needs, operands first, in a deterministic order (inputs first)."""
        return self._nodes.copy()  # a graph never changes, so it is walked once


def topological(roots: Iterable[Node], first: Iterable[Node] = ()) -> list[Node]:
    """The nodes that the roots need, operands before what reads them, each once; `first` before all of them."""
    order = dict.fromkeys(first)
    return [*order, *postorder(roots, _operands, set(order))]


def symbols_in(nodes: Iterable[Node]) -> list[Symbol]:
    """The symbols of sizes and parameters, by name."""
    found = symbols_of(*(size for n in nodes for size in (*n.shape, *(n.params.values() if n.params else ()))))
    more = set[Symbol]()
    for step in found:
        more |= symbols_of(step.most)
    return sorted(found | more, key=str)


def users(nodes: Iterable[Node]) -> dict[Node, list[Node]]:
    """The nodes that read each node (once per operand position)."""
    table: dict[Node, list[Node]] = {}
    for node in nodes:
        table.setdefault(node, [])
        for operand in node.inputs:
            table.setdefault(operand, []).append(node)
    return table


def graph_of(inputs: Sequence[np.ndarray], names: Sequence[str] = ()) -> list[Node]:
    """Input nodes for a list of arrays."""
    return [input_node(avals.of(a), names[k] if k < len(names) else f"x{k}") for k, a in enumerate(inputs)]
