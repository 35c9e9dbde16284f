"""Channels last inside a program: permutations sink towards the outputs, where they cancel or stop at the border.

A convolution takes and gives its channels last; the library around it speaks channels first. Between two convolutions
there is then a permutation back and one forth, with an activation, a normalisation or a pooling in between. Here the
first one is moved past those, so that it meets the second and both are gone:

    permute_dims(conv) -> relu -> permute_dims -> conv      becomes      conv -> relu -> conv

Every value is kept as (core, axes), which means `permute_dims(core, axes)`. A rule for a kind of operation
gives the core and axes of the result; operations without a rule (matrix products, gathers, outputs) read
the permuted value. So one walk over the graph is enough. Where an elementwise operation meets an operand as large as
itself that is permuted otherwise, one of the two must be moved: a walk back from the outputs has found which is wanted.

The pass is for programs with convolutions, and for those that update their weights, which are permuted in memory too.
Elsewhere a permutation is somebody's choice of an order in memory. See [Note: Layout].
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ..graph.ir import Graph, Node, apply, with_inputs
from ..graph.rewrite import make
from ..ops.movement import inverse
from .canonical_views import permute_of_added_ones
from .patterns import is_op, op_name

Axes = tuple[int, ...]
Shape = tuple[int, ...]


class Form(NamedTuple):
    """The value `permute_dims(core, axes)`; without axes the core itself."""

    core: Node
    axes: Axes | None = None


def channels_last(graph: Graph) -> Graph:
    """`graph` with its permutations moved past everything that computes as well in the order before them."""
    nodes = graph.nodes()
    if not any([is_op(node, "convolution") for node in nodes]) and not any(map(_is_permuted_state, graph.outputs)):
        return graph
    wants = _Wants(graph, nodes)
    forms: dict[Node, Form] = {}  # of nodes that have another form than themselves
    for node in nodes:
        if node.op is None:
            continue
        permutes = node.op.name == "permute_dims"
        if not permutes and not any([n in forms for n in node.inputs]):
            continue
        operands = [forms.get(n) or Form(n) for n in node.inputs]
        found = None
        if permutes or any([form.axes is not None for form in operands]):
            rule = _RULES.get(node.op.name) or (_over_axes if node.op.axis_params else _BY_KIND.get(node.op.kind))
            found = rule(node, operands, wants) if rule else None
        if found is None:
            inputs = tuple([_plain(form) for form in operands])
            if inputs == node.inputs:
                continue
            found = Form(with_inputs(node, inputs))
        found.core.where = found.core.where or node.where
        forms[node] = found
    return graph.with_roots([_plain(forms[node]) if node in forms else node for node in graph.roots])


def _is_permuted_state(output: Node) -> bool:
    """Whether an output is written with its axes in the order of some memory, as the update of such a weight is."""
    return is_op(output, "permute_dims") and len(output.shape) > 2


def _plain(form: Form) -> Node:
    return form.core if form.axes is None else _permuted(form.core, form.axes)


def _form(core: Node, axes: Sequence[int]) -> Form:
    return Form(core, None if _in_order(axes) else tuple(axes))


def _in_order(axes: Sequence[int]) -> bool:
    return list(axes) == sorted(axes)


def _permuted(x: Node, axes: Axes) -> Node:
    """permute_dims(x, axes), moved before x where less is permuted: one number, a stretched or pooled array."""
    if _in_order(axes):
        return x
    shape = tuple(x.shape[k] for k in axes)
    if is_op(x, "full"):
        return make("full", **{**x.params, "shape": shape})
    if _is_free(x.shape, axes):
        return make("reshape", x, shape=shape)
    if is_op(x, "broadcast_to"):
        return make("broadcast_to", _permuted(_padded(x.inputs[0], len(axes)), axes), shape=shape)
    if is_op(x, "fold_windows"):
        (source,) = x.inputs
        ends = range(len(axes), len(source.shape))
        along = tuple(axes.index(k) for k in x.params["axes"])
        return make("fold_windows", _permuted(source, (*axes, *ends)), **{**x.params, "axes": along})
    found = make("permute_dims", x, axes=axes)
    return permute_of_added_ones(found) or found  # the form that this view has everywhere, so that the passes settle


def _padded(x: Node, rank: int) -> Node:
    """x with as many axes of size 1 before its own as an operand that broadcasts to `rank` axes lacks."""
    lacking = rank - len(x.shape)
    return make("reshape", x, shape=(1,) * lacking + x.shape) if lacking else x


def _is_free(shape: Shape, axes: Axes) -> bool:
    """Whether the permutation moves only axes of size 1. An operand that broadcasts may lack the first axes."""
    shape = (1,) * (len(axes) - len(shape)) + shape
    moved = [k for k in axes if shape[k] != 1]
    return moved == sorted(moved)


def _unpermuted(form: Form, axes: Axes) -> Node:
    """The node whose `permute_dims(_, axes)` is the value; it may have fewer axes, as an operand that broadcasts."""
    core, own = form
    if own is not None and len(own) == len(axes):
        return _permuted(core, tuple(own[k] for k in inverse(axes)))
    x = _plain(form)
    return _permuted(_padded(x, len(axes)), inverse(axes)) if x.shape else x


def _reordered(values: Sequence[Any], axes: Axes) -> tuple[Any, ...]:
    """One value per axis of the core, from one per axis of the permuted array."""
    return tuple(values[k] for k in inverse(axes))


# ---------------------------------------------------------------- rules

# From the forms of the operands to that of the result; None where it must be computed in plain order.
Rule = Callable[[Node, Sequence[Form], "_Wants"], Form | None]


def _permute(node: Node, operands: Sequence[Form], wants: _Wants) -> Form:
    ((core, axes),) = operands
    new: Axes = node.params["axes"]
    return _form(core, new if axes is None else [axes[k] for k in new])


def _agreed(node: Node, operands: Sequence[Form], wants: _Wants) -> tuple[Axes, list[Node]] | None:
    """(axes, cores) that the operands of an operation share, if they can: its result then has these axes too."""
    rank, size = len(node.shape), node.aval.size
    laid = [(form.core.aval.size, form.axes) for form in operands if form.axes is not None and len(form.axes) == rank]
    if not laid:
        return None
    largest = [axes for n, axes in laid if n == max(laid)[0]]
    wanted = wants.of(node) if len(set(largest)) > 1 else ()
    axes = next((axes for axes in largest if axes in wanted), largest[0])
    others = [_plain(form) for form in operands if form.axes != axes]
    moved = [x for x in others if x.aval.size == size and not is_op(x, "full") and not _is_free(x.shape, inverse(axes))]
    if moved:
        wanted = wants.of(node)
        if axes not in wanted or None in wanted:
            return None
    return axes, [_unpermuted(form, axes) for form in operands]


def _elementwise(node: Node, operands: Sequence[Form], wants: _Wants) -> Form | None:
    agreed = _agreed(node, operands, wants)
    assert node.op is not None
    return None if agreed is None else Form(apply(node.op, agreed[1], node.params), agreed[0])


def _over_axes(node: Node, operands: Sequence[Form], wants: _Wants) -> Form | None:
    """The same operation on the cores, with the parameters that speak of axes changed to speak of theirs."""
    agreed = _agreed(node, operands, wants)
    if agreed is None:
        return None
    axes, cores = agreed
    assert node.op is not None
    changed = {name: _of_core(node.params[name], axes, form) for name, form in node.op.axis_params.items()}
    return Form(make(op_name(node), *cores, **{**node.params, **changed}), axes)


def _of_core(value: Any, axes: Axes, form: str) -> Any:
    """A parameter with one entry per axis ("each"), or that is an axis or several in an order of their own."""
    if form == "each":
        return _reordered(value, axes)
    return axes[value] if isinstance(value, int) else tuple(axes[k] for k in value)


def _reduction(node: Node, operands: Sequence[Form], wants: _Wants) -> Form | None:
    """Form of a reduction that names its axes; another order of the same elements is as good."""
    ((core, axes),) = operands
    given = node.params.get("axis")
    if axes is None or given is None:
        return None
    reduced = {axes[k] for k in ((given,) if isinstance(given, int) else given)}
    axis = next(iter(reduced)) if isinstance(given, int) else tuple(sorted(reduced))
    result = make(op_name(node), core, **{**node.params, "axis": axis})
    if node.params["keepdims"]:
        return _form(result, axes)
    left = [k for k in axes if k not in reduced]
    return _form(result, [sorted(left).index(k) for k in left])


def _broadcast(node: Node, operands: Sequence[Form], wants: _Wants) -> Form | None:
    ((core, axes),) = operands
    if axes is None:
        return None
    lead = len(node.shape) - len(axes)
    whole = (*range(lead), *(k + lead for k in axes))
    return Form(make("broadcast_to", core, shape=_reordered(node.shape, whole)), whole)


def _reshape(node: Node, operands: Sequence[Form], wants: _Wants) -> Form | None:
    ((core, axes),) = operands
    found = None if axes is None else reshaped(node.inputs[0].shape, node.shape, axes)
    return None if found is None else _form(make("reshape", core, shape=found[0]), found[1])


def reshaped(old: Shape, new: Shape, axes: Axes) -> tuple[Shape, Axes] | None:
    """(shape of the core, axes) after `old -> new` on an array that is permuted by `axes`, None if it must be moved.

    Axes may split, appear and go (of size 1), and merge where they are adjacent in the core too.
    """
    parts = _parts(old, new)
    if parts is None:
        return None
    kept = {k for before, _ in parts for k in before}
    rank = {k: r for r, k in enumerate(k for k in inverse(axes) if k in kept)}
    keys: dict[int, int] = {}
    for before, after in parts:
        first = rank[before[0]]
        if [rank[k] for k in before] != list(range(first, first + len(before))):
            return None
        keys.update(dict.fromkeys(after, first))
    last, end = -1, max(keys, default=-1)
    for j in range(len(new)):  # a new axis of size 1 goes with the one before it, those at the end stay there
        last = keys.setdefault(j, last if j < end else len(old))
    core_order = sorted(range(len(new)), key=lambda j: (keys[j], j))
    return tuple(new[j] for j in core_order), inverse(core_order)


def _parts(old: Shape, new: Shape) -> list[tuple[list[int], list[int]]] | None:
    """Runs of axes of `old` and of `new` that hold the same elements; None for no elements.

    Axes of size 1 in both are one; others are in no run.
    """
    if 0 in old:
        return None
    parts = []
    i = j = 0
    while i < len(old) and j < len(new):
        m, n = old[i], new[j]
        if m != n and 1 in (m, n):
            i, j = i + (m == 1), j + (n == 1)
            continue
        before, after = [i], [j]
        while m != n:
            if m < n:
                i += 1
                m *= old[i]
                before.append(i)
            else:
                j += 1
                n *= new[j]
                after.append(j)
        parts.append((before, after))
        i, j = i + 1, j + 1
    return parts


def _windows(node: Node, operands: Sequence[Form], wants: _Wants) -> Form | None:
    ((core, axes),) = operands
    if axes is None:
        return None
    along = tuple(axes[k] for k in node.params["axes"])
    return Form(make("windows", core, **{**node.params, "axes": along}), (*axes, *range(len(axes), len(node.shape))))


def _fold_windows(node: Node, operands: Sequence[Form], wants: _Wants) -> Form | None:
    ((core, axes),) = operands
    rank = len(node.shape)
    if axes is None or axes[rank:] != tuple(range(rank, len(axes))):
        return None
    along = tuple(axes[k] for k in node.params["axes"])
    return Form(make("fold_windows", core, **{**node.params, "axes": along}), axes[:rank])


def _convolution(node: Node, operands: Sequence[Form], wants: _Wants) -> Form | None:
    """A convolution that writes channels first, where its result is wanted so and not otherwise: the kernel transposes
    it in cache.

    Of those with groups, only a depthwise one of an image that has channels first too: then nothing is transposed.
    """
    params, x, (kh, kw) = node.params, operands[0].axes, node.inputs[1].shape[:2]
    if kh * kw > node.shape[1] * node.shape[2]:  # a gradient of weights, whose features are not last anyway
        return None
    (*_, groups, c), o = node.inputs[0].shape, node.inputs[1].shape[4]
    wanted = [_has_channels_first(axes, groups) for axes in wants.of(node)]
    if params["channels_first"] or not any(wanted) or (groups == 1 and not all(wanted)):
        return None
    if groups > 1 and (c * o > 1 or params["stride"] != (1, 1) or not _has_channels_first(x, groups)):
        return None
    result = make("convolution", *map(_plain, operands), **{**params, "channels_first": True})
    return Form(result, (0, 3, 4, 1, 2))


def _has_channels_first(axes: Axes | None, groups: int) -> bool:
    """Whether the core of an array (n, h, w, g, c) with these axes has g before h and w; or c, if there is one
    group."""
    return axes is not None and axes[3 if groups > 1 else 4] < axes[1] < axes[2]


_BY_KIND: dict[str, Rule] = {"elementwise": _elementwise, "reduction": _reduction}
_RULES: dict[str, Rule] = {
    "permute_dims": _permute,
    "convolution": _convolution,
    "broadcast_to": _broadcast,
    "reshape": _reshape,
    "windows": _windows,
    "fold_windows": _fold_windows,
}

# ---------------------------------------------------------------- wanted orders

_Orders = frozenset[Axes | None]  # the axes that readers of a value would like it to have; None: in plain order
_NOTHING: _Orders = frozenset()
_PLAIN: _Orders = frozenset((None,))


class _Wants:
    """For each node the axes in which its readers, and theirs as far as these pass them on, would have it.

    Worked out once and when first asked: most programs of settled layout never ask.
    """

    def __init__(self, graph: Graph, nodes: Sequence[Node]) -> None:
        self._graph, self._nodes = graph, nodes
        self._found: dict[Node, _Orders] = {}

    def of(self, node: Node) -> _Orders:
        if not self._found:
            self._found = dict.fromkeys(self._graph.outputs, _PLAIN)
            self._walk(self._found)
        return self._found.get(node, _NOTHING)

    def _walk(self, found: dict[Node, _Orders]) -> None:
        for node in reversed(self._nodes):
            if node.op is None:
                continue
            own = found.get(node, _NOTHING)
            for operand in node.inputs:
                if operand.op is None:
                    continue
                passed = _passed_on(node, operand, own)
                if passed:
                    before = found.get(operand)
                    if before is not passed:
                        found[operand] = passed if before is None else before | passed


def _passed_on(node: Node, operand: Node, own: _Orders) -> _Orders:
    assert node.op is not None
    name, kind = node.op.name, node.op.kind
    if kind == "elementwise" or node.op.axis_params:
        return own if len(operand.shape) == len(node.shape) else _NOTHING
    if name == "permute_dims":
        order = inverse(node.params["axes"])
        return frozenset([_or_plain(order if axes is None else tuple([axes[k] for k in order])) for axes in own])
    if name == "reshape":
        back = [reshaped(node.shape, operand.shape, axes) for axes in own if axes is not None]
        return frozenset([_or_plain(found[1]) for found in back if found is not None]) | (own & _PLAIN)
    if name in ("windows", "fold_windows"):
        rank, ends = len(operand.shape), tuple(range(len(node.shape), len(operand.shape)))
        return frozenset([None if axes is None else (*axes, *ends)[:rank] for axes in own])
    if kind == "reduction" or name == "broadcast_to":
        return _NOTHING
    return _PLAIN


def _or_plain(axes: Axes) -> Axes | None:
    return None if _in_order(axes) else axes
