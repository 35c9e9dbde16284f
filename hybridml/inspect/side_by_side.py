"""`hybridml.compare`: one function in both styles from the same start: times, kernels, memory, differences."""

from __future__ import annotations

import contextlib
import gc
import math
import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import FrameType, FunctionType, MethodType
from typing import Any, overload

import numpy as np

from hybridml_compiler.errors import ArgumentError
from hybridml_compiler.ops.table import OPS
from hybridml_compiler.runtime import cache
from hybridml_compiler.targets.device import host_copy

from ..core import pytree
from ..core.context import current_interpreter, watchers
from ..core.tensor import Device, Tensor
from ..tracing.function import TracedFunction
from ..tracing.run.backend import LLVM
from .comparison import Comparison, DeviceComparison, Difference, KernelLine, Style
from .snapshot import Snapshot

_NOISE = 64  # eps of the largest: what is smaller may be the rounding of a sum that is zero
BLOCK_MS = 1.0  # calls shorter than that are timed in blocks: reading the clock costs 0.1 us


@overload
def compare(
    fn: Callable[..., Any], *args: Any, repeats: int = 20, devices: None = None, why: bool = False, **kwargs: Any
) -> Comparison: ...
@overload
def compare(
    fn: Callable[..., Any], *args: Any, repeats: int = 20, devices: Sequence[Any], **kwargs: Any
) -> DeviceComparison: ...
def compare(
    fn: Callable[..., Any], *args: Any, repeats: int = 20, devices: Sequence[Any] | None = None, why: bool = False,
    **kwargs: Any,
) -> Comparison | DeviceComparison:  # fmt: skip
    """Runs `fn(*args, **kwargs)` eagerly and traced, and lays the two side by side.

    `fn` is a function, a module or an already traced function; it is traced and compiled again, so that the first
    call can be timed. Where the cache had code of an earlier run, `cached` says so and `cold_ms` is the first call
    of another one with an empty cache. A training step may be compared: both styles start from the same state
    (tensors, gradients, containers, attributes and random generators that the function can reach), which is copied
    first and put back at the end.

    `repeats` steady measurements a style are taken in turns, each of calls that fill a millisecond. Peak memory is what
    tracemalloc sees, which NumPy reports its arrays to, plus the compiled program's own arena. Of a function that
    prints, the first eager call is heard, and measurements are of single calls.

    With `devices` that is done on each of them, from the same state: tensors that the function can reach are moved
    there and back, but for those without axes, which may be anywhere. The report has the devices side by side as well.
    With `why` it also has what `explain_speed` finds: where the time goes, and what each factor is worth.

    Raises ArgumentError for fewer than two repeats, no device, or both devices and `why`, and whatever the function
    raises.

    >>> import hybridml as hm
    >>> found = hm.compare(lambda x: hm.exp(x) * 2 + x, hm.ones((64,)), repeats=2)
    >>> found.traced.kernels, found.results.ulp
    (1, 0)
    """
    if repeats < 2:
        raise ArgumentError(f"compare: repeats must be at least 2, got {repeats}: a spread needs two measurements")
    if devices is None:
        found = _compare(fn, args, kwargs, repeats)[0]
        if not why:
            return found
        from ..profiler.speed.explain import explain_speed

        return replace(found, why=explain_speed(fn, *args, **kwargs))
    if why:
        raise ArgumentError("compare: why explains the times on one device; move what the function uses there first")
    places = [Device(device).type for device in devices]
    if not places:
        raise ArgumentError("compare: devices must name one at least")
    snapshot = Snapshot(**{"function": fn, "arguments": args, "keywords": kwargs})
    measured = []
    for place in places:
        with snapshot.on(place):
            measured.append(_compare(fn, args, kwargs, repeats))
    reports, results = zip(*measured, strict=True)
    return DeviceComparison(
        reports[0].name,
        tuple(places),
        tuple(reports),
        tuple(difference(results[0], each) for each in results),
    )


def _compare(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], repeats: int
) -> tuple[Comparison, dict[str, np.ndarray]]:
    """The comparison of both styles, and the results of the first eager call."""
    name, plain, traced = both_styles(fn)
    snapshot = Snapshot(**{name: plain}, arguments=args, keywords=kwargs)
    eager = Run("eager", lambda: plain(*args, **kwargs), snapshot)
    compiled = Run("traced", lambda: traced(*args, **kwargs), snapshot)
    output = Output()
    try:
        with contextlib.redirect_stdout(output):
            before = snapshot.state()
            for run in (eager, compiled):
                run.first_call(output)
                run.measure_memory()
            cached = _cached(traced)
            cold_ms = _cold_ms(fn, args, kwargs, snapshot) if cached else compiled.first_ms
            eager.kernels, eager.bytes = _operations(eager)
            take_turns([eager, compiled], repeats, 0.0 if output.writes else BLOCK_MS)
    finally:
        snapshot.restore()
    lines, missed = _describe(traced, compiled, snapshot)
    comparison = Comparison(
        name=name,
        eager=eager.style(),
        traced=compiled.style(),
        results=difference(eager.results, compiled.results),
        state=difference(written(eager.state, before), written(compiled.state, before)),
        kernels=lines,
        compiles=traced.cache_info().compiles,
        not_restored=missed,
        repeats=repeats,
        cached=cached,
        cold_ms=cold_ms,
        prints=output.writes > 0,
    )
    return comparison, {**eager.results, **written(eager.state, before)}


def both_styles(fn: Callable[..., Any], who: str = "compare") -> tuple[str, Callable[..., Any], TracedFunction]:
    """The name of a function, the function as Python has it, and a new traced function over it."""
    # `trace` on a module returns that module, with a traced `forward`.
    traced = fn if isinstance(fn, TracedFunction) else getattr(fn, "__dict__", {}).get("forward")
    plain = traced._fn if isinstance(traced, TracedFunction) else fn
    if not callable(plain):
        raise ArgumentError(f"{who}: takes a function or a module, got {type(fn).__name__}")

    def call(*args: Any, **kwargs: Any) -> Any:
        return plain(*args, **kwargs)

    name = call.__name__ = str(getattr(fn, "__name__", type(fn).__name__))
    backend = traced._backend if isinstance(traced, TracedFunction) else LLVM
    return name, plain, TracedFunction(plain if isinstance(plain, FunctionType | MethodType) else call, backend)


class Output:
    """Standard output while functions are compared: counts what they write, and hands it on while it is `heard`."""

    def __init__(self) -> None:
        self.file, self.heard, self.writes = sys.stdout, True, 0

    def write(self, text: str) -> int:
        self.writes += 1
        return self.file.write(text) if self.heard else len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)


def _cached(traced: TracedFunction) -> str:
    """The part of the last program that came from the cache; empty where all was compiled."""
    stats = traced._shown().program.executable.stats
    if not hasattr(stats, "reuse"):  # a backend that compiles nothing
        return ""
    if stats.reuse is None:
        return "the whole program"
    return f"{stats.cached_kernels} of {stats.distinct_kernels} kernels" if stats.cached_kernels else ""


def _cold_ms(fn: Callable[..., Any], args: Any, kwargs: Any, snapshot: Snapshot) -> float:
    """The first call of another traced function, which finds nothing in the cache."""
    again = both_styles(fn)[2]
    snapshot.restore()
    with cache.emptied():
        start = time.perf_counter()
        again(*args, **kwargs)
        return (time.perf_counter() - start) * 1e3


class Run:
    """One style while it is measured. Every measurement starts from the snapshot."""

    def __init__(self, name: str, call: Callable[[], Any], snapshot: Snapshot) -> None:
        self.name, self.call, self.snapshot = name, call, snapshot
        self.results: dict[str, np.ndarray] = {}
        self.state: dict[str, np.ndarray] = {}
        self.samples: list[float] = []  # milliseconds
        self.kernels = self.bytes = self.peak = 0
        self.stages: dict[str, float] = {}

    def first_call(self, output: Output) -> None:
        self.snapshot.restore()
        start = time.perf_counter()
        value = self.call()
        self.first_ms = (time.perf_counter() - start) * 1e3
        output.heard = False
        self.results = arrays_in(value)
        self.state = self.snapshot.state()
        self.call()  # the second call goes on from there, as in a program: it may need another signature

    def measure_memory(self) -> None:
        self.snapshot.restore()
        outside = tracemalloc.is_tracing()
        if not outside:
            tracemalloc.start()
        try:
            tracemalloc.reset_peak()
            base = tracemalloc.get_traced_memory()[0]
            self.call()
            self.peak = tracemalloc.get_traced_memory()[1] - base
        finally:
            if not outside:
                tracemalloc.stop()

    def sample(self, block_ms: float) -> None:
        """Measures the milliseconds per call, over as many calls as fill a block: at least one."""
        self.snapshot.restore()
        self.call()  # guards are checked once more after the restore has assigned attributes
        count, elapsed = 0, 0.0
        clock = time.perf_counter
        start = clock()
        while not count or elapsed < block_ms:
            more = max(1, count)  # 1, 1, 2, 4, ... calls between two looks at the clock
            for _ in range(more):
                self.call()
            count += more
            elapsed = (clock() - start) * 1e3
        self.samples.append(elapsed / count)

    def style(self) -> Style:
        lower, median, upper = statistics.quantiles(self.samples, n=4, method="inclusive")
        return Style(
            self.name, self.first_ms, median, lower, upper, self.kernels, self.bytes, self.peak, self.stages
        )  # fmt: skip


def take_turns(runs: list[Run], repeats: int, block_ms: float) -> None:
    """Measures the styles by turns: what else the machine does changes with time, and both must meet the same."""
    enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        for _ in range(repeats):
            for run in runs:
                run.sample(block_ms)
    finally:
        if enabled:
            gc.enable()


def _operations(run: Run) -> tuple[int, int]:
    """(operations that an eager call runs, bytes that they read and write), by watching the functions of the rows.

    Views move nothing; a library function that eager runs compiled counts as its kernels. A profile hook and not a
    counter in the functions: those are the product's hot path.
    """
    count = moved = 0
    last: Any = None

    def watch(frame: FrameType, event: str, result: Any) -> None:
        nonlocal count, moved, last
        code = frame.f_code
        if event != "return" or current_interpreter() is not None:  # what is captured does not run
            return
        called = frame.f_locals["self"] if code is TracedFunction.__call__.__code__ else None
        if called is not None and called._last is not None:  # a composite, or an optimizer's step, that runs compiled
            stats = called.stats
            count, moved = count + stats.kernels, moved + stats.bytes
        if not code.co_filename.startswith("<dispatch ") or not isinstance(result, Tensor):
            return
        op = OPS.get(code.co_name)
        if op is None or result is last:  # a pull function; or the general path, which has called the row again
            return
        last = result
        count += 1
        if op.kind != "movement" or getattr(result._array, "base", None) is None:
            given = [frame.f_locals.get(name) for name in op.inputs]
            tensors = [t for x in given for t in (x if isinstance(x, list | tuple) else [x])]
            moved += result.nbytes + sum(t.nbytes for t in tensors if isinstance(t, Tensor | np.ndarray))

    run.snapshot.restore()
    before = sys.getprofile()
    watchers.value += 1
    sys.setprofile(watch)
    try:
        run.call()
    finally:
        sys.setprofile(before)
        watchers.value -= 1
    return count, moved


def _describe(traced: TracedFunction, run: Run, snapshot: Snapshot) -> tuple[tuple[KernelLine, ...], tuple[str, ...]]:
    """Fills in what the compiled program says of itself; its kernels, and written tensors that the snapshot missed."""
    entry = traced._shown()
    executable = entry.program.executable
    launches = getattr(executable, "launches", ())
    run.kernels, run.bytes = traced.stats.kernels, traced.stats.bytes
    # Large results are handed out again once nobody holds them: a call may allocate nothing, and still needs them.
    results = sum(aval.nbytes for aval in getattr(executable, "outputs", ()))
    run.peak = max(run.peak, results) + getattr(executable, "arena_bytes", 0)
    run.stages = {"trace": traced.stats.trace_ms, **getattr(executable.stats, "milliseconds", {})}
    lines = tuple(
        KernelLine(kind_of(launch.spec), tuple(launch.where), tuple(launch.reasons), launch.nbytes)
        for launch in launches
    )
    written = [source for _, source in entry.writes if source.kind == "held"]
    missed = tuple(source.node.name for source in written if not snapshot.holds(source.real))
    return lines, missed


def kind_of(spec: Any) -> str:
    """`matmul f32 128x512x784`, `NumPy's eig`, `copy`, `loop`."""
    name = type(spec).__name__
    return str(spec) if name in ("Product", "HostCall", "Transform") else "copy" if name == "Copy" else "loop"


def arrays_in(value: Any) -> dict[str, np.ndarray]:
    """Copies of the leaves of a result that are numbers, by their position."""
    found = {}
    for k, leaf in enumerate(pytree.tree_leaves(value)):
        if isinstance(leaf, Tensor):
            found[f"result {k}"] = host_copy(leaf._array)
        elif isinstance(leaf, np.ndarray | np.generic | bool | int | float):
            found[f"result {k}"] = np.array(leaf)
    return found


def written(after: dict[str, np.ndarray], before: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays that a call has changed or added."""
    return {path: array for path, array in after.items() if path not in before or distance(array, before[path])[2]}


def difference(eager: dict[str, np.ndarray], traced: dict[str, np.ndarray]) -> Difference:
    """The largest difference over arrays of one name; one that only one style has differs by infinity.

    An array that is rounding around zero, as the gradient of a bias before a normalisation, is measured by the largest
    element of all arrays that end with its name: all gradients, or all momenta.
    """
    names = list(dict.fromkeys([*eager, *traced]))
    sizes = {name: max(map(_largest, (eager.get(name), traced.get(name)))) for name in names}
    scales: dict[str, float] = {}
    for name, size in sizes.items():
        scales[_kind(name)] = max(scales.get(_kind(name), 0.0), size)
    for name, size in sizes.items():
        array = eager.get(name)
        if array is not None and array.dtype.kind in "fVc" and size <= _NOISE * _eps(array) * scales[_kind(name)]:
            sizes[name] = scales[_kind(name)]
    found = {name: distance(eager.get(name), traced.get(name), sizes[name]) for name in names}
    where = max(names, key=lambda name: found[name][::-1], default="")
    if not where or not found[where][2]:
        return Difference(len(names), 0.0, 0.0, 0)
    return Difference(len(names), *found[where], where, sizes[where])


def _kind(name: str) -> str:
    """`grad` of `step.model.0.bias.grad`."""
    return name.rpartition(".")[2]


def _largest(array: np.ndarray | None) -> float:
    """The largest finite element, without its sign."""
    if array is None or array.dtype.kind not in "fVc":
        return 0.0
    parts = np.ascontiguousarray(array).view(array.real.dtype) if array.dtype.kind == "c" else array
    return float(np.max(np.abs(parts), where=np.isfinite(parts), initial=0))


def _eps(array: np.ndarray) -> float:
    return 2.0**-7 if array.dtype.kind == "V" else float(np.finfo(array.dtype).eps)


def distance(a: np.ndarray | None, b: np.ndarray | None, scale: float = 0.0) -> tuple[float, float, int]:
    """Largest difference of two arrays: absolute, as a part of the largest element, in units of its last place.

    Not each element's own units: of those, two roundings of a zero are a billion apart. `scale`: of a larger element
    elsewhere to measure by. NaN equals NaN, and 0.0 equals -0.0. Arrays of different shape or dtype differ by infinity.

    >>> one = np.float32([1.0])
    >>> distance(one, one + 2 * np.finfo(np.float32).eps)[2]
    2
    """
    if a is None or b is None or a.shape != b.shape or a.dtype != b.dtype:
        return math.inf, math.inf, sys.maxsize
    if a.dtype.kind == "c":
        a, b = (np.ascontiguousarray(x).view(x.real.dtype) for x in (a, b))
    if a.dtype.kind not in "fV":
        differ = a != b
        pairs = [(int(x), int(y)) for x, y in zip(a[differ], b[differ], strict=True)]
        ulp = max((abs(x - y) for x, y in pairs), default=0)
        whole = max((abs(int(x)) for x in (*a.ravel(), *b.ravel())), default=1) if pairs else 1
        return float(ulp), ulp / whole, ulp
    differ = ~((a == b) | (np.isnan(a) & np.isnan(b)))
    if not differ.any():
        return 0.0, 0.0, 0
    if not (np.isfinite(a[differ]).all() and np.isfinite(b[differ]).all()):
        return math.inf, math.inf, sys.maxsize
    largest = max(_largest(a), _largest(b), scale)
    with np.errstate(over="ignore"):
        absolute = float(np.max(np.abs(a[differ].astype(np.float64) - b[differ])))
    return absolute, absolute / largest, math.ceil(min(absolute / _last_place(largest, a.dtype), sys.maxsize))


def _last_place(value: float, dtype: np.dtype) -> float:
    """The distance of a positive number from the one before it."""
    bits = np.array(value, dtype).view(f"i{dtype.itemsize}")
    return value - float((bits - 1).astype(bits.dtype).view(dtype))
