"""`x[mask]` in a trace. How many elements it has is a matter of data, which a program is for; so they wait until
something asks for them.

Until then a selection is an array of which the mask chooses elements. Elementwise functions of selections by one mask
are those of the arrays, and select again; so do reductions along other axes, slices of these, and masks of selections.
Reductions over the elements are those of the array with what changes nothing elsewhere, and `z[mask] = selection` is
`where(mask, array, z)`.

What the other elements of the arrays are nobody sees. A gradient must not either: its zeros there become nan by an
infinite slope. So an operand that has a history goes in by `where(mask, operand, 1)`, whose gradient has true zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import ref

import numpy as np

from hybridml_compiler.aval import Aval
from hybridml_compiler.dtypes import bool_
from hybridml_compiler.errors import ArgumentError, DTypeError, ShapeError
from hybridml_compiler.ops.op import Op
from hybridml_compiler.ops.shapes import axes_tuple, broadcast, reduced
from hybridml_compiler.ops.table import OPS
from hybridml_compiler.record import record, replace
from hybridml_compiler.sizes.steps import is_step

from ...core.aliasing import stamp
from ...core.context import current_interpreter, grad_is_off, set_grad_enabled
from ...core.interpreter import interpret
from ...core.proxies.integer import IntProxy
from ...core.proxies.scalar import tensor_of
from ...core.tensor import Tensor, place_of
from ..specialize.errors import StepByStep
from .loops.one_memory import memory_of
from .traced_tensor import Traced

_slots: dict[str, Any] = {name: Tensor.__dict__[name] for name in ("_array", "_node")}
_where, _reshape, _any, _and, _some = (OPS[name] for name in ("where", "reshape", "any", "logical_and", "some"))
_WHOLE = slice(None)
_BASIC = (int, slice, type(None))
COUNTED = "counted"  # of a trace: Python asks how many elements there are
_REFUSALS = (ArgumentError, DTypeError, ShapeError)  # whose words are about the elements


@record(frozen=False, eq=False)
class Chosen:
    """The elements of `array` that `mask` chooses among its axes from `lead` on. All are values that do not change."""

    tracer: Any
    array: Tensor
    mask: Tensor
    lead: int
    make: Callable[[], Tensor]  # gives the elements themselves
    recorded: bool  # whether there is a history, if operands have one
    is_safe: bool = False  # whether gradients of the other elements reach nothing
    found: list[Tensor] = field(default_factory=list)

    rest = property(lambda self: self.array.ndim - self.mask.ndim - self.lead)  # axes behind those of the mask
    ndim = property(lambda self: self.array.ndim - self.mask.ndim + 1)

    def elements(self) -> Tensor:
        if not self.found:
            with set_grad_enabled(self.recorded):
                self.found.append(interpret(self.tracer, self.make))
        return self.found[0]

    def over(self) -> Tensor:
        """The mask, which broadcasts with the array."""
        return self.mask if not self.rest else _reshape.fn(self.mask, self.mask.shape + (1,) * self.rest)

    def safe(self, t: Tensor) -> Tensor:
        """An operand that broadcasts with the array, without gradients from elsewhere."""
        return t if t._node is None or grad_is_off() else _where.fn(self.over(), t, 1)

    def given(self) -> Tensor:
        """The array as an operand."""
        return self.array if self.is_safe else self.safe(self.array)

    def has_mask_of(self, other: Chosen) -> bool:
        return self.mask._array is other.mask._array and self.rest == other.rest

    @property
    def is_flat(self) -> bool:
        return not self.rest and not self.lead

    def is_slice(self, key: Any) -> bool:
        """Whether a key takes all elements, and parts of the axes behind theirs."""
        basic = type(key) is tuple and all(type(k) in _BASIC for k in key)
        return basic and not self.lead and key[0] == _WHOLE and sum(k is not None for k in key) <= self.rest + 1

    def axes(self, axes: Sequence[int]) -> tuple[int, ...]:
        """Axes of the array, for those of the selection."""
        n = self.mask.ndim - 1
        return tuple(j for k in axes for j in (range(k, k + n + 1) if k == self.lead else [k + n * (k > self.lead)]))

    def empty(self) -> Aval:
        """The type of a selection without elements."""
        shape, end = self.array.shape, self.lead + self.mask.ndim
        return Aval((*shape[: self.lead], 0, *shape[end:]), self.array.dtype)


class Selection(Traced):
    """The elements that `of` chooses; without `of` they are a tensor as any other."""

    __slots__ = ("frame", "front", "of", "parent", "views")
    of: Chosen | None
    frame: Any  # the region in which it was made
    parent: tuple[Selection, Any] | None  # of a view, and its key
    views: list[ref[Selection]]
    front: tuple[Tensor, Any] | None  # an array that begins with them, and the region of that (numbers/lengths.py)

    if TYPE_CHECKING:  # set by numbers/lengths.py

        def _element(self, key: Any) -> Tensor | None: ...

    @property
    def _array(self) -> Any:
        self.settle()
        return _slots["_array"].__get__(self)

    @_array.setter
    def _array(self, value: Any) -> None:
        self.of = None
        _slots["_array"].__set__(self, value)

    @property
    def _node(self) -> Any:
        self.settle()
        return _slots["_node"].__get__(self)

    @_node.setter
    def _node(self, value: Any) -> None:
        _slots["_node"].__set__(self, value)

    dtype = property(lambda self: self._shown()._array.dtype)
    ndim = property(lambda self: len(self._array.shape) if self.of is None else self.of.ndim)

    def settle(self) -> None:
        """Asks for the elements; views of them become views."""
        of = self.of
        if of is None:
            return
        if self.parent is not None:
            self.parent[0].settle()
        if self.of is None:
            return
        check_counted(of.tracer)
        found = of.elements()
        self._array, self._node = found._array, found._node
        _note(of.tracer, self)
        for reference in self.views:
            view = reference()
            if view is not None and view.of is not None and view.parent is not None:
                with set_grad_enabled(view.of.recorded):
                    seen = interpret(of.tracer, partial(self.__getitem__, view.parent[1]))
                view._array, view._node = seen._array, seen._node
                view._view, view._made, view._version = seen._view, seen._made, seen._version
                view._version.append(ref(view))
                _note(of.tracer, view)

    def _shown(self) -> Tensor:
        return self if self.of is None else self.of.array

    # -- what needs no elements

    def _applied(self, op: Op, args: Sequence[Any], params: dict[str, Any]) -> Tensor | None:
        if self.of is None or current_interpreter() is not self.of.tracer:
            return None
        of_elements = op.kind in ("elementwise", "opaque") and op.element_map == "broadcast"
        if of_elements and not (op.variadic or op.results or op.fails or op.version):
            return _elementwise(op, args, params)
        return _reduced(self.of, op, params) if op.kind == "reduction" and len(args) == 1 else None

    def _part(self, key: Any) -> Tensor | None:
        """The elements that a mask of them chooses, or the part that a basic key gives that leaves their axis whole."""
        of = self.of
        if of is None or current_interpreter() is not of.tracer:
            return None
        if type(key) is int or type(key) is IntProxy or is_step(key):
            return self._element(key)
        inner = key.of if issubclass(type(key), Selection) else None
        if inner is not None:
            if not inner.is_flat or inner.array.dtype.kind != "b" or of.lead or inner.mask._array is not of.mask._array:
                return None
            both = _and.fn(of.mask, inner.array)
            _check_same(of.tracer, both)
            of_both = replace(of, mask=both, recorded=not grad_is_off(), is_safe=False, found=[])
            of_both.make = lambda: _elements(of)[inner.elements()]
            return _waiting(of_both)
        if not of.is_slice(key):
            return None
        array = of.array[(_WHOLE,) * of.mask.ndim + key[1:]]
        part = replace(of, array=_present(of.tracer, array), recorded=not grad_is_off(), found=[])
        part.make = lambda: _elements(of)[key]
        made = _waiting(part)
        made.parent = self, key
        self.views.append(ref(made))
        return made

    def _over(self, x: Tensor, mask: Tensor, lead: int) -> tuple[Tensor, Tensor] | None:
        """The mask as it is now, and what `x[mask] = self` writes there, if it is the mask of the selection."""
        of = self.of
        if of is None or mask._array is not of.mask._array or of.tracer is not current_interpreter():
            return None
        if of.rest != x.ndim - lead - mask.ndim or of.lead > lead:
            return None
        return (of.over(), of.array) if _fits(of.array.shape, x.shape) else None

    def late(self) -> tuple[Callable[..., Any], tuple[Any, ...]] | None:
        """The function that makes the tensor when a call ends, and its arguments; None where it has a history, or is in
        one memory with another."""
        of = self.of
        if of is None or self.parent is not None or any(r() is not None for r in self.views) or of.tracer.frames:
            return None
        has_history = of.recorded and of.array._node is not None
        return None if has_history or of.lead or place_of(of.array) is not None else (_chosen_of, (of.array, of.mask))

    def unrecorded(self) -> Selection:
        """The selection, which waits, without history."""
        of: Any = self.of
        bare = replace(of, array=of.tracer.wrap(of.array._array), found=[])
        bare.make = lambda: of.elements().detach()
        return _waiting(bare)

    def _pending(self) -> Tensor | None:
        """The selection as it is now, for an update in place which may wait as well."""
        of = self.of
        frames = () if of is None else of.tracer.frames
        here = frames[-1] if frames else None
        if of is None or self.parent is not None or here is not self.frame or any(r() is not None for r in self.views):
            return None
        return _waiting(of) if of.tracer is current_interpreter() else None

    def _take(self, value: Tensor) -> bool:
        """Becomes another selection in place, if it is one by the same mask, of the same type."""
        of, new = self.of, getattr(value, "of", None)
        if of is None or new is None or not new.has_mask_of(of):
            return False
        silent = grad_is_off() and (of.array._node is not None or new.array._node is not None)
        if silent or new.array.shape != of.array.shape or new.array.dtype is not of.array.dtype:
            return False
        of.tracer.marked.check(self)
        self.of = new
        stamp(self)
        return True


def _chosen_of(array: Tensor, mask: Tensor) -> Tensor:
    """The elements that a call returns."""
    return array[mask]


def settle_shared(tracer: Any, leaves: Sequence[Any]) -> None:
    """Asks for selections that are among leaves twice; raises StepByStep for elements, which are views, beside them."""
    for leaf in leaves:
        if issubclass(type(leaf), Selection) and sum(leaf is other for other in leaves) > 1:
            leaf.settle()
    families: dict[int, set[int]] = {}  # the leaves in one memory
    for group, _, apart in tracer.marked.groups:
        if COUNTED in apart:
            places = {memory_of(t) for r in group if (t := r()) is not None}
            found = families.setdefault(id(group[-1]), set())
            found |= {id(t) for t in leaves if issubclass(type(t), Traced) and memory_of(t) in places}
            if len(found) > 1:
                raise StepByStep(None, "elements that a mask chooses are returned as views", (COUNTED,))


def _waiting(of: Chosen) -> Selection:
    made: Selection = of.tracer.selection()
    made.of, made.frame, made.parent, made.views = of, next(reversed(of.tracer.frames), None), None, []
    made.front, made._version = None, 0
    return made


def check_counted(tracer: Any) -> None:
    """Raises StepByStep where a step asks for elements whose number is an int of data: lengths are asked for then."""
    if tracer.counted and tracer.loops:
        raise StepByStep(None, "a step asks for elements that a mask chooses", (COUNTED,))


def selected(
    x: Tensor, mask: Tensor, lead: int, part: Callable[[Tensor], Tensor], select: Callable[[Tensor, Tensor], Tensor]
) -> Tensor | None:
    """A selection of the values that x and the mask have now; None where no tracer is on top. The mask is for axes of
    `part(x)` from `lead` on; `select` gives the elements."""
    tracer: Any = current_interpreter()
    if getattr(tracer, "selection", None) is None or not all(issubclass(type(t), tracer.cls) for t in (x, mask)):
        return None
    recorded, tracer.may_be_slower = not grad_is_off(), True  # what the mask leaves out is computed
    x, mask = _present(tracer, x), _present(tracer, mask)
    _check_same(tracer, mask)
    array = part(x)
    if array.shape[lead : lead + mask.ndim] != mask.shape or place_of(array) != place_of(mask):
        return None
    return _waiting(Chosen(tracer, _present(tracer, array), mask, lead, lambda: select(x, mask), recorded))


def chosen_by(tracer: Any, array: Tensor, mask: Tensor, make: Callable[[], Tensor]) -> Selection:
    """The selection of rows that an array has now, of which `make` gives the elements."""
    return _waiting(Chosen(tracer, _present(tracer, array), mask, 0, make, False))


def _check_same(tracer: Any, mask: Tensor) -> None:
    """Refuses a mask that may differ from element to element of a `vmap`, which is an error."""
    if tracer.stages is not None:
        tracer.stages.check_asked(mask._array, "x[mask]")


def _note(tracer: Any, t: Selection) -> None:
    """Notes a tensor where it was made: in a region, or in the program around all of them."""
    if t.frame is not None:
        t.frame.tensors[id(t)] = ref(t)
    else:
        tracer.made.append(ref(t))


def _present(tracer: Any, t: Tensor) -> Tensor:
    """The tensor as it is now, whatever is written to it later."""
    now: Tensor = tracer.wrap(t._array, t.is_number)
    now._node = None if grad_is_off() else t._node
    return now


def _elements(of: Chosen) -> Tensor:
    """The elements as they are now."""
    return _present(of.tracer, of.elements())


def _elementwise(op: Op, args: Sequence[Any], params: dict[str, Any]) -> Tensor | None:
    """An elementwise function of selections by one mask, and of what is the same for all elements."""
    values = [tensor_of(a) for a in args]
    chosen = [v.of for v in values if issubclass(type(v), Selection) and v.of is not None]
    first, tracer = chosen[0], chosen[0].tracer
    if not all(c.has_mask_of(first) for c in chosen):
        return None
    operands, elements, leads = list[Any](), list[Callable[[], Any]](), [c.lead for c in chosen]
    for v in values:
        of = v.of if issubclass(type(v), Selection) else None
        if of is not None:
            operands.append(of.given())
            elements.append(of.elements)
        elif not hasattr(v, "shape") or type(v) is np.generic:
            operands.append(v)
            elements.append(partial(_itself, v))
        else:
            t = _present(tracer, tracer.lift(v))
            wide = _beside(first, t)
            if wide is None or (t.is_number and t._node is not None):
                return None
            operands.append(first.safe(wide))
            elements.append(partial(_itself, t))
            leads.append(t.ndim - first.rest - 1)
    try:
        broadcast(op.name, *(Aval(t.shape, t.dtype) for t in operands if issubclass(type(t), Tensor)))
        array = op.fn(*operands, **params)
    except _REFUSALS:
        return None
    make = partial(_applied_to, op, elements, params)
    return _waiting(Chosen(tracer, array, first.mask, max(leads), make, not grad_is_off(), True))


def _itself(value: Any) -> Any:
    return value


def _applied_to(op: Op, elements: Sequence[Callable[[], Any]], params: dict[str, Any]) -> Tensor:
    found: Tensor = op.fn(*[make() for make in elements], **params)
    return found


def _beside(of: Chosen, t: Tensor) -> Tensor | None:
    """An operand that is the same for all elements, as one that broadcasts with the array."""
    more = t.ndim - of.rest - 1
    if more < 0:
        return t
    if type(t.shape[more]) is not int or t.shape[more] != 1:
        return None
    found: Tensor = _reshape.fn(t, t.shape[:more] + (1,) * of.mask.ndim + t.shape[more + 1 :])
    return found


def _reduced(of: Chosen, op: Op, params: dict[str, Any]) -> Tensor | None:
    """A reduction: over the elements, or of each along other axes."""
    if "axis" not in params or op.results:
        return None
    empty, axis, keepdims = of.empty(), params["axis"], bool(params.get("keepdims"))
    try:
        axes = axes_tuple(op.name, axis, empty)
        inner = of.axes(axes)
        if of.lead not in axes:
            along = inner[0] if type(axis) is int else inner
            array = op.fn(of.given(), **{**params, "axis": along})
            lead = of.lead - (0 if keepdims else sum(k < of.lead for k in axes))
            make = partial(_applied_to, op, [of.elements], params)
            return _waiting(Chosen(of.tracer, array, of.mask, lead, make, not grad_is_off(), True))
        if op.over_mask is None:
            return None
        others = {name: value for name, value in params.items() if name not in ("axis", "keepdims")}
        if text := _error_of(op, empty, params):
            if place_of(of.array) is not None:
                return None
            _some.fn(_any.fn(of.mask), text=text)
        found: Tensor = op.over_mask(of.array, of.over(), axis=inner, **others)
    except _REFUSALS:
        return None
    return _reshape.fn(found, reduced(empty.shape, axes, True)) if keepdims else found


def _error_of(op: Op, empty: Aval, params: dict[str, Any]) -> str:
    """Returns the text of the error of a reduction over no elements; empty where it has none."""
    try:
        op.infer_from([empty], op.canonical_params([empty], params))
    except ShapeError as error:
        return str(error)
    return ""


def _fits(shape: Sequence[Any], into: Sequence[Any]) -> bool:
    try:
        return broadcast("index", *(Aval(tuple(s), bool_) for s in (shape, into))) == tuple(into)
    except ShapeError:
        return False
