"""Updates in place: a slice that is replaced is written into the array itself where nothing reads the old one later.

    B1 = slice_update(B, f(A), 1:-1)        a kernel over 1:-1 that stores f(A) into the memory of B
    C = B1 + 1                              reads that memory

The value of an update is made a node of its own, a `store`, which is computed in any kernel over its shape and stored
where it belongs; the update is then that memory. What reads the old array runs before. Elements that the store reads
of it are those it writes, or others that it does not write; where they overlap otherwise, its value is computed first,
into memory of its own: a copy of the slice, not of the array. Where something needs the old array later, the update
gets a copy of it.

Rows at computed indices, `scatter_set(B, indices, rows)`, are written there as well: the indices are checked in a
kernel of their own first, because an error leaves the array as it was. So is what an asynchronous operation, of another
processor or of other processes, makes of an array that it was given.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from ...aval import Aval
from ...graph.body import family
from ...graph.checks import INDEXED, limit
from ...graph.checks import operand as indices_of
from ...graph.ir import Graph, Node, apply, users, with_inputs
from ...graph.updates import is_awaited, is_update, is_updated, old_of
from ...ops.control import LOOP
from ...ops.op import Op
from ...ops.shapes import are_apart, count, is_empty, positions
from ...ops.table import OPS
from ...record import record
from ...sizes.dims import same
from ...walk import reachable
from .group import OWN_LOOP

Index = tuple[Any, ...]
_LEAST_BYTES = 1 << 12  # of an array that is worth it: a smaller one is written as a whole, by whatever reads it


def _store_infer(base: Aval, value: Aval, **window: Any) -> Aval:
    return Aval(value.shape, base.dtype, device=base.device)


STORE = Op(
    "store", "elementwise", inputs=("base", "value"), infer=_store_infer, eager=lambda base, value, **_: value,
    lower=lambda s, i, base, value, **_: value(i), samples=lambda _: (), public=False, unify=(), complex_kernels=True,
    params={"starts": (), "stops": (), "steps": ()}, doc="A value that is stored in a slice of `base`, as it is.",
)  # fmt: skip


@record(frozen=False, eq=False)
class InPlace:
    """`memory`: an update -> the array whose memory it is. `forced`: values to have in memory, with the reason."""

    memory: dict[Node, Node]
    forced: dict[Node, str]

    def home(self, node: Node) -> Node:
        """The array whose memory a node is in after all updates."""
        while node in self.memory:
            node = self.memory[node]
        return node


def store_of(update: Node) -> Node | None:
    """The store of an update in place."""
    if is_update(update) and update.inputs[1].op is STORE:
        return update.inputs[1]
    return None


def window_of(store: Node, index: Index, s: Any) -> Index:
    """The index in the array of an element of the store."""
    starts, steps = store.params["starts"], store.params["steps"]
    return tuple(
        s.add(s.mul(k, step), start) if not same(start, 0) or step != 1 else k
        for k, start, step in zip(index, starts, steps, strict=True)
    )


def with_stores(graph: Graph, donated: Mapping[int, int]) -> tuple[Graph, InPlace]:
    """The graph with a store for each update that is worth it, and what those are. `donated`: output -> input whose
    memory it is written to."""
    order = graph.nodes()
    updates = [node for node in order if old_of(node) is not None]
    found = InPlace({}, {})
    if not updates:
        return graph, found
    readers = users(order)
    position = {node: k for k, node in enumerate(order)}
    outputs = set(graph.roots)
    given, lasting = _own_inputs(graph, donated), _lasting(graph)
    chosen: dict[Node, None] = {}
    homes: dict[Node, Node] = {}
    last = {graph.inputs[k]: graph.outputs[out] for out, k in donated.items()}

    def needs(node: Node, update: Node) -> bool:
        first = position[update]
        return position[node] > first and update in reachable(
            [node], lambda n: [x for x in n.inputs if position[x] >= first]
        )

    for node in updates:
        base = old_of(node)
        assert base is not None
        if lasting.get(base, node) is not node:
            continue  # another update of the array is what an output is made of: the memory is that one's
        own = base in chosen or base in given
        to_loop = node.op is LOOP and base.kind in ("creation", "elementwise")
        in_memory = base.kind in OWN_LOOP or to_loop or (is_awaited(node) and base.op is not None)
        made_here = in_memory or is_update(base)
        home = homes.get(base, base)
        # A version that is given out and updated further: the memory is that of the last one.
        given_out = base in outputs or (node in outputs and last.get(home, node) is not node)
        if given_out or not (own or (made_here and base.aval.hinted.nbytes >= _LEAST_BYTES)):
            continue
        run = family(node) if node.op is LOOP else None  # its other results read the array as it does
        if run is not None and node.inputs.count(base) > 1:
            continue
        others = [r for r in readers[base] if r is not node and (r.op is not LOOP or family(r) != run)]
        if any(r in chosen or needs(r, node) for r in others):
            continue
        chosen[node], homes[node] = None, home
        if not own and is_update(base):
            found.forced[base] = "written as a whole, and updated after that"
        late = [r for r in others if r.kind not in OWN_LOOP and _is_read_late(r, node, readers, chosen, needs)]
        found.forced.update(dict.fromkeys(late, "read before it is overwritten"))
    if not chosen:
        return graph, found
    made: dict[Node, Node] = {}
    forced: dict[Node, str] = {}
    after: set[Node] = set()  # what is computed from updates
    for node in order:
        operands = tuple([made.get(n, n) for n in node.inputs])
        new = node if operands == node.inputs else with_inputs(node, operands)
        if any(n in after or n in found.memory for n in operands):
            after.add(new)
        if new.kind in INDEXED and (node in chosen or (new in after and indices_of(new) not in after)):
            new = _checked_before(new, forced)
        if node in chosen and node.op is LOOP:
            old = old_of(new)
            assert old is not None
            found.memory[new] = old
        elif node in chosen and not is_update(node):
            found.memory[new] = base = new.inputs[0]
            if node.kind == "scatter" and _reads(new.inputs[2], base):
                forced[new.inputs[2]] = "it reads what it is to overwrite"
        elif node in chosen:
            new, store = _with_store(new)
            found.memory[new] = new.inputs[0]
            forced[store] = "stored where it belongs"
            forced[new] = "the memory of what it updates"
            value = store.inputs[1]
            if value.op is not None and not may_store(store, value):
                forced[value] = "it reads what it is to overwrite"
        made[node] = new
        if node in found.forced:
            forced[new] = found.forced[node]
    found.forced = forced
    return graph.with_roots([made[n] for n in graph.roots]), found


def stays_in_place(graph: Graph, donated: Mapping[int, int]) -> bool:
    """Whether all outputs that are updates of the inputs in `donated` write the slices alone, those of loops in it
    too."""
    made, found = with_stores(graph, donated)
    for out, k in donated.items():
        node = made.outputs[out]
        while node in found.memory:
            if node.op is LOOP and not _loop_stays_in_place(node):
                return False
            node = found.memory[node]
        if node is not made.inputs[k]:
            return False
    return True


def _loop_stays_in_place(node: Node) -> bool:
    p, k = node.params, node.params["result"]
    body: Graph = p["body"].graph
    return body.outputs.count(body.outputs[k]) == 1 and stays_in_place(body, {k: p["consts"] + k})


def _own_inputs(graph: Graph, donated: Mapping[int, int]) -> set[Node]:
    """Inputs that are overwritten by a chain of updates of them alone."""
    return {graph.inputs[k] for out, k in donated.items() if is_updated(graph.inputs[k], graph.outputs[out])}


def _lasting(graph: Graph) -> dict[Node, Node]:
    """Arrays -> the updates of them that outputs are made of."""
    found: dict[Node, Node] = {}
    for node in graph.outputs:
        while (base := old_of(node)) is not None:
            found.setdefault(base, node)
            node = base
    return found


def _is_read_late(
    reader: Node,
    update: Node,
    readers: Mapping[Node, Sequence[Node]],
    chosen: Collection[Node],
    needs: Callable[[Node, Node], bool],
) -> bool:
    """Whether what may be computed together with a reader of the old array needs the update, or is an operand of the
    loop that updates: its steps would find it overwritten."""

    def inlined_in(node: Node) -> list[Node]:
        return [user for user in readers[node] if user not in chosen and user.kind not in OWN_LOOP]

    together = reachable([reader], inlined_in)
    later = {user for node in together for user in readers[node]} - {update}
    run = family(update) if update.op is LOOP else None
    return any(needs(user, update) or (user.op is LOOP and family(user) == run) for user in later)


def _with_store(update: Node) -> tuple[Node, Node]:
    base, value = update.inputs
    params = dict(update.params)
    if params["steps"] is None:
        params["steps"] = (1,) * len(base.shape)
    window = tuple(map(count, map(positions, params["starts"], params["stops"], params["steps"])))
    if value.shape != window:
        value = apply(OPS["broadcast_to"], [value], {"shape": window}, update.where)
    if value.dtype != base.dtype:
        value = apply(OPS["astype"], [value], {"dtype": base.dtype}, update.where)
    store = apply(STORE, [base, value], params, update.where)
    assert update.op is not None
    return apply(update.op, [base, store], params, update.where), store


def _checked_before(node: Node, forced: dict[Node, str]) -> Node:
    """A node whose indices are checked in a kernel of their own, which can run before anything is overwritten."""
    indices = indices_of(node)
    what = {"size": limit(node), "axis": node.params["axis"]}
    checked = apply(OPS["index"], [indices], what, node.where)
    forced[checked] = "an index out of range leaves the array as it was"
    return with_inputs(node, tuple([checked if n is indices else n for n in node.inputs]))


def _reads(value: Node, array: Node) -> bool:
    """Whether a value is computed from an array in the kernel that it is computed in."""

    def together(node: Node) -> list[Node]:
        return [x for x in node.inputs if x.kind not in OWN_LOOP and store_of(x) is None]

    return value.op is not None and any(array in node.inputs for node in reachable([value], together))


# -- whether a store may read what it overwrites


def may_store(store: Node, value: Node) -> bool:
    """Whether each element that the value reads of the array is the one that it is stored to, or none of the slice, in
    a loop over the elements of the store."""
    base = store.inputs[0]
    stack, seen = [(value, _lengths(value) == _lengths(store))], set[tuple[Node, bool]]()
    while stack:
        node, at_hand = stack.pop()
        if (node, at_hand) in seen or node.op is None:
            continue
        seen.add((node, at_hand))
        same_place = node.kind == "elementwise" or node.op.element_map == "flat"
        for operand in node.inputs:
            if operand is base:
                whole = at_hand and same_place and _is_whole(store) and _lengths(base) == _lengths(node)
                if not whole and not _is_clear(store, node, at_hand):
                    return False
            elif operand.kind not in OWN_LOOP and store_of(operand) is None:
                stack.append((operand, at_hand and same_place and _lengths(operand) == _lengths(node)))
    return True


def _is_whole(store: Node) -> bool:
    """Whether it writes all elements of its array, in their order."""
    return all(map(same, store.shape, store.inputs[0].shape)) and set(store.params["steps"]) <= {1}


def _lengths(node: Node) -> list[Any]:
    """The sizes that are not 1: nodes that agree in them have the same elements in the same order."""
    return [str(n) for n in node.shape if not same(n, 1)]


def _is_clear(store: Node, reader: Node, at_hand: bool) -> bool:
    """Whether the reader of the array itself is a slice of it that is the slice of the store, element by element, or
    has none in common with it."""
    if reader.op is None or not reader.op.is_view or "starts" not in reader.params:
        return False
    mine, other = _axes(store), _axes(reader)
    if any(map(is_empty, (*mine, *other))):
        return True
    if at_hand and all(
        same(a[0], b[0]) and same(count(a), count(b)) and (a.step == b.step or same(count(a), 1))
        for a, b in zip(mine, other, strict=True)
    ):
        return True
    return any(are_apart(a, b) for a, b in zip(mine, other, strict=True))


def _axes(node: Node) -> list[Any]:
    params = node.params
    steps = params["steps"] or (1,) * len(params["starts"])
    return [*map(positions, params["starts"], params["stops"], steps)]
