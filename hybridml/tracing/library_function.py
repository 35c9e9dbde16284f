"""Calls of library functions: a signature is looked up in a dict, and what is found there is one native call.

    shapes, dtypes, options --known--> native call --(where a gradient is wanted)--> tape node --> native backward

A function of the library runs compiled whatever its sizes: the choice of the kernel depends on the call's own
signature, so a result never depends on what ran before. Measured on 32x32 float32: softmax 23 us operation by
operation, 1.1 here.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from hybridml_compiler import dtypes
from hybridml_compiler.compile_policy import COMPOSITE as LARGE
from hybridml_compiler.compile_policy import LISTED, MOST, WORTH, known_or_made
from hybridml_compiler.config import is_deterministic
from hybridml_compiler.graph import ir
from hybridml_compiler.ops.table import OPS
from hybridml_compiler.record import record

from ..core import pytree
from ..core.autodiff.tape import Leaf, Node, is_node, kept_by, make_node, parents_of, stale, stamp_of
from ..core.context import at_place, current_interpreter, enable_grad, grad_is_off, place_beside, watch_var
from ..core.interpreter import interpreter_stack
from ..core.library import MISS, missed
from ..core.source_location import here
from ..core.spellings import other_names
from ..core.tensor import CPU, Tensor, like, place_var, wrap
from .capture.memory_order import memory_order
from .function import TracedFunction
from .library_call import first_of, has_other_bits, native_call
from .library_duals import Duals, forward_alone
from .run.native_program import Given, Native, is_plain, native_of
from .run.program import Program
from .run.recorded_call import Recorded, Stateful
from .specialize.errors import CheckFailed, RunEagerly, TraceFailed

_MOST_RECENT = 8  # signatures that are tried one after the other, 0.1 us each, before one is looked up in 2 us
_WORTH_LARGE = 3  # calls from which a pull of large arrays is compiled
_MOST_KNOWN = 1 << 12  # signatures of one function; a program with more starts over
_FEW_LAUNCHES = 3  # operations on a device that are worth a program
_NAMES = {True: "yes", False: "no"}  # 1 equals True
_TILED = ("contraction", "convolution")  # whose sums are in another order where sizes are symbols
_EMPTY = inspect.Parameter.empty
_PLAIN = (int, str, type(None))


def _by_operation(*given: Any) -> Any:
    """Stands for the call of small arrays that is not one native call."""
    return MISS


def _one_too_many(*given: Any) -> Any:
    """Stands for the call of a signature for which the function has no program left."""
    return MISS


_NO_CALL = (missed, _by_operation, _one_too_many)


class LibraryFunction:
    """A library function, its signatures and their calls."""

    def __init__(
        self,
        fn: Callable[..., Any],
        dynamic: bool = False,
        work: int = 1,
        exact: bool = False,
        row: bool = False,
        small: bool = False,
        count: int | None = None,
        least: int = 0,
        sizes: Mapping[str, Sequence[int]] | None = None,
    ) -> None:
        """The arguments are those of `core.library.compiled`. `count`: of arguments, if no signature says it. `least`:
        operations that are worth a program."""
        self.fn, self.dynamic, self.work, self.row, self.small = fn, dynamic, work, row, small
        self.waiting: dict[Any, int] | None = {} if exact else None  # calls of signatures that have none yet
        self.least, self.worth = least, True
        self.name = getattr(fn, "__name__", "")
        parameters = [] if count is not None else list(inspect.signature(fn).parameters.values())
        self.names = [p.name for p in parameters] if count is None else [""] * count
        self.sizes = {self.names.index(name): axes for name, axes in (sizes or {}).items()}
        self.others = other_names(self.name, self.names)
        self.only_by_name = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
        self.positional = len(self.names) - len(self.only_by_name)
        self.defaults = [p.default for p in parameters] if count is None else [_EMPTY] * count
        self.looks = False  # at the values of its floats
        self.known: dict[Any, Native] = {}
        self.programs: dict[Any, Program] = {}  # of these
        self.directs: dict[Any, Native] = {}  # their calls with the arguments as given, by signature and form
        self.recent: dict[Any, tuple[Native, ...]] = {}  # the last of them, by form
        self.direct: Native = missed  # one of these, of a call without keywords
        self.forms: dict[Any, Native] = {}  # and of each form of a call with keywords, (arguments by place, *names)
        self.traced: dict[Any, TracedFunction[Any, Any]] = {}
        self.inner: dict[pytree.Structure, LibraryFunction] = {}  # by the lists and tuples among the arguments
        self.lists: dict[Any, LibraryFunction] = {}  # those of one list and scalars after it, by its class and lengths
        self.duals = Duals(self)
        # For large arrays beside what native code does not take, and for devices; few operations are as fast there.
        self.whole: dict[bool, TracedFunction[Any, Any]] = {}
        self.is_few = False

    def values(self, args: Given, kwargs: dict[str, Any]) -> Sequence[Any] | None:
        """A value for each parameter; None where the call does not fit them."""
        if len(args) > self.positional:
            return None
        values = [*args, *self.defaults[len(args) :]]
        for name, value in kwargs.items():
            own = self.others.get(name, name)
            k = self.names.index(own) if own in self.names and (own is name or own not in kwargs) else -1
            if k < len(args):
                return None
            values[k] = value
        return None if any(v is _EMPTY for v in values[len(args) :]) else values

    def call(self, args: Given, kwargs: dict[str, Any]) -> Any:
        """The result of a call. Not `__call__`: what a decorator's function keeps and can call counts as the user's."""
        if place_var.get() is not None and place_beside((*args, *kwargs.values())) == CPU.type:
            return at_place(CPU.type, lambda: self.call(args, kwargs))
        values = args
        form = (len(args), *kwargs)
        if kwargs or len(args) != len(self.names):
            found = self.values(args, kwargs)
            if found is None:
                return self.fn(*args, **kwargs)  # with Python's own error
            values = found
        if self.is_strided_row(values) or self.is_long_list(values) or self.is_counted():
            return self.eager(values)
        found = self.signature(values)
        if found is None:
            kinds = [type(v) for v in values]
            lists = any(kind is list or (issubclass(kind, tuple)) for kind in kinds)
            return self.unpacked(args, kwargs, values) if lists else self.beside(args, kwargs)
        key, given = found
        out = self.tried(key, (*args, *kwargs.values()) if kwargs else args, values, given, form)
        if out is not MISS:
            return out
        call = self.known.get(key)
        if call is None or call is _by_operation or call is _one_too_many:
            out = self.eager(values)
            return out if call is not None or self.row else self.guarded(out, key, values, given)
        return self.general(values, given)

    def guarded(self, out: Any, key: Any, values: Sequence[Any], given: Given) -> Any:
        """The result of a call that came before its program: its history refuses what that of the program will.

        Operation by operation a leaky_relu keeps a mask, and its program the input. Without this, an input that is
        overwritten before the backward would be an error from the call that is compiled on only.
        """
        if type(out) is not Tensor or not is_node(out._node) or out._version or any(out is v for v in given):
            return out
        out._node = make_node(_pull_guarded, out._array.shape, [out._node], self, here(), key, values, given)
        return out

    def refuse_overwritten(self, node: Node) -> None:
        """Raises where an input was written to that the program of the call keeps."""
        _, place, key, values, given = kept_by(node)
        versions = [t._version if type(t) is Tensor else 0 for t in given]
        made = stamp_of(node)
        written = [k for k, v in enumerate(versions) if (v[0] if type(v) is list else v) > made]
        if not written:
            return
        with enable_grad():  # a backward runs without, and the call did not
            call = self.known.get(key) or self.make(key, values, given)
        for k in written:
            if isinstance(call, Recorded) and k in call.kept:
                stale(self.name, f"input {call.program.nodes[k].name}", versions[k], node, place)

    def is_strided_row(self, values: Sequence[Any]) -> bool:
        """Whether a call is one operation on memory with gaps or in another order, which NumPy does as it is."""
        if not self.row or len(values) > 2:
            return False
        return any(type(v) is Tensor and not v._array.flags.c_contiguous for v in values)

    def is_counted(self) -> bool:
        """Whether operations are counted, which are not to depend on what has been compiled by now."""
        watching = None if self.waiting is None else watch_var.get()
        return watching is not None and watching.count is not None

    def is_long_list(self, values: Sequence[Any]) -> bool:
        """Whether a call is of more tensors than it is worth to make a program for."""
        return self.small and any(type(v) in (list, tuple) and len(v) >= LISTED for v in values)

    def signature(self, values: Sequence[Any]) -> tuple[tuple[Any, ...], list[Any]] | None:
        """The key of a call, and what is no part of it; None where there is an argument of another kind."""
        key: list[Any] = [dtypes.default_float()]
        given: list[Any] = []
        strided: list[Any] = []
        recorded = False
        for value, default in zip(values, self.defaults, strict=True):
            kind = type(value)
            if kind is Tensor:
                array = value._array
                if value._node is None or self.row:
                    key += (array.shape, array.dtype)
                else:
                    key += (array.shape, array.dtype, True)
                    recorded = True
                if not array.flags.c_contiguous:
                    one = self.is_one(value)
                    strided.append((len(given), "one" if one else memory_order(array)))
                    value = like(value, array[(0,) * array.ndim + (...,)]) if one else value
                given.append(value)
            elif kind is float:
                if self.looks or value is default:  # a default is a constant: programs for it are simpler
                    key.append((kind, value.hex()))
                else:
                    key.append(kind)
                    given.append(value)
            elif kind in _PLAIN:
                key.append(value)
            elif kind is bool:
                key.append(_NAMES[value])
            elif _is_static(value) or issubclass(kind, np.dtype):
                key.append(value)
            else:
                return None
        if recorded:
            key.append(grad_is_off())
        if strided:
            key.append(tuple(strided))
        return tuple(key), given

    def tried(self, key: tuple[Any, ...], args: Given, values: Sequence[Any], given: Given, form: Any) -> Any:
        """The result of the native call of a signature; MISS where there is none, or it takes no such call now."""
        call = self.known.get(key)
        if call is None or (call is _one_too_many and is_deterministic()):
            if self.waiting is not None and self.waits(key, values):
                return MISS
            call = self.make(key, values, given)
            if call is None:
                again = self.signature(values)
                assert again is not None
                return self.tried(again[0], args, values, again[1], form)
        if call in _NO_CALL:
            return MISS
        direct = self.directs.get((key, form))
        if direct is None:
            direct = self.directs[key, form] = self.direct_of(key, args, given, form)
        recent = self.recent.get(form, ())
        if direct is not missed and direct not in recent:
            recent = self.recent[form] = (direct, *recent[: _MOST_RECENT - 1])
            first = direct if len(recent) == 1 else first_of(recent)
            if len(form) == 1:
                self.direct = first
            else:
                self.forms[form] = first
        return call(*given)

    def direct_of(self, key: Any, args: Given, given: Given, form: Any) -> Native:
        """The native call of a signature with the arguments in the form of a call; `missed` where it takes more."""
        found, program = self.known[key], self.programs.get(key)
        if any(map(self.is_one, args)):
            return missed
        order = [*range(form[0]), *(self.names.index(self.others.get(name, name)) for name in form[1:])]
        if program is None or order != sorted(order):
            return missed
        places = [k for k, (a, j) in enumerate(zip(args, order, strict=True)) if self.is_input(a, self.defaults[j])]
        # Of a row its caller records the history, where that needs no parameters in their canonical form.
        histories = self.least > 0 or len(places) == len(args) if self.row else None
        if type(found) is Stateful:
            return found.direct(program, given, args, places)
        if type(found) is Recorded and type(found.run) is not Stateful and not found.captured:
            native = native_of(program, given, args, places, histories)
            return found.direct(native, places) if is_plain(native) else missed
        if not is_plain(found):
            return missed
        native = native_of(program, given, args, places, histories)
        return native if is_plain(native) else missed

    def of_row(self, args: Sequence[Any]) -> Any:
        """The result of a call, or MISS: for rows, which know what else to do."""
        found = self.signature(args)
        return MISS if found is None else self.tried(found[0], args, args, found[1], (len(args),))

    def made(self, args: Sequence[Any]) -> tuple[Native, Native]:
        """For a signature of a row: the native call of its tensors, and that of its arguments."""
        self.looks = True  # at its parameters
        found = self.signature(args)
        if found is None:
            return missed, missed
        key, given = found
        call = self.known.get(key) or self.make(key, args, given)
        assert call is not None
        if call in _NO_CALL:
            return missed, missed
        return call, self.direct_of(key, args, given, (len(args),))

    def waits(self, key: Any, values: Sequence[Any]) -> bool:
        """Whether a signature has not come often enough to be worth a program."""
        assert self.waiting is not None
        if len(self.waiting) >= _MOST_KNOWN:
            self.waiting.clear()
        calls = self.waiting[key] = self.waiting.get(key, 0) + 1
        if self.small:
            return calls < WORTH or self.is_large(values)
        return calls < (WORTH if not self.is_large(values) else _WORTH_LARGE if self.least else 1)

    def unpacked(self, args: Given, kwargs: dict[str, Any], values: Sequence[Any]) -> Any:
        """A call with lists and tuples, as one with their items."""
        leaves: list[Any] = []
        structure = pytree.flatten(tuple(values), leaves, {})
        if any(isinstance(leaf, list | tuple) for leaf in leaves):
            return self.beside(args, kwargs)
        inner = known_or_made(self.inner, structure, MOST, lambda: self.of_leaves(structure, len(leaves)))
        if inner is None:
            return self.beside(args, kwargs)
        first, *rest = structure.children
        one = first.kind in (list, tuple) and all(child is pytree.LEAF for child in (*first.children, *rest))
        named = self.names[len(args) : self.positional]
        if one and self.waiting is not None and [*kwargs] == named[: len(kwargs)]:
            self.lists[first.kind, len(first.children), len(args) + len(kwargs)] = inner
            if kwargs:
                self.forms[(len(args), *kwargs)] = self.of_list
            else:
                self.direct = self.of_list
        return inner.call(leaves, {})

    def of_leaves(self, structure: pytree.Structure, count: int) -> LibraryFunction:
        """The function of what lists and tuples of this structure hold."""

        def over(*leaves: Any) -> Any:
            return self.eager(pytree.unflatten(structure, leaves))

        over.__name__ = self.name
        offsets = list(itertools.accumulate(map(_leaves, structure.children), initial=0))
        return self.of_places(over, count, {offsets[k]: k for k in self.sizes})

    def of_places(self, fn: Callable[..., Any], count: int, places: Mapping[int, int]) -> LibraryFunction:
        """A function made of this one. `places`: of its `count` arguments, which parameter here each is."""
        found = LibraryFunction(fn, self.dynamic, self.work, self.waiting is not None, False, self.small, count)
        found.sizes = {at: self.sizes[k] for at, k in places.items() if k in self.sizes}
        return found

    def of_list(self, *args: Any) -> Any:
        """A call of a list of as many tensors, and of scalars, as one that came before; or MISS."""
        if not args or not isinstance(args[0], list | tuple) or interpreter_stack() is not None:
            return MISS
        inner = self.lists.get((type(args[0]), len(args[0]), len(args)))
        if inner is None:
            return MISS
        leaves = (*args[0], *args[1:], *self.defaults[len(args) :])
        out = inner.direct(*leaves)
        if out is not MISS:
            return out
        found = inner.signature(leaves)
        if found is not None:
            out = inner.tried(found[0], leaves, leaves, found[1], (len(leaves),))
        return self.fn(*args) if out is MISS else out

    def beside(self, args: Given, kwargs: dict[str, Any]) -> Any:
        """A call with an argument that native code does not take."""
        forward = forward_alone()
        if forward is not None:
            out = self.duals.call(forward, args, kwargs)
            if out is not MISS:
                return out
        place = place_beside((*args, *kwargs.values())) or CPU.type
        return at_place(place, lambda: self.together(args, kwargs))

    def together(self, args: Given, kwargs: dict[str, Any]) -> Any:
        """A call as one program where that is worth it: of large arrays, and on a device, where operations are
        launches."""
        there = place_var.get() is not None
        if current_interpreter() is not None or (self.row or self.is_few if there else self.small):
            return self.fn(*args, **kwargs)
        if not there and not self.is_large(args):
            return self.fn(*args, **kwargs)
        run = self.whole.get(there)
        if run is None:
            dynamic = self.dynamic and not there
            run = self.whole[there] = TracedFunction(self.fn, most=MOST, silent=True, dynamic=dynamic)
            out, path = run(*args, **kwargs), run.last_path
            self.is_few = there and path is not None and len(_operations(path.program.graph)) < _FEW_LAUNCHES
            return out
        return run(*args, **kwargs)

    def eager(self, values: Sequence[Any]) -> Any:
        by_name = dict(zip(self.only_by_name, values[self.positional :], strict=True))
        return self.fn(*values[: self.positional], **by_name)

    def general(self, values: Sequence[Any], given: Given) -> Any:
        """A call that the native one does not take: in another trace, beside another thread, of strided memory."""
        traced = self.program(values)
        read_only = any(type(v) is Tensor and not v._array.flags.writeable for v in given)  # it may be updated
        if traced is None or read_only or current_interpreter() is not None:
            return self.eager(values)
        return traced(*given)

    def is_large(self, values: Sequence[Any]) -> bool:
        """Whether an argument is large, or a shape of what is to be made; of those with stated sizes, if there are any:
        the weights of a linear map are large beside one row, for which a program for all sizes is as fast."""
        return any(
            (v._array.size if type(v) is Tensor else math.prod(v) if _is_shape(v) else 0) * self.work >= LARGE
            for k, v in enumerate(values)
            if not self.sizes or k in self.sizes
        )

    def is_input(self, value: Any, default: Any) -> bool:
        """Whether an argument comes with the call, and is no part of its signature."""
        return type(value) is Tensor or (type(value) is float and not self.looks and value is not default)

    def is_one(self, value: Any) -> bool:
        """Whether a tensor is one number seen as many, as the cotangent of a sum is; pulls are given the number."""
        return self.least > 0 and type(value) is Tensor and value._array.ndim > 0 and not any(value._array.strides)

    def static(self, value: Any, default: Any) -> Any:
        """The part of an argument that a program is made for."""
        if not self.is_input(value, default):
            return value
        return _Seen(value._array.shape) if self.is_one(value) else _GIVEN

    def program(self, values: Sequence[Any]) -> TracedFunction[Any, Any] | None:
        """The function of tensors and floats that these other arguments make of it; None where it has too many."""
        statics = tuple([self.static(v, d) for v, d in zip(values, self.defaults, strict=True)])
        large = self.is_large(values)
        key = (large, *[(type(v), repr(v)) for v in statics])
        return known_or_made(self.traced, key, MOST, lambda: self.traced_of(statics, large))

    def traced_of(self, statics: tuple[Any, ...], large: bool) -> TracedFunction[Any, Any]:
        fn, positional, names = self.fn, self.positional, self.only_by_name

        @functools.wraps(fn)
        def over(*given: Any) -> Any:
            rest = iter(given)
            every = [
                next(rest) if v is _GIVEN else v.of(next(rest)) if type(v) is _Seen else v for v in statics
            ]  # fmt: skip
            return fn(*every[:positional], **dict(zip(names, every[positional:], strict=True)))

        del over.__wrapped__
        traced = TracedFunction(over, most=MOST, silent=True, dynamic=self.dynamic or not large)
        if self.sizes and not large:
            places = [k for k, v in enumerate(statics) if v is _GIVEN]
            traced.state_sizes({j: self.sizes[k] for j, k in enumerate(places) if k in self.sizes})
        return traced

    def make(self, key: Any, values: Sequence[Any], given: Given) -> Native | None:
        """The call for a signature, looked up from now on; None where floats are part of the signature from now on."""
        if current_interpreter() is not None:
            return missed
        if len(self.known) >= _MOST_KNOWN:
            self.forget()
        traced, off = self.program(values), self.row or grad_is_off()
        if traced is None:
            self.known[key] = _by_operation
            return _by_operation
        inputs = [_stand_in(v, off) for v in given]
        try:
            call = traced.known(tuple(inputs), {})
            if call is not None and call.entry.drawn and self.sizes:  # as many numbers as come is no native call
                traced.clear()
                traced.keep_sizes()
                call = traced.known(tuple(inputs), {})
        except (Exception, CheckFailed, RunEagerly, TraceFailed):  # the long way raises what the function raises
            return missed
        if call is None:
            self.known[key] = _one_too_many
            return _one_too_many
        nodes = _operations(call.path.program.whole)
        if len(nodes) < self.least or (self.least and all(node.op.is_view for node in nodes if node.op is not None)):
            self.worth = False
            return missed
        if not self.dynamic and not self.sizes and any(node.kind in _TILED for node in nodes):
            traced.keep_sizes()
        if call.entry.root is not call.path and not self.looks and float in map(type, given):
            self.looks = True
            self.forget()
            self.traced.clear()
            return None
        recorded = not off and any([o._node is not None for o in call.path.program.outputs])
        if self.waiting is not None and any(has_other_bits(n, recorded) for n in call.path.program.graph.nodes()):
            self.worth = not self.least  # pulls of other shapes will have other bits, too
            found = None
        else:
            found = native_call(call, inputs, given, off)
        found = found or (missed if self.is_large(values) else _by_operation)
        self.known[key] = found
        self.programs[key] = call.path.program
        return found

    def forget(self) -> None:
        """Lets go of all native calls."""
        self.known.clear()
        self.programs.clear()
        self.directs.clear()
        self.forms.clear()
        self.recent.clear()
        self.direct = missed


def _operations(graph: ir.Graph) -> list[ir.Node]:
    return [node for node in graph.nodes() if node.op is not None]


def _leaves(structure: pytree.Structure) -> int:
    """The number of leaves."""
    return 1 if structure == pytree.LEAF else sum(map(_leaves, structure.children))


def _is_shape(value: Any) -> bool:
    return type(value) is tuple and all(type(n) is int for n in value)


def _is_static(value: Any) -> bool:
    """Whether a value is a tuple of integers, or of such tuples."""
    return type(value) is tuple and all(type(n) is int or _is_static(n) for n in value)


def _pull_guarded(g: Tensor, node: Node) -> Any:
    kept_by(node)[0].refuse_overwritten(node)
    return ((parents_of(node)[0], g),)


class _Given:
    """Stands for an argument that comes with the call."""


_GIVEN = _Given()


@record
class _Seen:
    """Stands for a number that comes with the call, seen as a tensor of a shape."""

    shape: tuple[int, ...]

    def of(self, number: Tensor) -> Tensor:
        seen: Tensor = OPS["broadcast_to"].fn(number, self.shape)
        return seen


def _stand_in(value: Any, off: bool) -> Any:
    """The value that a function is traced with: a tensor of this memory, a leaf where a gradient is wanted."""
    if type(value) is not Tensor:
        return value
    t = wrap(value._array)
    if value._node is not None and not off:
        t._node = Leaf(value._array.shape, value._array.dtype)
    return t
