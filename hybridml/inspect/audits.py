"""`hybridml.audit`: a function eager beside traced, and the first operation whose compiled code does something else.

Every operation of the captured graph is compiled with its value kept, and compared with what its row computes eagerly
from the same operands, so that a difference is named where it is made and not where it shows. Float64 is the arbiter.
What the compiled program itself (fused, in place) gives is compared with a true eager run from the same state: results,
gradients, what is written, random generators. Where only that differs, a binary search over the program's values finds
the first one that is wrong when it is compiled as it is fused.

The contract: bits, for everything but sums (reductions, products, scans, scattered additions), which add in another
order. A sum may be off by what rounding of its terms can make: 2 (n + 2) eps sum|term|. A result that has sums in it
may be off by 2**10 eps of the largest element of its array, or, where numbers have cancelled, by what it moves in
float64 when every sum on the way is moved by its bound, up or down at random.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hybridml_compiler import dtypes
from hybridml_compiler.errors import LOCATION, HybridmlError, TraceError
from hybridml_compiler.graph import ir
from hybridml_compiler.graph.body import bodies_of
from hybridml_compiler.graph.independence import dependence
from hybridml_compiler.graph.interpret import interpret
from hybridml_compiler.graph.sizes import at_sizes
from hybridml_compiler.passes import run_passes
from hybridml_compiler.sizes.values import bindings
from hybridml_compiler.targets.device import host_copy, on_host

from ..display.reports import Report
from ..display.tables import Figure
from ..tracing.capture.memory_order import as_seen
from ..tracing.function import Call, TracedFunction
from ..tracing.run.compiled_path import CompiledPath
from ..tracing.run.program import compile_graph
from .comparison import Difference, in_ulp, said
from .explanation import flops
from .fetch import inputs_of
from .side_by_side import arrays_in, both_styles, difference, distance, written
from .snapshot import Snapshot
from .stances import eager

_EPS = 2.0**10  # of the largest element: rounding of whole programs
_MOVES = 3  # float64 runs with sums moved


@dataclass(frozen=True)
class Finding:
    """An operation whose compiled code does something else than its row, from the same operands."""

    op: str
    where: str  # the user's line
    type: str
    ulp: int
    absolute: float
    nearer: str  # to float64: "eager" or "traced"; "" where float64 cannot say
    fused: bool  # only as part of the fused program
    relative: float = 0.0  # `absolute` as a part of the largest element


@dataclass(frozen=True, repr=False)
class Audit(Report):
    """Report of `hybridml.audit`. True where nothing differs beyond the contract."""

    name: str
    eager: str  # why such calls run eagerly, where they do
    operations: int  # compared
    roundings: int  # sums whose last bits differ, within the contract
    first: Finding | None
    results: Difference
    state: Difference  # tensors and arrays that it writes, gradients and random generators among them
    within: bool  # what these two differ by is in the contract
    in_order: tuple[str, ...] = ()  # loops over `prange` whose steps do not run side by side: the user's line, and why

    def __bool__(self) -> bool:
        return self.first is None and self.within

    def to_text(self) -> str:
        """Whether the styles agree, the first operation that differs, what was compared."""
        return "\n".join(self._lines())

    @property
    def figures(self) -> list[Figure]:
        """Whether the styles agree, and how much was compared."""
        if self.eager:
            return []
        verdict = Figure("agree", "traced and eager", "good") if self else Figure("differ", "traced and eager", "bad")
        rounded = Figure(f"{self.roundings:,}", "sums whose last bits differ")
        return [verdict, Figure(f"{self.operations:,}", "operations compared"), rounded]

    @property
    def remarks(self) -> list[str]:
        """The lines of the text but the first, which is the heading."""
        return list(self._lines())[1:]

    def _lines(self) -> Iterator[str]:
        if self.eager:
            yield f"{self.name}: such calls run eagerly: {self.eager}"
            return
        yield f"{self.name}: traced and eager {'agree' if self else 'differ'}"
        if self.first is not None:
            yield f"first difference: {describe(self.first)}"
        elif not self.within:
            yield "no single operation differs: what it does to Python or to tensors around it does"
        rounded = f", the last bits of {self.roundings} sums differ" if self.roundings else ""
        yield f"{self.operations} operations compared{rounded}"
        for what, found in (("results", self.results), ("state written", self.state)):
            yield f"{what}: {said(found)}"
        yield from (f"prange, in order: {why}" for why in self.in_order)


def describe(found: Finding) -> str:
    """One line: `exp of f32[3] at file.py:3: y = exp(x): 2e-06, which is 1e-06 of the largest element, 8 ulp`."""
    nearer = f", {found.nearer} is nearer to float64" if found.nearer else ""
    fused = " in the fused program" if found.fused else ""
    return f"{found.op} of {found.type}{fused} at {found.where or 'no line'}: {_apart(found)}{nearer}"


def _apart(found: Finding) -> str:
    if not math.isfinite(found.relative):
        return "another shape or type, or only one is finite"
    return f"{found.absolute:.2g}, which is {found.relative:.1e} of the largest element{in_ulp(found.ulp)}"


def audit(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Audit:
    """Runs `fn(*args, **kwargs)` eagerly beside traced, from the same start, and finds the first difference.

    `fn` is a function, a module or a traced function, which is traced again. The state that it can reach is put back.
    Raises what the function raises.

    >>> import hybridml as hm
    >>> found = hm.audit(lambda x: hm.exp(x).sum(), hm.ones((64,)))
    >>> bool(found), found.operations, found.first
    (True, 2, None)
    """
    name, plain, traced = both_styles(fn)
    snapshot = Snapshot(**{name: plain}, arguments=args, keywords=kwargs)
    before = snapshot.state()
    try:
        with eager():
            one = arrays_in(plain(*args, **kwargs)), written(snapshot.state(), before)
        snapshot.restore()
        try:
            call = traced.resolve(args, kwargs)
        except TraceError as error:
            return _eager(name, str(error).partition(LOCATION)[0])
        once = [effect for effect in call.path.effects if not effect.repeats and effect.take_back is None]
        if once:  # the next item of an iterator, a clock: no two runs are alike
            return _eager(name, f"{name} changes {', '.join(sorted(map(str, once)))}")
        start = _Start(call)
        snapshot.restore()
        other = arrays_in(traced(*args, **kwargs)), written(snapshot.state(), before)
    finally:
        snapshot.restore()
    return _audited(name, call.path, start, one, other)


def _eager(name: str, why: str) -> Audit:
    nothing = Difference(0, 0.0, 0.0, 0)
    return Audit(name, why, 0, 0, None, nothing, nothing, True)


Run = tuple[dict[str, np.ndarray], dict[str, np.ndarray]]  # results and written state, by name


class _Start:
    """Arrays that the program of a call reads, copied before anything runs."""

    def __init__(self, call: Call) -> None:
        program = call.path.program
        self.arrays = [host_copy(a) for a in inputs_of(call.path, call.leaves)]
        sizes = bindings([n.shape for n in program.whole.inputs], [a.shape for a in self.arrays])
        self.graph = at_sizes(program.whole, sizes) if sizes else program.whole
        self.more = [host_copy(call.known[n]) for n in program.reads]
        self.backend = program.backend

    def outputs(self, path: CompiledPath) -> list[np.ndarray]:
        """Outputs of the compiled program, run on the copied arrays."""
        program, k = path.program, path.program.lead
        own = [a.copy() for a in self.arrays]
        found = program.executable([*own[:k], *self.more, *own[k:]])
        return [as_seen(on_host(a), order) for a, order in zip(found, program.output_orders, strict=True)]


def _audited(name: str, path: CompiledPath, start: _Start, one: Run, other: Run) -> Audit:
    results, state = difference(one[0], other[0]), difference(one[1], other[1])
    count, roundings, first = _operations(start)
    within = not (results.where or state.where) or _within(path, start, one, other)
    if first is None and not within:
        first = _search(start)
    return Audit(name, "", count, roundings, first, results, state, within, _in_order(path))


def _in_order(path: CompiledPath) -> tuple[str, ...]:
    """Why loops over `prange` have steps that run in order."""
    program = path.program
    found, pending = dict.fromkeys(program.tracer.in_order.values()), [run_passes(program.graph, verify=False)[0]]
    while pending:
        for node in pending.pop().nodes():
            pending += [body.graph for body in bodies_of(node)]
            if node.params.get("parallel") and (why := dependence(node)) is not None:
                found.setdefault(str(why))
    return tuple(found)


# -- operation by operation


def _operations(start: _Start) -> tuple[int, int, Finding | None]:
    """Number of operations, of those that differ in the last bits, and the first that differs by more."""
    graph = start.graph
    nodes = [node for node in graph.nodes() if node.op is not None]
    compiled = compile_graph(ir.Graph(graph.inputs, tuple(nodes), graph.name), {}, start.backend)(start.arrays)
    values = dict(zip([*graph.inputs, *nodes], [*start.arrays, *map(on_host, compiled)], strict=True))
    values |= {node: node.value for node in graph.nodes() if node.value is not None}
    roundings = 0
    for node in nodes:
        operands = [values[n] for n in node.inputs]
        row = _alone(node, operands)
        ulp = distance(row, values[node])[2]
        if ulp and not _is_rounding(node, operands, row, values[node]):
            return len(nodes), roundings, _finding(node, row, values[node], _wide(node, operands), False)
        roundings += bool(ulp)
    return len(nodes), roundings, None


def _alone(node: ir.Node, operands: Sequence[np.ndarray]) -> np.ndarray:
    """The result of the operation, run eagerly on these operands."""
    inputs = {n: ir.input_node(n.aval) for n in node.inputs}
    given = dict(zip(node.inputs, operands, strict=True))
    again = ir.with_inputs(node, tuple(inputs[n] for n in node.inputs))
    return interpret(ir.Graph(tuple(inputs.values()), (again,)), [given[n] for n in inputs])[0]


def _is_rounding(node: ir.Node, operands: Sequence[np.ndarray], row: np.ndarray, code: np.ndarray) -> bool:
    a, b = _in_float64(row), _in_float64(code)
    bound = _bound(node, operands, a)
    if bound is None:
        return False
    with np.errstate(all="ignore"):
        apart = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b))
        return bool(np.all(apart <= bound))


def _bound(node: ir.Node, operands: Sequence[np.ndarray], value: np.ndarray) -> Any:
    """The largest difference between two orders of the same sum; None where the contract is bits."""
    assert node.op is not None
    reorders, terms = node.op.reorders, flops(node) / max(node.aval.size, 1)
    if not reorders or not dtypes.is_float(node.dtype):
        return None
    with np.errstate(all="ignore"):
        size: Any = np.abs(value)
        if reorders == "sum":
            size = _wide(node, [np.abs(x) if dtypes.is_float(x.dtype) else x for x in operands])
        elif reorders != "product":
            size = max([_largest(value), *(_largest(x) ** (2 if reorders == "squares" else 1) for x in operands)])
            terms = terms if reorders == "squares" else _EPS
        return None if size is None else 2.0 * (terms + 2.0) * _eps(node.dtype) * size


def _finding(node: ir.Node, row: np.ndarray, code: np.ndarray, wide: np.ndarray | None, fused: bool) -> Finding:
    assert node.op is not None
    absolute, relative, ulp = distance(row, code)
    nearer = ""
    if wide is not None and dtypes.is_float(node.dtype):
        off_row, off_code = _off(row, wide), _off(code, wide)
        nearer = "" if off_row == off_code else "eager" if off_row < off_code else "traced"
    return Finding(node.op.name, node.where, str(node.aval), ulp, absolute, nearer, fused, relative)


# -- float64


def _wide(node: ir.Node, operands: Sequence[np.ndarray]) -> np.ndarray | None:
    """The row in float64; None where it has no such meaning."""
    assert node.op is not None
    wide = [_in_float64(a) for a in operands]
    params = {
        k: dtypes.float64 if isinstance(v, np.dtype) and dtypes.is_float(v) else v for k, v in node.params.items()
    }
    try:
        if node.kind == "control":
            return _in_float64(_alone(node, [a.astype(n.dtype) for a, n in zip(operands, node.inputs, strict=True)]))
        with np.errstate(all="ignore"):
            found = node.op.run(wide, params)
        return _in_float64(np.asarray(found))
    except (HybridmlError, TypeError, ValueError):
        return None


def _in_float64(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float64) if dtypes.is_float(array.dtype) else array


def _outputs_in_float64(
    graph: ir.Graph, arrays: Sequence[np.ndarray], signs: np.random.Generator | None = None
) -> list[np.ndarray] | None:
    """Outputs of a graph in float64; with `signs` every sum is moved as far as its rounding may move it."""
    values = {node: _in_float64(a) for node, a in zip(graph.inputs, arrays, strict=True)}
    for node in graph.nodes():
        if node.value is not None:
            values[node] = _in_float64(node.value)
        elif node.op is not None:
            operands = [values[n] for n in node.inputs]
            found = _wide(node, operands)
            if found is None:
                return None
            bound = None if signs is None else _bound(node, operands, found)
            values[node] = (
                found if bound is None or signs is None else found + bound * signs.choice((-1, 1), found.shape)
            )
    return [values[node] for node in graph.outputs]


def _off(array: np.ndarray, wide: np.ndarray) -> float:
    """The largest distance from float64; infinite where only one of the two is finite."""
    a = _in_float64(array)
    same = (a == wide) | (np.isnan(a) & np.isnan(wide))
    with np.errstate(all="ignore"):
        apart = np.where(same, 0.0, np.abs(a - wide))
    return math.inf if np.isnan(apart).any() else float(np.max(apart, initial=0.0))


def _largest(array: np.ndarray) -> float:
    a = np.abs(array.astype(np.float64))
    return float(np.max(a, where=np.isfinite(a), initial=0.0))


def _eps(dtype: np.dtype) -> float:
    return 2.0**-7 if dtype.kind == "V" else float(np.finfo(dtype).eps)


# -- whole programs


def rounds(path: CompiledPath) -> bool:
    """Whether a program has sums."""
    return any(node.op is not None and node.op.reorders != "" for node in path.program.whole.nodes())


def is_close(one: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray]) -> list[str]:
    """The names of arrays that differ by more than the rounding of whole programs."""
    return [name for name in {**one, **other} if not _is_close(one.get(name), other.get(name))]


def _is_close(a: np.ndarray | None, b: np.ndarray | None) -> bool:
    absolute, relative, ulp = distance(a, b)
    if ulp and (a is None or not dtypes.is_float(a.dtype)):
        return False
    return not ulp or (math.isfinite(absolute) and a is not None and relative <= _EPS * _eps(a.dtype))


def _within(path: CompiledPath, start: _Start, one: Run, other: Run) -> bool:
    """Whether results and state differ by no more than the contract has it."""
    if not rounds(path):
        return False
    pairs = [
        (a[name], b[name])
        for a, b in zip(one, other, strict=True)
        for name in is_close(a, b)
        if name in a and name in b
    ]
    missing = any(a.keys() != b.keys() for a, b in zip(one, other, strict=True))
    if missing or not pairs:
        return not missing
    if any(a.shape != b.shape or a.dtype != b.dtype for a, b in pairs):
        return False
    wide = _outputs_in_float64(start.graph, start.arrays)
    moved = [_outputs_in_float64(start.graph, start.arrays, np.random.default_rng(k)) for k in range(_MOVES)]
    if wide is None or None in moved:
        return False
    reach = [max(_off(m[k], exact) for m in moved if m is not None) for k, exact in enumerate(wide)]
    outputs = list(zip(start.outputs(path), reach, strict=True))
    return all(_is_noise(a, b, outputs) for a, b in pairs)


def _is_noise(a: np.ndarray, b: np.ndarray, outputs: Sequence[tuple[np.ndarray, float]]) -> bool:
    """Whether rounding of the sums that lead to a result can have made the difference."""
    for out, reach in outputs:
        if out.shape == b.shape and out.dtype == b.dtype and out.tobytes() == b.tobytes():
            return _off(a, _in_float64(b)) <= 2.0 * reach + _EPS * _eps(a.dtype) * _largest(a)
    return False


def _search(start: _Start) -> Finding | None:
    """The first value that is wrong when it is compiled as the program is: with what leads to it fused."""
    graph = start.graph
    nodes = [node for node in graph.nodes() if node.op is not None]
    rows = dict(zip(nodes, interpret(ir.Graph(graph.inputs, tuple(nodes)), start.arrays), strict=True))

    def code(node: ir.Node) -> np.ndarray:
        found: np.ndarray = compile_graph(ir.Graph(graph.inputs, (node,), graph.name), {}, start.backend)(start.arrays)[
            0
        ]
        return found

    low, high = 0, len(nodes)  # nodes before low are right, the one at high is not
    while low < high:
        middle = (low + high) // 2
        if _is_close(rows[nodes[middle]], code(nodes[middle])):
            low = middle + 1
        else:
            high = middle
    if low == len(nodes):
        return None
    node = nodes[low]
    return _finding(node, rows[node], code(node), None, True)


# -- beside the calls of a program


def checked(traced: TracedFunction, call: Callable[[], Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A compiled call, and then the function itself from the same start, whose results and state stay.

    Where an iterator can be reached that cannot be set back, the call alone.
    """
    snapshot = Snapshot(**{traced._name: traced._fn}, arguments=args, keywords=kwargs)
    if snapshot.lost:  # a second run would have other items, and the program would miss them
        return call()
    before = snapshot.state()
    failed: Exception | None = None
    other: Run = {}, {}
    try:
        other = arrays_in(call()), written(snapshot.state(), before)
    except Exception as error:
        failed = error
    finally:
        snapshot.restore()
    try:
        with eager():
            value = traced._fn(*args, **kwargs)
    except Exception as error:
        if type(error) is type(failed):  # the first to say so: a backward may have freed its history since
            raise failed from None
        raise
    if failed is not None:
        _tell(traced, f"raises {type(failed).__name__} when it is compiled ({failed}), and nothing eagerly")
        return value
    one = arrays_in(value), written(snapshot.state(), before)
    if all(difference(a, b).ulp == 0 for a, b in zip(one, other, strict=True)):
        return value
    shown = None if traced._last is None else traced._last.shown()
    if shown is not None and rounds(shown) and not any(is_close(a, b) for a, b in zip(one, other, strict=True)):
        return value
    snapshot.restore()
    found = audit(traced, *args, **kwargs)
    if not found:
        _tell(traced, _summary(found))
    with eager():
        return traced._fn(*args, **kwargs)


def _summary(found: Audit) -> str:
    if found.first is not None:
        return f"gives other values compiled than eagerly; the first is {describe(found.first)}"
    worst = found.results if found.results.where else found.state
    return f"gives other values compiled than eagerly: {worst.where} differs by {worst.absolute:.2g}"


def _tell(traced: TracedFunction, message: str) -> None:
    if traced._strict:
        raise TraceError(f"{traced._name} {message}")
    traced._report(f"{message}. The eager values stay; with hm.eager() all of its calls are eager")
