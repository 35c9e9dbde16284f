"""The fast path of a traced function: native calls that check the arguments, run a program and make its results.

Measured for `x * 2 + 1` on 16 floats: 15 us through `CompiledPath.run` (signature, lists of arrays, ctypes), about 1 us
here. A path with one question is two such calls and a look into a dict: 60 us the long way, 5 here. What native code
does not do is left to Python after it (epilogue.py). Calls that need more (recording a gradient, updated arguments
with gaps) keep to `CompiledPath.run`.
"""

from __future__ import annotations

import ctypes
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from functools import partial
from itertools import starmap
from typing import Any

import numpy as np

from hybridml_compiler import time_limit
from hybridml_compiler.graph import ir
from hybridml_compiler.locks import lock
from hybridml_compiler.record import record

from ...core.autodiff import replay
from ...core.context import _no_grad, call_var, grad_is_off, settings_here, switches, watch_var, way
from ...core.device_tensor import DeviceTensor
from ...core.interpreter import interpreter_var
from ...core.library import MISS
from ...core.proxies.integer import LARGEST
from ...core.tensor import Tensor, place_var, wrap
from ..capture.memory_order import in_memory
from ..capture.numpy_rules import raises
from ..capture.tracer import Input
from ..python_state.guard_types import hold
from ..python_state.mutation_epoch import epoch
from ..specialize.entry import Entry
from ..specialize.parts import Part
from ..specialize.path_tree import Segment, ValueBranch, key
from .compiled_path import CompiledPath, array_of, in_host_memory, owner_of, real_of
from .device_entry import PlacedStep
from .epilogue import finisher
from .grad_donation import GradDonation
from .native_guards import split
from .native_program import laid
from .placed import PlacedExecutable
from .program import Interpreted, is_native
from .random_draws import Draw
from .whole_call import whole_call

_WORTH_LENDING = 64 << 10  # bytes of a gradient; each one that is offered takes 0.3 us
_RELEASE_GIL_BYTES = 100_000  # a step that moves more takes tens of microseconds: let other threads run
# Seconds of one call for making native steps: segments that were interpreted so far are compiled then. A sort of 128
# numbers asks 722 questions; its second call took as long as 700 compilations.
_BUILD_SECONDS = 0.25
_AT_ONCE = (False,)  # a lock is taken, or not, without waiting
TIMED_CALLS = 16  # through every guard; later calls go straight to the native entry

Native = Callable[..., Any]


@record(frozen=False, eq=False)
class End:
    """The native form of a compiled path."""

    path: CompiledPath
    native: Native
    finish: Callable[[Any, Sequence[Any]], Any] | None
    donation: GradDonation | None
    extra: list[ir.Node]  # what it reads of earlier segments
    draws: list[tuple[Draw, np.ndarray]]  # what it draws, and the state that native code reads
    changes: bool  # whether it changes what was there before: tensors, gradients, generators, Python's state


@record(frozen=False, eq=False)
class Step:
    """The native form of a value branch."""

    ask: ValueBranch
    native: Native | None  # None where the value is an input, or known by now
    gives: Sequence[ir.Node]
    extra: list[ir.Node]
    source: Input | None  # of a value that is an input
    parts: Sequence[tuple[ir.Node, Part, Input | None]] = ()  # with the input that a part is of
    next: dict[bytes, Step | End | None] = field(default_factory=dict)


@record(frozen=False, eq=False)
class Cell:
    """A captured scalar: where it is read, whether the program takes a value, what native code reads."""

    read: Callable[[], Any]
    fits: Callable[[Any], bool] | None
    number: Tensor
    last: Any = None


class NativeCall:
    """An entry that is called with its tensors and floats as plain arguments."""

    def __init__(self, entry: Entry, leaves: Sequence[Any], strided: Iterable[int] = ()) -> None:
        from hybridml_compiler.targets.cpu.python_entry.spec import ArraySpec, Constant, FloatCell

        self.entry = entry
        self.natives: dict[tuple[int, ...], Native] = {}  # of steps, by executable and what it has captured
        self.grown, root = entry.grown, entry.root  # first: another thread may add a path, with guards of its own
        taken = {i.index for i in entry.inputs if i.kind == "argument"}
        self.specs: tuple[Any, ...] = tuple(
            Constant(leaf) if k not in taken
            else FloatCell() if type(leaf) in (float, int)
            else ArraySpec(leaf.dtype, leaf.shape) if type(leaf) in (Tensor, np.ndarray)
            else leaf._array.kind
            for k, leaf in enumerate(leaves)
        )  # fmt: skip
        self.places, self.rest = split(entry.watch.free)
        # What every guard was checked at; native code compares these in place.
        self.epochs = tuple((counter, ctypes.c_int64(counter.value)) for counter in (switches, epoch))
        # Lifted floats: where each is read, and the number that native code reads.
        fits = {scalar.index: scalar.fits for scalar in entry.scalars}  # the others are guarded
        self.numbers = {
            i.node: Cell(i.scalar.now, fits.get(i.index), wrap(np.zeros(())))
            for i in entry.inputs
            if i.scalar is not None
        }
        # What must be apart where arguments are updated: the arrays of arguments, owners of memory that is captured.
        self.updated = [i.index for i in entry.updated.values()]
        self.arrays = [k for k, spec in enumerate(self.specs) if type(spec) is ArraySpec]
        self.numpys = [k for k in self.arrays if type(leaves[k]) is np.ndarray]  # which native code reads as tensors
        captured = [i for i in entry.inputs if i.kind in ("held", "array")] if self.updated else []
        named = [a for _, a in entry.watch.named_arrays(sys.maxsize) if type(a) is np.ndarray] if self.updated else []
        self.owners = {id(owner_of(array)) for array in (*(array_of(i.real) for i in captured), *named)}
        self.strided = {*strided, *self._with_gaps(leaves)}
        self.left = TIMED_CALLS
        self.start = None if root is None else self._build(root)
        self.last: CompiledPath | None = None  # of the last call
        self.direct: Callable[..., Any] = self.call
        # Ints that are inputs, with their value where the program is for that one; numbers that others are divided by.
        self.integers = [(k, leaves[k] if k in entry.pinned else None) for k in sorted(entry.integers)]
        plain = not (self.rest or self.numbers or entry.scalars or self.integers)
        plain = plain and not (entry.not_zero or self.strided or self.numpys)
        if self.numbers or entry.draws or entry.drawn:  # native code reads what one call writes
            self.alone = lock()
            self.direct = self.call_alone
        elif plain and isinstance(self.start, End):
            self.direct = whole_call(self, self.start) or self.direct

    def refresh(self) -> None:
        """Notes the present counters: all guards have been checked."""
        for counter, seen in self.epochs:
            seen.value = counter.value

    def moved(self) -> bool:
        """Whether native code, which compares by identity, has seen a change where the guards hold."""
        return len(self.rest) < len(split(self.entry.watch.free)[1])

    def _with_gaps(self, leaves: Sequence[Any]) -> list[int]:
        """Arguments that native code reads and cannot read as they are."""
        arrays = [k for k in self.arrays if k not in self.updated and type(leaves[k]) is Tensor]
        return [k for k in arrays if not leaves[k]._array.flags.c_contiguous]

    def has_more_gaps(self, leaves: Sequence[Any]) -> bool:
        """Whether memory of an argument has gaps that had none so far."""
        return not self.strided.issuperset(self._with_gaps(leaves))

    def timed(self, args: Sequence[Any]) -> Any:
        """Makes a call; the first ones are timed."""
        start = time.perf_counter()
        out = self.direct(*args)
        if self.left and out is not MISS:
            path = self.start.path if isinstance(self.start, End) else self.last
            if path is not None:
                path.steady_ms.append((time.perf_counter() - start) * 1e3)
            self.left -= 1
        return out

    def call(self, *args: Any, **names: Any) -> Any:
        """The result of a call, or `MISS`."""
        if names or len(args) != len(self.specs) or interpreter_var.get() is not None:  # part of another function
            return MISS
        if self.rest and not hold(self.rest):
            return MISS
        if self.numpys and raises():
            return MISS
        if self.entry.owners and self.entry.overlaps(args):
            return MISS
        if self.updated and not self._are_apart(args) and self.entry.clashes(args):
            return MISS
        given: Any = args
        if self.integers:
            given = self._reals(args)
            if given is None:
                return MISS
        for source in self.entry.not_zero:
            if real_of(source, args) == 0:
                return MISS
        if self.numbers and not self._read_numbers():
            return MISS
        known: dict[ir.Node, Tensor] = {}
        at = self._walk(self.start, given, known) if type(self.start) is Step else self.start
        if type(at) is not End:
            return MISS
        for moment in at.path.early:
            moment.take()
        if at.donation is not None:
            at.donation.offer()
        if self.strided or self.numpys:
            given = [*given]
            for k in self.numpys:
                if type(given[k]) is not np.ndarray:
                    return MISS
                given[k] = wrap(given[k])
            for k in self.strided:
                given[k] = laid(given[k])
        if at.extra:
            given = (*given, *[known[n] for n in at.extra])
        if at.changes:
            return self._changing(at, args, given)
        out = at.native(*given)
        return out if out is MISS or at.finish is None else at.finish(out, args)

    def _are_apart(self, args: Sequence[Any]) -> bool:
        """Whether all arrays have memory of their own, and those that are updated may be, as in most calls."""
        if len(self.arrays) == 1 and not self.owners:
            array = _memory(args[self.arrays[0]])
            return array is not None and array.flags.writeable
        owners = self.owners.copy()
        for k in self.arrays:
            if (array := _memory(args[k])) is None:
                return False
            owners.add(id(owner_of(array)))
        together = len(owners) == len(self.owners) + len(self.arrays)
        return together and all([array_of(args[k]).flags.writeable for k in self.updated])

    def _changing(self, at: End, args: Sequence[Any], given: Sequence[Any]) -> Any:
        """The result of a call that changes state. Where a handler of a signal raises as native code has returned, what
        is to be done after it is done all the same: weights that have moved belong to a count that has."""
        taken: list[int] = []
        done: list[Any] = []  # filled without an instruction of Python's between, where it would look for signals
        finished = False
        try:
            for draw, state in at.draws:
                taken.append(draw.take(state))
            done.extend(starmap(at.native, (given,)))
            out = done[0]
            finished = True
            return out if out is MISS or at.finish is None else at.finish(out, args)
        finally:
            if not done or done[0] is MISS:
                for (draw, _), after in zip(at.draws, taken, strict=False):
                    draw.give_back(after)
                if done and at.donation is not None:
                    at.donation.withdraw()
            elif not finished and at.finish is not None:
                at.finish(done[0], args)

    def call_alone(self, *args: Any, **names: Any) -> Any:
        """`call`, one at a time: MISS while another thread is in it."""
        taken: list[bool] = []  # filled as in `_changing`: a lock that nobody gives back would make every call slow
        try:
            taken.extend(map(self.alone.acquire, _AT_ONCE))
            if not taken[0]:
                return MISS
            if not self.entry.drawn:
                return self.call(*args, **names)
            with replay.source().alone(self.entry.drawn):
                return self.call(*args, **names)
        finally:
            if taken and taken[0]:
                self.alone.release()

    def _reals(self, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """The arguments as native code takes them, ints as floats; None for what the program does not take."""
        reals = list(args)
        for k, only in self.integers:
            value = args[k]
            if type(value) is not int or not -LARGEST <= value <= LARGEST or (only is not None and value != only):
                return None
            reals[k] = float(value)
        return tuple(reals)

    def _read_numbers(self) -> bool:
        """The present values of captured scalars; False for one that the program does not take. 50 ns each."""
        try:
            for cell in self.numbers.values():
                value = cell.read()
                if value is not cell.last:
                    if cell.fits is not None and not cell.fits(value):
                        return False
                    cell.number._array[()] = cell.last = value
        except (ValueError, IndexError):  # an empty closure cell, a shorter list
            return False
        return True

    def _walk(self, at: Step, args: Sequence[Any], known: dict[ir.Node, Tensor]) -> End | None:
        """Walks the value branches to the end of a path; None where native code has no answer, or the answer is new."""
        passed: list[ValueBranch] = []
        ends: float | None = None
        while True:
            node = at.ask.node
            if at.source is not None:
                array = _present(at.source, args)
            elif at.native is None:
                array = known[node]._array
            else:
                for part, view, of in at.parts:
                    base = known[view.base]._array if of is None else _present(of, args)
                    known[part] = wrap(view.of(base))
                out = at.native(*args, *[known[n] for n in at.extra])
                if out is MISS:
                    return None
                if len(at.gives) == 1:
                    known[node] = out
                else:
                    known.update(zip(at.gives, out, strict=True))
                array = known[node]._array
            value = key(array)
            passed.append(at.ask)
            if value not in at.next:
                after = at.ask.next.get(value)
                if after is None or self.grown != self.entry.grown:
                    return None
                ends = ends or time_limit.clock() + _BUILD_SECONDS
                if time_limit.clock() > ends:
                    return None  # later calls go on with it
                at.next[value] = self._build(after)
            found = at.next[value]
            if type(found) is End:
                for ask in passed:
                    ask.hits += 1
                self.last = found.path
                self.last.taken += 1
                return found
            if not isinstance(found, Step):
                return None
            at = found

    # -- building

    def _build(self, at: ValueBranch | CompiledPath) -> Step | End | None:
        """A native node of the tree, or None. Every native call checks all guards: any may be the first of a path."""
        return self._end(at) if isinstance(at, CompiledPath) else self._step(at)

    def _step(self, ask: ValueBranch) -> Step | None:
        if ask.segment is None:
            return Step(ask, None, (), [], self.entry.by_node.get(ask.node))
        executable = _compiled(ask.segment)
        captured = [i for n in ask.segment.reads if (i := self.entry.by_node.get(n)) and i.kind != "argument"]
        if not is_native(executable) or not are_plain(captured):
            return None
        extra = [n for n in ask.segment.reads if n not in self.entry.by_node]
        same = id(executable), *map(id, captured)
        native = self.natives.get(same)
        if native is None:
            native = self.natives[same] = self.native_of(executable, extra, captured)
        parts = [(n, part, self.entry.by_node.get(part.base)) for n, part in ask.segment.parts.items()]
        return Step(ask, native, ask.segment.gives, extra, None, parts)

    def _end(self, path: CompiledPath) -> End | None:
        executable = path.program.executable
        captured = [i for i in path.inputs if i.kind != "argument"]
        if type(executable) is PlacedExecutable and not path.program.reads:
            executable = PlacedStep(executable, path)
        elif not is_native(executable):
            return None
        if not are_plain(captured) or not _is_plain(path):
            return None
        place = {k: j for j, k in enumerate(executable.fresh)}
        large = {k: j for k, j in place.items() if executable.outputs[j].nbytes >= _WORTH_LENDING}
        if type(executable) is PlacedStep:
            large = {}
        donation = GradDonation([(source, large[k]) for source, k in path.grads if k in large], len(place))
        states = {id(draw.state): wrap(np.zeros(2, np.uint64)) for draw in path.draws}
        native = self.native_of(executable, path.program.reads, captured, donation, states)
        finish = finisher(path, executable)
        draws = [(draw, states[id(draw.state)]._array) for draw in path.draws]
        changes = bool(path.writes or path.grads or path.effects or draws)
        return End(path, native, finish, donation if donation.grads else None, path.program.reads, draws, changes)

    def native_of(
        self, executable: Any, extra: Sequence[ir.Node], captured: Sequence[Input],
        donation: GradDonation | None = None,
        states: Mapping[int, Tensor] = {}, **more: Any,
    ) -> Native:  # fmt: skip
        from hybridml_compiler.targets.cpu.python_entry.entry import build_entry
        from hybridml_compiler.targets.cpu.python_entry.spec import ArraySpec, EntrySpec

        donation = GradDonation([], len(executable.fresh)) if donation is None else donation
        tensors = tuple([states[id(i.real)] if id(i.real) in states else self._tensor(i) for i in captured])
        if type(executable) is PlacedStep:
            arguments = [_argument(spec) for spec in self.specs]
            guard = build_entry(EntrySpec(0, args=(), outputs=(), on_status=_miss, **self._guards))
            return executable.entry(guard, arguments, tensors)
        return build_entry(
            EntrySpec(
                step=executable.step,
                args=(*self.specs, *(ArraySpec(n.aval.dtype, n.aval.shape) for n in extra)),
                outputs=tuple(ArraySpec(aval.dtype, aval.shape) for aval in executable.outputs),
                on_status=partial(_failed, donation),
                slot_defaults={"_node": None, "_version": 0},
                require_none_slots=("_node",),
                captured=tensors,
                arena=executable.shared_arena(executable.arena_bytes) if executable.arena_bytes else None,
                lent=donation.lent,
                release_gil=getattr(executable.stats, "nbytes", 0) > _RELEASE_GIL_BYTES,
                keep=(executable,),
                **{**self._guards, **more},
            )
        )

    @property
    def _guards(self) -> dict[str, Any]:
        """The checks of an entry that are none of its arguments."""
        return {
            "tensor_type": Tensor,
            "array_slot": "_array",
            "fallback": _miss,
            "epochs": self.epochs,
            "contexts": (
                (_no_grad, grad_is_off()),
                (place_var, place_var.get()),
                *((variable, None) for variable in (interpreter_var, watch_var)),
                *(() if self.entry.silent else ((call_var, way(None, settings_here())),)),
            ),
            "places": self.places,
        }

    def _tensor(self, i: Input) -> Tensor:
        if i.scalar is not None:
            return self.numbers[i.node].number
        held: Tensor = i.real if i.kind == "held" else wrap(i.real)
        return held


def build(entry: Entry, leaves: Sequence[Any], strided: Iterable[int] = ()) -> NativeCall | None:
    """The fast form of an entry for calls like this one, or None. `strided`: arguments whose memory has had gaps."""
    if (
        entry.backend.name == "interpret" or entry.sized is not None
    ):  # native entries know sizes, and an address of code
        return None
    if entry.grad_guards or entry.aliased or not _takes(entry, leaves):
        return None
    fast = NativeCall(entry, leaves, strided)
    return None if fast.start is None else fast


def _failed(donation: GradDonation, status: int, *_: Any) -> object:
    """Cleans up after a call that failed half way."""
    from hybridml_compiler.targets.cpu.runtime.status import reraise

    donation.lose()
    reraise(status)
    return MISS


def _miss(*args: Any, **names: Any) -> Any:
    return MISS


def _takes(entry: Entry, leaves: Sequence[Any]) -> bool:
    """Whether native code can take the arguments as they are."""
    arguments = [i for i in entry.inputs if i.kind == "argument"]
    taken = {i.index for i in arguments}
    if any(i.order is not None for i in arguments):
        return False
    if any(not in_host_memory(leaves[i.index]) for i in entry.updated.values()):
        return False
    for k, leaf in enumerate(leaves):
        if type(leaf) is np.ndarray and not leaf.dtype.isnative:
            return False
        if type(leaf) is not np.ndarray and k in taken:
            if not (type(leaf) is float or k in entry.integers or (_is_held(leaf) and leaf._node is None)):
                return False
        if k not in taken and (type(leaf) is float or issubclass(type(leaf), (Tensor, np.ndarray))):
            return False  # the second of two equal arguments
    return True


def _memory(value: Any) -> np.ndarray | None:
    """The memory of an array, or of a tensor that is no device's."""
    array = value._array if type(value) is Tensor else value
    return array if type(array) is np.ndarray else None


def _is_held(leaf: Any) -> bool:
    """Whether a leaf is a tensor in memory, of the host or a device."""
    return type(leaf) is Tensor or issubclass(type(leaf), DeviceTensor)


def _argument(spec: Any) -> Any:
    """An argument as the entry of a device has it."""
    from hybridml_compiler.targets.cpu.python_entry.spec import Constant, FloatCell

    return (spec.value,) if type(spec) is Constant else float if type(spec) is FloatCell else spec


def are_plain(captured: Sequence[Input]) -> bool:
    """Whether native code can read what a program captures."""
    if any(i.kind not in ("held", "array", "scalar") for i in captured):
        return False
    arrays = [
        in_memory(i.real._array if isinstance(i.real, Tensor) else i.real, i.order)
        for i in captured
        if i.kind != "scalar" and in_host_memory(i.real)
    ]
    return all(array.flags.c_contiguous and array.flags.aligned and array.dtype.isnative for array in arrays)


def _is_plain(path: CompiledPath) -> bool:
    """Whether a path needs no more than native code and its epilogue do."""
    if (
        path.copies
        or path.program.saved
        or path.own
        or path.cut
        or any(path.n_results <= k < path.n_own for k in path.program.differentiable())
    ):
        return False
    if any(o._node is not None and type(o._node) is not list for o in path.program.outputs[: path.n_results]):
        return False
    return all(i.kind == "held" for i, _ in path.grads) and not any(view.is_sized for view in path.views)


def _compiled(segment: Segment) -> Any:
    """The executable of a segment, compiled even if it was too small for that when it was traced."""
    if isinstance(segment.executable, Interpreted):
        segment.executable = segment.executable.compiled
    return segment.executable


def _present(source: Input, args: Sequence[Any]) -> np.ndarray:
    if source.kind == "argument":
        given = args[source.index]
    else:
        given = source.real if source.scalar is None else source.scalar.read()
    return given._array if isinstance(given, Tensor) else np.asarray(given, np.float64 if source.is_integer else None)
