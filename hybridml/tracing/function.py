"""The callable that `trace` makes of a function."""

from __future__ import annotations

import functools
import inspect
import sys
import time
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Concatenate, Generic, Literal, ParamSpec, Self, TypeVar, cast, overload

from hybridml_compiler import time_limit
from hybridml_compiler.config import is_deterministic
from hybridml_compiler.errors import LOCATION, ArgumentError, TraceError
from hybridml_compiler.hooks import hooks
from hybridml_compiler.locks import rlock
from hybridml_compiler.record import record

from ..core import pytree
from ..core.context import stance, watch_var
from ..core.interpreter import eagerly, interpreter_stack
from ..core.library import MISS
from ..core.precision.autocast import autocast_alone
from ..core.tracebacks import shorten
from .capture.tracer import current_tracer
from .casting import configured, twin
from .introspection import CacheInfo, Introspection
from .lookup import Lookup
from .python_state.names import arguments
from .python_state.promoted_ints import Integers
from .python_state.rebound import Rebound
from .reports import MOST_OTHERS, MOST_PROGRAMS, Reports
from .run.backend import Backend, Memory, Placement, backend_of
from .run.compiled_path import CompiledPath, Leaves
from .run.native_call import NativeCall, build
from .run.whole_call import callers
from .signals import handled_outside
from .specialize import errors
from .specialize import retrace_reasons as reasons
from .specialize.call_leaves import taking_calls
from .specialize.eager_calls import EagerCalls, Patience, Spending
from .specialize.entry import Entry
from .specialize.errors import (
    CheckFailed,
    NotCacheable,
    NotGeneralizable,
    RunEagerly,
    TakesLong,
    TraceFailed,
    Untraceable,
)
from .specialize.gc_pause import collector_paused
from .specialize.path_tree import Arrays
from .specialize.signature import Fields, Signature
from .specialize.symbolic_shapes import Families, Sized, StatedFamilies

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R", covariant=True)
S = TypeVar("S")
Check = Literal["first", "always"] | int | None


@record
class Call:
    """A call with some arguments: the path it runs, that path's operands, and the values computed on the way."""

    structure: pytree.Structure
    leaves: Leaves
    entry: Entry
    path: CompiledPath
    known: Arrays


class TracedFunction(Introspection, Reports, Lookup, Generic[P, R]):
    """A function that is captured once for each signature and then runs compiled. Made by `hybridml.trace`.

    Type checkers see the parameters and the result of the function: ``TracedFunction[[Tensor, float], Tensor]``.

    >>> import hybridml as hm
    >>> @hm.trace
    ... def double(x):
    ...     return x * 2
    >>> isinstance(double, hm.TracedFunction), double(hm.tensor([1.0])).tolist()
    (True, [2.0])
    """

    __qualname__: str

    def __init__(
        self, fn: Callable[P, R], backend: str | Backend = "llvm", most: int = MOST_PROGRAMS, strict: bool = False,
        silent: bool = False, dynamic: bool = True, check: Check = None, placement: Placement = None,
        memory: Memory = None,
    ) -> None:  # fmt: skip
        """Wraps `fn`. `most`: programs compiled; calls that need further ones run `fn` itself, which is said unless
        `silent` (a function of the library, which a stance leaves as it is). `dynamic`: sizes that change become
        symbolic. `check`: calls that eager runs beside (see audits.py).
        """
        if not callable(fn):
            also = "; the sum of a diagonal is hm.linalg.trace(x)" if hasattr(fn, "__array__") else ""
            raise ArgumentError(f"trace: takes a function or a module, got {type(fn).__name__}{also}")
        if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
            raise ArgumentError(
                f"trace: {getattr(fn, '__name__', 'this')} is a generator function, which runs between the steps of "
                "its user; trace the function that computes one of them, or return a list"
            )
        if check not in (None, "first", "always") and not (type(check) is int and check > 0):
            raise ArgumentError(f"trace: check must be 'first', 'always' or a number of calls, got {check!r}")
        if check is not None and inspect.iscoroutinefunction(fn):
            raise ArgumentError("trace: check runs a function twice, which a coroutine function cannot be")
        functools.update_wrapper(self, fn)
        self._backend = backend if isinstance(backend, Backend) else backend_of(backend, placement, memory)
        self._fn, self._most = fn, most
        self._strict, self._silent = strict, silent
        self._is_async = inspect.iscoroutinefunction(fn)
        self._families = Families() if dynamic and self._backend.takes_sizes else None
        self._integers = Integers()
        self._name = getattr(fn, "__name__", type(fn).__name__)
        self._last: Entry | None = None
        self._direct: Callable[..., Any] | None = None  # of the entry that a call with plain arguments used last
        self._eager_calls: EagerCalls | None = None
        self._spending, self._given_up = Spending(), 0  # the number of traces that were given up
        self._check = check
        self._every = 1 if check == "always" else check if isinstance(check, int) else 0
        self._calls, self._lock = 0, rlock()  # calls are counted where every Nth is checked
        self._compiles, self._hits, self._trace_ms = 0, 0, 0.0
        self.twins: dict[Any, Any] = {}  # (see casting.py)
        self._states = 0  # programs for calls that find one state of Python and leave another
        self._rebound = Rebound()
        self._begin_lookup()
        self._begin_reports()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        out: Any
        direct = self._direct
        if direct is not None:
            out = direct(*args, **kwargs)
            if out is not MISS:
                self._hits += 1
                return out
        if not self._is_async and (narrow := autocast_alone()) is not None:
            return eagerly(lambda: twin(self, narrow)(*args, **kwargs))
        if interpreter_stack() is not None:  # a traced function inside another is part of it
            tracer = current_tracer()
            fn = self._fn if tracer is None else tracer.copies.get(id(self._fn), self._fn)
            return fn(*args, **kwargs)
        if (other := configured(self)) is not self:
            return cast(R, other(*args, **kwargs))
        try:
            return cast(R, self._awaited(args, kwargs) if self._is_async else self._general(args, kwargs))
        except Exception as error:
            shorten(error)
            raise

    async def _awaited(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Calls a traced coroutine function. Where it runs eagerly there is a coroutine to wait for."""
        out = self._general(args, kwargs)
        return await out if inspect.iscoroutine(out) else out

    def _general(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if stance() == "eager" and not self._silent:
            return self._fn(*args, **kwargs)
        if self._every:
            self._calls += 1
            if self._calls % self._every == 0:
                return self._checked(lambda: self._run(args, kwargs), args, kwargs)
        if self._eager_calls is not None and self._eager_calls.take(args, kwargs):
            with self._eager_calls.patience.eager_call():
                return self._fn(*args, **kwargs)
        return self._run(args, kwargs)

    def _run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        leaves, structure, given, key, objects = self._given(args, kwargs)
        failed, why, has_called = None, "", False
        try:
            for entry in self._entries.get(key) or self._other_sizes(key):
                with entry.alone():
                    if not entry.holds(leaves):
                        continue
                    trial = None if entry.eager else self._trial(entry)
                    eagerly = entry.eager or (trial is not None and trial.is_eagers_turn)
                    if not eagerly:
                        start = time_limit.clock()
                        out, *found = self._compiled_call(entry, structure, leaves)
                        if out is not MISS:
                            seconds = time_limit.clock() - start
                            if trial is not None:
                                trial.compiled.append(seconds)
                            if entry.sized is not None:
                                self._called(entry, key, seconds)
                            return out
                        known, passed, grown = found
                if trial is not None and eagerly:
                    with trial.eager_call():
                        return self._fn(*args, **kwargs)
                if entry.eager and entry.patience.is_due and stance() is None:
                    entry.eager = eagerly = False
                    known, passed, grown = Arrays(_nothing), [], entry.grown
                if eagerly or (passed and not self._may_grow(entry, passed[-1])):
                    self._eager_calls = EagerCalls(args, kwargs, entry.patience) if entry.eager else None
                    with entry.patience.eager_call(), self._spending.eager_call():
                        return self._fn(*args, **kwargs)
                on = entry, known, grown
                return self._new(args, kwargs, given, structure, leaves, objects, on)
            if self._programs() >= self._most and not (self._silent and is_deterministic()):
                if not self._silent:
                    self._report_eager(f"has {self._most} compiled programs: calls that need another one run eagerly")
                return self._fn(*args, **kwargs)
            if key not in self._often and self._waits(lambda: self._why(key, given, leaves)):
                with self._spending.eager_call():
                    return self._fn(*args, **kwargs)
            return self._new(args, kwargs, given, structure, leaves, objects)
        except TakesLong as error:
            if error.patience is not None and error.patience.tries == 1:
                again = f"until they have taken {2 * error.patience.seconds:.0f} s, when it is tried again"
                self._report_eager(f"{error}: such calls run eagerly {again}")
        except RunEagerly as error:
            self._report_eager(f"{error}: such calls run eagerly")
        except TraceFailed as error:
            failed, why = error.entry, error.what
        except Untraceable as error:
            if self._strict:
                raise
            self._report(f"runs eagerly in such calls: {str(error).partition(LOCATION)[0]}")
        except CheckFailed:  # nothing has been written yet: Python does it again, with its own error where it happens
            has_called = True
        try:
            out = self._fn(*args, **kwargs)  # not in a handler: an error of its own is then the only one that is shown
        finally:
            if has_called:
                hooks.forget_effects()
        if failed is not None:
            failed.eager = True
            self._entries.setdefault(key, []).insert(0, failed)
            self._report_eager(f"cannot be traced ({why}): calls like this one run eagerly")
        return out

    def _compiled_call(self, entry: Entry, structure: pytree.Structure, leaves: Leaves) -> Any:
        """The result of a call, or MISS, with how far the entry has come."""
        out = self._fast_call(entry, structure, leaves) if watch_var.get() is None else MISS
        if out is not MISS:
            return out, Arrays(_nothing), [], 0
        grown = entry.grown
        path, known, passed = entry.find(leaves)
        if path is not None:
            self._hits += 1
            self._last = entry
            out = entry.run(path, leaves, known)
        return out, known, passed, grown

    def _fast_call(self, entry: Entry, structure: pytree.Structure, leaves: Leaves) -> Any:
        """The result of a call the short way, or MISS."""
        fast = self._fast(entry, leaves)
        if fast is None:
            return MISS
        if (out := fast.timed(leaves)) is not MISS:
            self._hits += 1
            self._last = entry
            if not (fast.left or self._is_async or self._every or entry.doubles or entry.trial):
                self._direct = taking_calls(fast.direct, structure, leaves)
        elif fast.has_more_gaps(leaves):
            entry.fast = build(entry, leaves, fast.strided)
        elif fast.moved():  # places that hold other objects, equal to the ones seen
            entry.fast = build(entry, leaves, fast.strided)
        return out

    def _fast(self, entry: Entry, leaves: Leaves) -> NativeCall | None:
        """The native call of an entry, made when a path of it is taken for the second time."""
        grown = entry.grown
        if entry.tried != grown and any(path.calls for path in entry.paths):
            entry.fast, entry.tried = build(entry, leaves), grown
        fast: NativeCall | None = entry.fast
        if fast is not None:
            fast.refresh()
        return fast

    def _new(self, args: tuple[Any, ...], kwargs: dict[str, Any], *new: Any) -> Any:
        """Traces a call, if the stance allows it."""
        now = None if self._silent or not self._entries else stance()
        if now == "eager_on_retrace":
            return self._fn(*args, **kwargs)
        if now == "fail_on_retrace":
            why = (
                "a value that it asks for is another than before"
                if len(new) > 4
                else self._why(self._integers.key(new[0]), new[0], new[2])
            )
            raise TraceError(f"{self._name} would be traced again in the stance fail_on_retrace: {why}")
        with self._spending.of_a_program(self._hits, new[2]):
            if self._check == "first":
                return self._checked(lambda: self._trace(args, kwargs, *new), args, kwargs)
            return self._trace(args, kwargs, *new)

    def _trace(self, args: tuple[Any, ...], kwargs: dict[str, Any], *new: Any) -> Any:
        entry, path, known = self._grown(*new)
        with entry.alone():
            # By now another thread may have drawn the numbers that were looked at, or stored a gradient.
            now, known = entry.find(new[2])[:2] if entry.drawn else (path, known)
            if now is not None and entry.grads_hold(new[2]):
                return entry.run(now, new[2], known)
        return self._run(args, kwargs)

    def resolve(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
        """The path of a call with these arguments, traced if it is new. It is not run: no state is written.

        TraceError where such a call runs eagerly.
        """
        found = self._resolved(args, kwargs)
        assert found is not None
        return found

    def keep_sizes(self) -> None:
        """Lets no size become a symbol from now on."""
        self._families = None

    def state_sizes(self, axes: Mapping[int, Sequence[int]]) -> None:
        """Lets these axes of the leaves, counted from the last one, -1, be symbolic in all programs, and no others."""
        self._families = StatedFamilies(axes)

    def known(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call | None:
        """`resolve`, which traces no more programs than the function may have: None where it has these."""
        return self._resolved(args, kwargs, limited=not is_deterministic())

    def _resolved(self, args: tuple[Any, ...], kwargs: dict[str, Any], limited: bool = False) -> Call | None:
        if (other := configured(self)) is not self:
            return cast(Call | None, other._resolved(args, kwargs, limited))
        leaves, structure, given, key, objects = self._given(args, kwargs)
        on = None
        try:
            for entry in self._entries.get(key) or self._other_sizes(key):
                if entry.eager or not entry.holds(leaves):
                    continue
                grown = entry.grown
                path, known, _ = entry.find(leaves)
                if path is not None:
                    return Call(structure, leaves, entry, path, known)
                on = entry, known, grown
                break
            if limited and self._programs() >= self._most:
                return None
            entry, path, known = self._grown(given, structure, leaves, objects, on)
        except (RunEagerly, TraceFailed, errors.FirstCall) as error:
            what = f"cannot be traced ({error.what})" if isinstance(error, TraceFailed) else str(error)
            raise TraceError(f"{self._name} {what}: such calls run eagerly, there is no program to see") from None
        return Call(structure, leaves, entry, path, known)

    def _grown(
        self, fields: Fields, structure: pytree.Structure, leaves: Leaves, objects: list[Any],
        on: tuple[Entry, Arrays, int] | None = None,
    ) -> tuple[Entry, CompiledPath, Arrays]:  # fmt: skip
        """Traces a new path: of the entry that holds for this call (`on`), or of a new one."""
        with self._lock:
            self._since = time_limit.clock()  # of all traces that this call may take
            raw, key_of_call = self._key(fields, leaves)
            given, key = Signature.of(raw), Signature.of(key_of_call)
            for entry in self._entries.get(key, ()):  # another thread may have been faster
                if entry.holds(leaves) and not entry.eager:
                    path, known = None, on[1] if on is not None and on[0] is entry else Arrays(_nothing)
                    if on is None or on[0] is not entry or on[2] != entry.grown:
                        path, known, _ = entry.find(leaves)
                    break
            else:
                path, known = None, Arrays(_nothing)
                now = self._integers.seen(given)
                often = key_of_call in self._often
                why = "" if often or not self._entries else self._why(key, key if now == key else given, leaves)
                more = now.integers - key.integers
                key = now
                sized = None if often else self._sized(given, key, structure, leaves, objects)
                if sized is not None:
                    what, entry, path, known = sized
                else:
                    what, entry = [], self._entry(key, objects, leaves)
                    path, known, entry = self._compiled(given, key, entry, structure, leaves, known)
                if often:
                    self._note("such calls come often: a program for their sizes alone")
                if why:
                    names = list(arguments(self._fn, structure))
                    what += [names[k] for k in more if k in entry.integers - entry.pinned]
                    self._count(why, bool(what))
                    self._note(why + (f": now for any {', '.join(what)}" if what else ""))
                return entry, path, known
            if path is None:
                path, known, entry = self._compiled(given, key, entry, structure, leaves, known)
            else:
                self._hits += 1
        return entry, path, known

    def _entry(self, key: Signature, objects: list[Any], leaves: Leaves, sized: Sized | None = None) -> Entry:
        made = Entry(
            self._fn, self._name, self._backend, objects, self._strict, sized, key.integers, self._integers,
            key.doubles, key.positions, leaves.places,
        )  # fmt: skip
        made.patience = Patience(self._given_up)
        return made

    def _compiled(
        self, given: Signature, key: Signature, entry: Entry, structure: pytree.Structure, leaves: Leaves,
        known: Arrays,
    ) -> tuple[CompiledPath, Arrays, Entry]:  # fmt: skip
        """A new path of an entry; one in which all numbers but floats are constants, where the function fails with
        what stands for them."""
        try:
            return *self._compile(given, key, entry, structure, leaves, known), entry
        except NotGeneralizable:
            plain = entry.plain()
            try:
                found = self._compile(given, given, plain, structure, leaves, Arrays(_nothing))
            except (RunEagerly, NotCacheable):
                self._integers.fix_all(given, entry.integers, entry.scalars)
                raise
        self._integers.fix_all(given, entry.integers, entry.scalars)
        return *found, plain

    def _sized(
        self, given: Signature, key: Signature, structure: pytree.Structure, leaves: Leaves, objects: list[Any]
    ) -> tuple[list[str], Entry, CompiledPath, Arrays] | None:
        """A new program for more sizes than those of this call; None where it is to be compiled for these."""
        while self._families is not None:
            pattern = self._families.pattern(key)
            if pattern is None:
                break
            entry = self._entry(key, objects, leaves, Sized(pattern))
            entry.keeps_loops = any(e.rolled for entries in self._entries.values() for e in entries)
            try:
                path, known = self._compile(given, key, entry, structure, leaves, Arrays(_nothing))
            except NotGeneralizable as refused:
                for line in self._families.refuse(key, pattern, refused, arguments(self._fn, structure)):
                    self._note(line)
                continue
            return pattern.describe(arguments(self._fn, structure)), entry, path, known
        return None

    def _compile(
        self, given: Signature, key: Signature, entry: Entry, structure: pytree.Structure, leaves: Leaves,
        known: Arrays,
    ) -> tuple[CompiledPath, Arrays]:  # fmt: skip
        start = time.perf_counter()
        entry.silent, entry.since = self._silent, self._since
        try:
            with collector_paused(), handled_outside():
                path, known = entry.grow(structure, leaves, known)
        except (RunEagerly, NotCacheable) as error:
            entry.eager = True
            if type(error) is TakesLong:
                self._given_up += 1
                entry.patience.give_up()
                error.patience = entry.patience
            entries = self._entries.setdefault(key, [])
            if entry not in entries:
                entries.insert(0, entry)
            raise
        path.first_ms = (time.perf_counter() - start) * 1e3  # the run itself adds its time
        self._trace_ms = path.first_ms - path.program.compile_ms
        self._compiles += 1
        self._last, entry.last, self._direct = entry, path, None
        once = [effect for effect in path.effects if not effect.repeats]
        more = leaves.places or len(self._rebound) < self._most
        if more and (names := self._rebound.learn(leaves.objects, entry.watch, once)):
            self._note(f"it rebinds {names}: arguments from now on")
            return path, known
        entries = self._entries.setdefault(key, [])
        if entry.pinned:  # ints at which Python has looked are part of the signature
            if entry in entries:
                entries.remove(entry)
            key = self._integers.fix(given, entry.pinned)
            if type(self._families) is Families:
                self._families.traced(self._integers.place(given, entry.pinned))  # as lengths, later
            entries = self._entries.setdefault(key, [])
        if entry not in entries:
            entries.insert(0, entry)
        if self._families is not None:
            self._families.traced(key, entry)
        if all(effect.before for effect in once) and (self._states < MOST_OTHERS or not once):
            self._states += bool(once)
            entry.watch.keep([guard for effect in once for guard in effect.before])
        else:
            entry.eager = True
            what = f"changes {', '.join(sorted(set(map(str, once))))}, which compiled calls cannot do"
            self._report_eager(f"{what}: its calls run eagerly")
        return path, known

    def _why(self, key: Fields, given: Fields, leaves: Leaves) -> str:
        if same := self._entries.get(key):
            return reasons.of_state(same[0], leaves)
        return reasons.of_arguments(self._fn, list(map(Signature.of, self._entries)), Signature.of(given))

    @overload
    def __get__(self, obj: None, owner: type | None = None) -> Self: ...
    @overload  # a method of Python, which has the attributes of its function
    def __get__(
        self: TracedFunction[Concatenate[S, Q], R], obj: S, owner: type | None = None
    ) -> TracedFunction[Q, R]: ...
    def __get__(self, obj: Any, owner: type | None = None) -> Any:
        return self if obj is None else types.MethodType(self, obj)

    def __reduce__(self) -> Any:
        found: Any = sys.modules.get(self.__module__)
        for name in self.__qualname__.split("."):
            found = getattr(found, name, None)
        return self.__qualname__ if found is self else self.reduced_by_value()

    def reduced_by_value(self) -> tuple[Any, ...]:
        """The parts that pickle makes a copy of, also in a process that has no such name."""
        dynamic = self._families is not None
        return TracedFunction, (self._fn, self._backend, self._most, self._strict, self._silent, dynamic, self._check)

    def __repr__(self) -> str:
        info = self.cache_info()
        return f"<traced {self._name}: {info.entries} compiled signatures, {info.hits} hits>"

    # -- what there is to see

    def cache_info(self) -> CacheInfo:
        """Numbers of calls that compiled and that did not, and of the programs kept."""
        return CacheInfo(self._compiles, self._hits, self._programs())

    def clear(self) -> None:
        """Forgets every compiled signature (and the tensors they hold)."""
        with self._lock:
            for kept in (
                self._entries,
                self._rebound,
                self._integers,
                self._reported,
                self._families,
                self._often,
                self.twins,
            ):
                if kept is not None:
                    kept.clear()
            self._last = self._direct = self._eager_calls = None
            self._states = 0


callers.append(TracedFunction.__call__.__code__)


def _nothing(node: Any) -> Any:
    raise KeyError(node)
