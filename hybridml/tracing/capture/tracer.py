"""The tracing interpreter: a function runs once with tensors that hold graph nodes instead of arrays.

Everything that the function reaches from outside becomes an input of the graph: arguments, and tensors and arrays found
in closures, modules, optimizers and generators ("captured", by identity). Each is represented by a *shadow*, a traced
tensor that takes every in-place update and every `.grad`; the real tensor is not touched until the compiled call. So a
trace that raises has changed nothing, and what a shadow holds at the end says what must be written back.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import field
from types import CodeType
from typing import Any, Protocol
from weakref import ReferenceType, ref

import numpy as np

from hybridml_compiler import dtypes, time_limit
from hybridml_compiler.aval import CPU, Aval
from hybridml_compiler.errors import TraceError, user_location
from hybridml_compiler.graph import ir
from hybridml_compiler.graph.checks import behind, fails
from hybridml_compiler.graph.facts import may_fail
from hybridml_compiler.hooks import hooks
from hybridml_compiler.locks import rlock
from hybridml_compiler.ops.movement import inverse
from hybridml_compiler.ops.op import Op
from hybridml_compiler.ops.table import OPS
from hybridml_compiler.record import record
from hybridml_compiler.targets.device import out_of_reach

from ...core.autodiff.sparse import SparseGradient
from ...core.autodiff.tape import Leaf, is_node
from ...core.interpreter import Reading, interpret, interpreter_stack
from ...core.proxies.integer import IntProxy
from ...core.proxies.scalar import ScalarProxy
from ...core.tensor import Tensor, adopt, leaked, place_of, place_var, wrap
from ..python_state.names import Names
from ..python_state.scalar_source import ScalarSource
from ..rolling.code_loops import loop_around, unrolled
from ..specialize.errors import TakesLong, refused
from ..specialize.held_gradient import form_of, held_gradient, parts_of, with_parts
from ..specialize.symbolic_shapes import Sized
from .alias_layout import Layouts
from .loops.one_memory import Marked
from .loops.taken import raises_in_vain, where_taken
from .memory_order import Order, memory_order
from .number_bounds import answer_of, is_divisor, of_steps
from .numbers.perhaps import check_alike
from .numbers.results import class_of
from .returned import is_returned
from .selection import Selection, selected
from .traced_tensor import ShadowLeaf, Traced, Weak, is_number

_astype, _full, _pow, _python_power = OPS["astype"], OPS["full"], OPS["pow"], OPS["python_power"]


@record(frozen=False, eq=False)
class Input:
    """An input of the graph, and where a call finds its array."""

    # "argument" (leaf `index` of the call), "held" (a captured tensor), "array" (a NumPy array), "grad", "scalar" (a
    # captured one, see python_state/captured_scalars.py)
    kind: str
    index: int
    real: Any  # the tensor or array at trace time; None once the trace is done where each call brings its own
    node: ir.Node  # the array as it lies in memory
    shadow: Traced
    start: ir.Node  # the value of the shadow before the program updates it
    order: Order | None = None  # axes of the real array in the order of its memory
    owner: Input | None = None  # of a "grad": the input whose gradient it is
    wants: bool = False  # the real tensor requires grad
    recorded: bool = False  # it is an inner tensor of a history outside
    scalar: ScalarSource | None = None
    leaf: Leaf | None = None  # the shadow's own leaf (an update in place may give the shadow another history)
    is_integer: bool = False  # a Python int (see python_state/promoted_ints.py)


MOST_STEP_BY_STEP = 50_000  # operations: some 85 us each, where two cores have nothing else to do
ReadValue = Callable[[ir.Node, str], np.ndarray]


@record(frozen=False, eq=False)
class Frame:
    """Record of the region that a tracer captures: nodes, checks, tensors, writes. What nobody holds is not kept: a
    view of an array is made anew with every update of that."""

    since: int  # the clock: histories that are older come from outside
    made: set[ir.Node] = field(default_factory=set)
    checks: dict[ir.Node, None] = field(default_factory=dict)  # what may raise, in the order of the program
    tensors: dict[int, ReferenceType[Tensor]] = field(default_factory=dict)  # that were made inside, by id
    written: dict[int, tuple[Tensor, Any, Any]] = field(default_factory=dict)  # with value and history before

    def has_made(self, t: Tensor) -> bool:
        found = self.tensors.get(id(t))
        return found is not None and found() is t


class LineObserver(Protocol):
    """Observer that is told of every operation that a trace captures (see line_observer.py)."""

    def see(self, tracer: Tracer, until: CodeType) -> None: ...


class Tracer:
    """The interpreter while a function is traced. See `dispatch.slow` for who calls it.

    `nodes`: the inputs that earlier traces of the same entry have made, by what they stand for. Equal operations on
    equal nodes are one node, so what two paths have in common is known to be that.
    """

    def __init__(
        self, name: str, nodes: dict[Any, ir.Node] | None = None, sized: Sized | None = None,
        names: Names | None = None, silent: bool = False,
    ) -> None:  # fmt: skip
        self.name, self.names, self.silent = name, names, silent
        self.guards = None if sized is None else sized.guards
        self.shapes = {} if sized is None else sized.pattern.shapes  # of arguments with symbolic sizes
        space = {"__slots__": (), "__module__": "hybridml", "made_by": name, "_selected": staticmethod(selected)}
        space["__iter__"] = _iterate
        self.cls: type[Traced] = type("Tensor", (Traced,), dict(space))
        self.number: type[Weak] = type("Tensor", (Weak, self.cls), dict(space))
        self.inputs: list[Input] = []
        self.selection: type[Selection] = type("Tensor", (Selection, self.cls), dict(space))
        self.strong: type[Traced] = type("Tensor", (self.cls,), space | {"was_number": True})
        self.strong_double: type[Traced] = type("Tensor", (self.strong,), space | {"was_double": True})
        self.double: type[Weak] = type("Tensor", (self.number,), space | {"is_double": True})
        self.nodes: dict[Any, ir.Node] = {} if nodes is None else nodes
        self.shadows: dict[int, Traced] = {}  # id of a real tensor or array -> its shadow
        self.made: list[ReferenceType[Traced]] = []  # every traced tensor; some are still alive
        self.copies: dict[int, Any] = {}  # id of a function -> what is traced in its place
        self.root: CodeType | None = None  # of the function that is traced
        self.codes: Container[CodeType] = ()  # of all functions that are traced
        self.named: Container[int] = ()  # ids of arrays that are there before, which are looked at in other ways
        self.met: list[tuple[np.ndarray, np.ndarray]] = []  # others, with their elements where it computes with them
        self.arrays: list[ReferenceType[Any]] = []  # stand-ins of NumPy's arrays that it makes (see program_arrays.py)
        self.later: dict[int, tuple[float, ScalarProxy]] = {}  # floats that are returned, by id: what they are
        self.strict = self.begun = False  # nothing is to be asked; there is an operation
        self.rolling: Any = None  # what gives loops their steps, where one stands for all (rolling/hooks.py)
        self.stages: Any = None  # what captures functions of transforms first (staging/transforms.py)
        self.step_by_step: dict[Any, str] = {}  # place of a loop -> its line, and why
        self.keeps_ints = False  # of data, outside of loops, where Python has not asked for them
        self.operations, self.seconds = 0, 0.0  # what loops step by step, and questions, have until then
        self.ends: float | None = None  # when these are given up
        self.alone: dict[Any, list[Any]] = {}  # place of a loop -> where it is parted (see specialize/errors.py)
        self.taken: dict[Any, list[str]] = {}  # (frame, place of a loop) -> steps of a `while` that were by themselves
        self.marked = Marked()
        self.perhaps_numbers: dict[ir.Node, Any] = {}  # what may be numbers (see numbers/perhaps.py)
        self.is_alike = False  # whether what is done now does the same with numbers of Python's
        self.in_order: dict[Any, str] = {}  # place of a loop over `prange` that is no loop of the graph -> why
        self.loops: list[Any] = []  # that are captured now
        self.rolled, self.unlike = False, dict[Any, str]()  # loops whose first step was by itself, and why
        self.may_be_slower = False  # than eager code: steps call functions of NumPy and Python, or it runs twice
        self.prints: Callable[[Any, Any], None] | None = None
        self.logs: Callable[..., None] | None = None  # takes what `logging.Logger._log` does
        self.counted = False  # whether code has lengths of selections that data decides (see numbers/lengths.py)
        self.texts: list[tuple[Callable[[Any], str], Any]] = []  # of numbers, with what makes them (see texts.py)
        self.only_kept: Callable[[CodeType, str], bool] | None = None  # tells where these may go (see text_flow.py)
        self.clocks: list[Any] | None = None  # readings of clocks, in their order (see clocks.py)
        self.environment: dict[str, Any] = {}  # environment variables that were read
        self.ask: ReadValue | None = None  # what knows values; None when the function has returned
        self.looked_at: set[ir.Node] = set()  # inputs for whose values the program holds: it has asked for them
        self.not_zero: set[ir.Node] = set()  # inputs that numbers are divided by, which Python does by no zero
        self.attributes: dict[tuple[int, str], Any] = {}  # (id of an object, name) -> what is read there
        self.reached: set[int] = set()  # ids of real tensors that the program has met on its own
        self.grad_guards: list[tuple[Input, Any]] = []  # (input, the form of its .grad)
        self.sparse_grads: list[tuple[Input, SparseGradient, tuple[Tensor, Tensor]]] = []  # with the parts they had
        self.knows: Callable[[Any], bool] = lambda obj: False  # whether code reaches an object that was there before
        self.may_fail = False  # there is an index to check so far
        self.checks: dict[ir.Node, None] = {}  # what eager code would have raised for so far, in its order
        self.layouts = Layouts()
        self.observer: LineObserver | None = None  # where names of variables are asked for (see line_observer.py)
        self.frames: list[Frame] = []  # regions that are being captured (see subgraphs.py), innermost last
        # Arrays after loops that update them, each with what it was before, made of it by a gradient of that loop.
        self.undone: list[tuple[ir.Node, ir.Node]] = []
        self.regions: Any = None  # blocks that a process computes (see distributed/placing/regions.py)
        self.deriving = rlock()  # gradients of its programs are traced by it, one at a time

    def run(self, fn: Callable[[], Any]) -> Any:
        """Runs `fn()` with this interpreter on top."""
        return interpret(self, fn)

    def end(self) -> None:
        """Ends the trace: nothing is asked any more, and frames and tensors of it are let go."""
        self.ask = self.stages = None
        self.taken.clear()
        self.marked.clear()

    # -- values

    def wrap(self, node: ir.Node, number: bool = False, double: bool = False, kind: Any = None) -> Any:
        t: Any = (kind or (self.double if number and double else self.number if number else self.cls))()
        t._array, t._node, t._version = node, None, 0
        self.note(t)
        return t

    def note(self, t: Traced) -> None:
        """Notes a new tensor, which a question may give out."""
        if self.frames:
            self.frames[-1].tensors[id(t)] = ref(t)
        else:
            self.made.append(ref(t))

    def constant(self, t: Tensor, weak: bool = False) -> Traced:
        """A literal of the program, on the CPU: it is for tensors of any device."""
        return self.wrap(ir.constant(t._array, weak=weak), weak)

    def size(self, size: Any) -> Traced:
        """A size that comes with the call, as a Python float."""
        params = {"shape": (), "value": of_steps(size) if self.loops else size, "dtype": dtypes.float64}
        return self.wrap(ir.apply(_full, [], params, user_location()), True)

    def apply(self, op: Op, operands: Sequence[Tensor], params: Mapping[str, Any]) -> tuple[Traced, ...]:
        """Tensors over the nodes of the operation, one per result."""
        if not op.results:
            return (self.emit(op, operands, params),)
        return tuple([self.emit(op, operands, {**params, "result": k}) for k in range(len(op.results))])

    def emit(self, op: Op, tensors: Sequence[Tensor], params: Mapping[str, Any]) -> Traced:
        """A tensor over the node `op(tensors; params)`."""
        if op is _full and self.loops:
            params = {**params, "value": of_steps(params["value"])}
        if self.observer is not None:
            self.observer.see(self, Tracer.run.__code__)
        if self.stages is not None:
            self.stages.see(op, tensors)
        self.operations += 1
        if self.step_by_step or self.loops:
            self.check_steps()
        if op is _pow and is_number(tensors[1]) and self.are_around(inputs_of(tensors[1]._array)):
            # The power is fixed: x**2 is a multiplication, x**y a logarithm and an exponential function.
            tensors = [tensors[0], self.constant(wrap(self._value(tensors[1]._array, "a power")), True)]
        if raises_in_vain(op) and any(loop.masks for loop in self.loops):
            tensors = where_taken(self, op, tensors, params)
        known = check_alike(self, op, tensors) if self.perhaps_numbers and self.loops and not self.is_alike else None
        self.begun = True
        inputs = [t._array for t in tensors]
        checks = (self.frames[-1] if self.frames else self).checks
        if op.kind == "effect" and not op.asynchronous and self.regions is None:
            inputs[-1] = behind(inputs[-1], checks)
        node = ir.apply(op, inputs, params, user_location(), place_var.get() or CPU)
        self.may_fail = self.may_fail or may_fail(node)
        if fails(node):
            checks[node] = None
        if self.regions is not None:
            self.regions.mark(node)
        if self.frames:
            self.frames[-1].made.add(node)
        self.perhaps_numbers |= {} if known is None else {node: known}
        out = self.wrap(node, kind=class_of(self, op, tensors))
        self.layouts.made(out, tensors)
        return out

    def check_steps(self) -> None:
        """Raises where loops have too many operations, or take too long: step by step, or in one another."""
        if self.operations <= MOST_STEP_BY_STEP and (self.ends is None or time_limit.clock() <= self.ends):
            return
        loop = loop_around({**self.step_by_step, **self.unlike}, next(iter(self.step_by_step.values()), ""))
        which = unrolled(loop, self.step_by_step) if loop else "as it captures loops"
        if self.operations <= MOST_STEP_BY_STEP:
            raise TakesLong(f"{self.takes_long}, {which}")
        raise refused(self, f"has more than {MOST_STEP_BY_STEP} operations, {which}")

    takes_long = property(lambda self: f"takes more than {self.seconds:.0f} s to compile")

    def trust(self, t: Tensor) -> None:
        """Notes that a node raises for nothing: its indices are made to exist."""
        (self.frames[-1] if self.frames else self).checks.pop(t._array, None)

    def will_write(self, t: Tensor) -> None:
        """Tells a region that `t` will get another value, so that the present one can be put back. What loops have left
        in memory of its own, which Python shares, is not written to."""
        self.marked.check(t)
        if self.frames:
            self.frames[-1].written.setdefault(id(t), (t, t._array, t._node))

    def write(self, t: Tensor, value: Tensor) -> None:
        """Makes `t` stand for another node from here on."""
        self.will_write(t)
        if getattr(t, "_view", None) is None:
            self.layouts.pin(t)
        t._array = value._array

    def layout(self, t: Tensor) -> np.ndarray:
        """A stand-in with the layout that a tensor, no view, has in eager code."""
        return self.layouts.of(t)

    def lift(self, value: Tensor | np.ndarray) -> Tensor:
        """The traced tensor that stands for a tensor or a NumPy array."""
        given: Any = value  # its type says what it is: a mock's class may say anything
        kind = type(given)
        if issubclass(kind, self.cls):
            self.marked.read(given)
            traced: Tensor = given
            return traced
        if issubclass(kind, Traced):
            raise leaked(given)
        found = self.shadows.get(id(given))
        if found is not None:
            self.reached.add(id(given))
            return found
        name = (None if self.names is None else self.names.of(given)) or f"captured{len(self.inputs)}"
        if issubclass(kind, Tensor):
            return self._add("held", -1, given, given, name)
        if id(given) not in self.named:
            self.met.append((given, given.copy()))
        return self._add("array", -1, given, adopt(given), name)

    def watch(self, tensors: Iterable[Tensor]) -> Callable[[], list[tuple[Tensor, Tensor]]]:
        """Returns a function that gives the `tensors` written to since this call, each with its value from before."""
        before = [(t, self._present(t)) for t in tensors]

        def changed() -> list[tuple[Tensor, Tensor]]:
            starts = {id(i.real): i.start for i in self.inputs}
            values = [(t, starts.get(id(t)) if node is None else node) for t, node in before]
            return [(t, self.wrap(node)) for t, node in values if node is not None and self._present(t) is not node]

        return changed

    def _present(self, t: Tensor) -> ir.Node | None:
        """The value of a tensor at this line of the program; None where the program has not come upon it."""
        shadow = t if issubclass(type(t), self.cls) else self.shadows.get(id(t))
        return None if shadow is None else shadow._array

    def argument(self, index: int, value: Any, t: Tensor, name: str) -> Traced:
        """The shadow of a tensor or array argument."""
        found = self.shadows.get(id(value))
        return found if found is not None else self._add("argument", index, value, t, name)

    def block(self, array: np.ndarray) -> Traced:
        """The value of an array that nobody changes, which comes with each call as it is too large for the program."""
        found = self.shadows.get(id(array))
        found = self._add("array", -1, array, adopt(array), f"block{len(self.inputs)}") if found is None else found
        return self.wrap(found._array)

    def lift_float(
        self, kind: str, index: int, value: Any, name: str, scalar: ScalarSource | None = None, double: bool = False
    ) -> ScalarProxy:
        """The proxy of a Python float: an "argument", or a captured "scalar" (see captured_scalars.py)."""
        node = self._input(("float", kind, index), Aval((), dtypes.float64, weak=True), name)
        shadow = self.wrap(node, True, double)
        self.inputs.append(Input(kind, index, value, node, shadow, node, scalar=scalar))
        return ScalarProxy(shadow)

    def lift_integer(
        self, kind: str, index: int, value: int, name: str, scalar: ScalarSource | None = None, double: bool = False
    ) -> Any:
        """The proxy of a Python int, or of NumPy's int64."""
        number = self.lift_float(kind, index, value, name, scalar, double)
        self.inputs[-1].is_integer = True
        asks = scalar is not None and scalar.updated
        return IntProxy(self, number, value, kind=np.int64 if double else int, asks=asks)

    def look_at(self, node: ir.Node) -> None:
        """Specializes the program on the inputs that this value is computed from."""
        self.looked_at.update(inputs_of(node))

    def _input(self, key: Any, aval: Aval, name: str) -> ir.Node:
        node = self.nodes.get(key)
        if node is None or node.aval != aval:
            node = self.nodes[key] = ir.input_node(aval, name, user_location())
        return node

    def _add(self, kind: str, index: int, real: Any, t: Tensor, name: str, owner: Input | None = None) -> Traced:
        order = memory_order(t._array)
        seen = t.shape
        if kind == "argument" or (owner is not None and index < 0):
            seen = self.shapes.get(index, t.shape) if owner is None else owner.start.shape
        shape = seen if order is None else tuple(seen[k] for k in order)
        key = (kind, index if kind == "argument" else (id(real if owner is None else owner.node), index), order)
        node = start = self._input(key, Aval(shape, t.dtype, device=place_of(t) or CPU), name)
        if order is not None:
            start = ir.apply(OPS["permute_dims"], [node], {"axes": inverse(order)})
        shadow = self.wrap(start)
        wants = isinstance(real, Tensor) and t._node is not None
        source = Input(kind, index, real, node, shadow, start, order, owner, wants, wants and is_node(t._node))
        if wants:
            shadow._node = source.leaf = ShadowLeaf(self, source)
        before = len(self.inputs) if kind != "argument" else sum(i.index < index for i in self.inputs if i.kind == kind)
        self.inputs.insert(before, source)
        self.shadows[id(real)] = shadow
        self.layouts.source(shadow, t._array)
        return shadow

    def read_grad(self, source: Input) -> Any:
        """The gradient that a leaf has before the call: None, a tensor or a sparse gradient."""
        grad: Any = held_gradient(source.real)
        name = f"{source.node.name}.grad"
        self.grad_guards.append((source, form_of(grad)))
        if type(grad) is SparseGradient:
            sparse = with_parts(grad, self.knows(grad), lambda k, t: self._add("grad", k, t, t, name, source))
            self.sparse_grads.append((source, sparse, parts_of(sparse)))
            return sparse
        if grad is None:
            return None
        found = self.shadows.get(id(grad))
        return found if found is not None else self._add("grad", -1, grad, grad, name, source)

    def are_around(self, nodes: Sequence[ir.Node]) -> bool:
        """Whether inputs are all numbers from around the function (see python_state/captured_scalars.py), or ints."""
        around = {i.node for i in self.inputs if i.kind == "scalar" or i.is_integer}
        return bool(around and nodes) and all(n in around for n in nodes)

    def are_updated(self, nodes: Sequence[ir.Node]) -> bool:
        """Whether the function itself updates one of these numbers: the next call finds another value."""
        return any(i.scalar is not None and i.scalar.updated and i.node in nodes for i in self.inputs)

    def has_input(self, node: ir.Node) -> bool:
        """Whether an input is one of the traced function: bodies of control operations have others."""
        return any(i.node is node for i in self.inputs)

    def input_of(self, node: ir.Node) -> Input:
        return next(i for i in self.inputs if i.node is node)

    # -- what the program asks of values

    def _value(self, node: ir.Node, what: str) -> np.ndarray:
        if self.ask is None:
            raise TraceError(
                f"{what} needs the value of a tensor where a gradient of {self.name} is derived, which has none; use "
                "tensor operations instead of Python numbers"
            )
        if (told := answer_of(node)) is not None:
            return np.asarray(told)
        answer = None if self.rolling is None else self.rolling.answer(node, what)
        return self.ask(node, what) if answer is None else answer

    def read(self, t: Tensor, how: Reading, what: str) -> Any:
        """The value that `t` has in this call, asked for in as few distinct answers as `how` needs.

        What asks for a value makes the program hold for it alone (see specialize/path_tree.py), so `item()` of a float
        is a number of the graph: nothing may ever look at it.
        """
        if how == "text" and (not issubclass(type(t), self.cls) or self.ask is None or self.frames):
            return None
        t = self.lift(t)
        node = t._array
        if self.stages is not None:
            self.stages.check_asked(node, what)
        if how == "array" and node.aval.device != CPU:
            raise out_of_reach(node.aval.device, what)
        if how in ("array", "text"):
            return self._value(node, what)
        if how == "nonzero":
            return is_divisor(self, t, inputs_of(node), what)
        if how == "item" and dtypes.is_float(t.dtype) and inputs_of(node):
            return ScalarProxy(self._float64(t))
        if how == "float" and inputs_of(node) and t.dtype.kind in "fiu" and is_returned(self.root):
            later = float("nan")  # an object of its own, which nothing looks at before it is returned
            self.later[id(later)] = later, ScalarProxy(self._float64(t))
            return later
        if how == "bool" and t.dtype.kind != "b":
            t = OPS["not_equal"].fn(t, 0)
        elif how == "int" and dtypes.is_float(t.dtype):
            t = OPS["trunc"].fn(t)
        return self._value(t._array, what).item()

    def _float64(self, t: Tensor) -> Traced:
        """The single value, as Python has floats."""
        flat = t if t.shape == () else OPS["reshape"].fn(t, ())
        return self.wrap((flat if t.dtype is dtypes.float64 else _astype.fn(flat, dtypes.float64))._array, True)

    # -- what a trace leaves behind

    def written(self) -> list[Input]:
        """Inputs whose tensors the program updates in place."""
        return [i for i in self.inputs if i.shadow._array is not i.start]

    def grads(self) -> list[tuple[Input, Tensor | None]]:
        """Leaves whose `.grad` the program sets, with the new gradient."""
        leaves = [(i, i.leaf) for i in self.inputs]
        return [(i, leaf._grad) for i, leaf in leaves if isinstance(leaf, ShadowLeaf) and leaf.changed]


def iterator_of(value: Any) -> Any:
    """The iterator for a loop of the frame that asks, where a trace captures it; None where Python goes on alone."""
    tracer = top_tracer()
    return None if tracer is None or tracer.rolling is None else tracer.rolling.iterator(sys._getframe(2), value)


def _iterate(t: Tensor) -> Any:
    return iterator_of(t) or Tensor.__iter__(t)


def _real(size: Any) -> Any:
    """The scalar proxy for a size in arithmetic of Python floats (see core/proxies/scalar.py)."""
    tracer = current_tracer()
    return float(int(size)) if tracer is None else ScalarProxy(tracer.size(size))


hooks.size_as_float = _real


def inputs_of(node: ir.Node) -> list[ir.Node]:
    """The inputs that a value depends on; none for a literal."""
    return [n for n in ir.topological([node]) if n.is_input]


def current_tracer() -> Tracer | None:
    """The innermost tracer in force, whatever interprets its operations first."""
    level = interpreter_stack()
    while level is not None:
        if isinstance(level.interpreter, Tracer):
            return level.interpreter
        level = level.beneath
    return None


def top_tracer() -> Tracer | None:
    """The tracer that operations go to; None where another interpreter or NumPy applies them."""
    level = interpreter_stack()
    return level.interpreter if level is not None and isinstance(level.interpreter, Tracer) else None


def is_tracing() -> bool:
    """True while a traced function is being captured, false in eager code (and in compiled calls)."""
    return current_tracer() is not None
