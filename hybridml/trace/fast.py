"""The short way into a compiled program: one native call that checks the arguments, runs the step and makes the
results.

Measured for `x * 2 + 1` on 16 floats: 15 us through `Entry.run` (signature, lists of arrays, ctypes), about 1 us here.
What the native entry does not do is left to Python after it: stamps of updated tensors, `.grad`, containers. Calls that
need more (recording a gradient, NumPy or non-contiguous arguments, updated arguments) keep to `Entry.run`.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from .. import aliasing, tree
from ..autograd import part
from ..context import _no_grad, clock, grad_is_off, interpreter_var, switches
from ..tape import KEPT, Node
from ..tensor import Tensor, wrap
from .entry import Entry
from .guards import Entry as Guard
from .guards import hold
from .loans import Loans
from .order import as_seen, in_memory
from .outcome import Outcome
from .places import split
from .program import Interpreted
from .state import epoch

MISS = object()  # a guard did not hold
_RELEASE_GIL_BYTES = 100_000  # a step that moves more takes tens of microseconds: let other threads run
TIMED_CALLS = 16  # through every guard; later calls go straight to the native entry


class Fast:
    """A compiled entry that is called with its tensors and floats as plain arguments."""

    __slots__ = ("direct", "entry", "epochs", "finish", "left", "loans", "native", "numbers", "outcome", "rest")

    def __init__(self, entry: Entry, outcome: Outcome, loans: Loans, rest: list[Guard]) -> None:
        self.entry, self.rest, self.outcome = entry, rest, outcome
        self.finish = _finisher(outcome, outcome.program.executable)
        self.loans = loans if loans.grads else None
        # What every guard was checked at; native code compares these in place.
        self.epochs = tuple((counter, ctypes.c_int64(counter.value)) for counter in (switches, epoch))
        # Lifted floats: where each is read, and the number that native code reads.
        self.numbers = [(i.read, np.zeros(())) for i in outcome.inputs if i.read is not None]
        self.left = TIMED_CALLS
        self.native: Callable[..., Any] = _miss
        self.direct: Callable[..., Any] = self.call

    def enter(self, native: Callable[..., Any]) -> None:
        """What is called, and what a call comes down to if it is no more than that."""
        self.native = native
        plain = not (self.rest or self.entry.owners or self.entry.places)
        if plain and self.finish is None and self.loans is None:
            self.direct = native

    def refresh(self) -> None:
        """All guards have been checked: remember where the counters stand."""
        for counter, seen in self.epochs:
            seen.value = counter.value

    def moved(self) -> bool:
        """Whether native code, which compares by identity, has seen a change where the guards hold."""
        return len(self.rest) < len(split(self.entry.watch.free)[1])

    def timed(self, args: Sequence[Any]) -> Any:
        """A call, and what the first of them take."""
        start = time.perf_counter()
        out = self.direct(*args)
        if self.left and out is not MISS:
            self.outcome.steady_ms.append((time.perf_counter() - start) * 1e3)
            self.left -= 1
        return out

    def call(self, *args: Any, **names: Any) -> Any:
        """`MISS`, or the result."""
        if names or (self.rest and not hold(self.rest)) or (self.entry.owners and self.entry.overlaps(args)):
            return MISS
        for read, number in self.numbers:
            value = read()
            if type(value) is not float:
                return MISS
            number[()] = value
        if self.loans is not None:
            self.loans.offer()
        out = self.native(*args)
        return out if out is MISS or self.finish is None else self.finish(out, args)


def build(entry: Entry, leaves: Sequence[Any]) -> Fast | None:
    """The fast form of an entry for calls like this one, or None."""
    outcome = entry.root
    if not isinstance(outcome, Outcome):
        return None
    program = outcome.program
    executable = program.executable
    known = entry.sized is None and not isinstance(executable, Interpreted)  # sizes, and an address of code
    if not known or entry.grad_guards or entry.aliased or not _plain(outcome, leaves):
        return None
    from hybridml_compiler.runtime.entry import RING_MIN, ArraySpec, Constant, EntrySpec, FloatCell, build_entry

    specs: list[Any] = []
    by_leaf = {i.index: i for i in outcome.inputs if i.kind == "argument"}
    for k, leaf in enumerate(leaves):
        if k not in by_leaf:
            specs.append(Constant(leaf))
        elif type(leaf) is float:
            specs.append(FloatCell())
        else:
            specs.append(ArraySpec(leaf.dtype, leaf.shape))
    place = {k: j for j, k in enumerate(executable.fresh)}
    large = {k: j for k, j in place.items() if executable.outputs[j].nbytes >= RING_MIN}
    grads = [(source, large[k]) for source, k in outcome.grads if k in large]
    loans = Loans(grads, len(place), MISS)
    places, rest = split(entry.watch.free)
    fast = Fast(entry, outcome, loans, rest)
    native = build_entry(
        EntrySpec(
            step=executable.step,
            tensor_type=Tensor,
            array_slot="_array",
            args=tuple(specs),
            outputs=tuple(ArraySpec(aval.dtype, aval.shape) for aval in executable.outputs),
            fallback=_miss,
            on_status=loans.lose,
            slot_defaults={"_node": None, "_version": 0},
            require_none_slots=("_node",),
            captured=tuple(_captured(outcome, fast)),
            arena=executable.give_arena() if executable.arena_bytes else None,
            epochs=fast.epochs,
            contexts=((_no_grad, grad_is_off()), (interpreter_var, None)),
            places=places,
            lent=loans.words,
            used=loans.first(),
            release_gil=getattr(executable.stats, "nbytes", 0) > _RELEASE_GIL_BYTES,
            keep=(executable,),
        )
    )
    fast.enter(native)
    return fast


def _captured(outcome: Outcome, fast: Fast) -> Iterator[Tensor]:
    numbers = iter(fast.numbers)
    for i in outcome.inputs:
        if i.read is not None:
            yield wrap(next(numbers)[1])
        elif i.kind != "argument":
            yield i.real if i.kind == "held" else wrap(i.real)


def _miss(*args: Any, **names: Any) -> Any:
    return MISS


def _plain(outcome: Outcome, leaves: Sequence[Any]) -> bool:
    """Whether the native entry can do this call; see the module."""
    if outcome.copies or any(outcome.n_results <= k < outcome.n_own for k in outcome.program.differentiable()):
        return False
    if any(o._node is not None and type(o._node) is not list for o in outcome.program.outputs[: outcome.n_results]):
        return False
    arguments = [i.index for i in outcome.inputs if i.kind == "argument"]
    if len(set(arguments)) != len(arguments) or any(i.kind == "argument" for _, i in outcome.writes):
        return False
    if any(i.kind not in ("argument", "held", "array", "place") for i in outcome.inputs):
        return False
    if any(source.kind != "held" for source, _ in outcome.grads) or any(r.kind == "input" for r in outcome.results):
        return False
    for i in outcome.inputs:
        if i.kind in ("held", "array"):
            array = in_memory(i.real._array if isinstance(i.real, Tensor) else i.real, i.order)
            if not array.flags.c_contiguous or not array.flags.aligned:
                return False
        elif i.order is not None:
            return False
    taken = set(arguments)
    for k, leaf in enumerate(leaves):
        if k in taken and not (type(leaf) is float or (type(leaf) is Tensor and leaf._node is None)):
            return False
        if k not in taken and isinstance(leaf, Tensor | np.ndarray | float):
            return False  # the second of two equal arguments
    return True


def _finisher(outcome: Outcome, executable: Any) -> Callable[[Any, Sequence[Any]], Any] | None:
    """What is left to do in Python after the native call; None when its result is the result."""
    place = {k: j for j, k in enumerate(executable.fresh)}
    count = len(place)
    results = [
        (place.get(r.index, -1) if r.kind in ("output", "float") else -1, r.kind == "float", r.value)
        for r in outcome.results
    ]
    stamped = [i.real for _, i in outcome.writes if isinstance(i.real, Tensor)]
    grads = [(i.real, None if k is None else place[k]) for i, k in outcome.grads]
    permuted = [(place[k], order) for k, order in enumerate(outcome.program.output_orders) if order and k in place]
    freed = [
        place[k] for k, o in enumerate(outcome.program.outputs[: outcome.n_results])
        if type(o._node) is list and len(o._node) == KEPT and not grad_is_off()
    ]  # fmt: skip
    history = _historian(outcome)
    recorded = [] if history is None else [k for k in outcome.program.differentiable() if k in place]
    structure, effects = outcome.structure, outcome.effects
    single = structure.children[0].kind is None and not effects
    if single and results[0][:2] == (0, False) and count == 1 and not (stamped or grads or freed or recorded):
        return None

    def finish(out: Any, args: Sequence[Any]) -> Any:
        tensors = (out,) if count == 1 else out or ()
        for t in stamped:
            aliasing.stamp(t)
        for j, order in permuted:
            tensors[j]._array = as_seen(tensors[j]._array, order)
        for j in freed:
            tensors[j]._node = [clock(), None, tensors[j]._array.shape]
        if history is not None:
            joint = history(args)
            for k in recorded:
                tensor = tensors[place[k]]
                tensor._node = part(joint, k, tensor._array.shape)
        for real, at in grads:
            real._node.grad = None if at is None else tensors[at]
        values = [
            value if at < 0 else tensors[at]._array.item() if number else tensors[at] for at, number, value in results
        ]
        if single:
            return values[0]
        value, *put = tree.unflatten(structure, values)
        for effect, new in zip(effects, put, strict=True):
            effect.put(new)
        return value

    return finish


def _historian(outcome: Outcome) -> Callable[[Sequence[Any]], Node] | None:
    """What makes the node of a recorded call from its arguments (none wants a gradient); None if it has none."""
    program = outcome.program
    wanting = [k for k, leaf in enumerate(program.leaves) if leaf is not None and outcome.inputs[k].kind == "held"]
    if grad_is_off() or not wanting or not any(k < outcome.n_results for k in program.differentiable()):
        return None
    needed = program.needed()
    parents = [outcome.inputs[k].real for k in wanting]
    given = [(k, outcome.inputs[k].index) for k in needed if outcome.inputs[k].kind == "argument"]
    fixed = [i.real if k in needed and i.kind != "argument" else None for k, i in enumerate(outcome.inputs)]
    numbers = [(k, i.read) for k, i in enumerate(outcome.inputs) if k in needed and i.read is not None]

    def history(args: Sequence[Any]) -> Node:
        kept = fixed.copy()
        for k, index in given:
            kept[k] = args[index]
        for k, read in numbers:
            kept[k] = read()
        return program.history(parents, wanting, kept)

    return history
