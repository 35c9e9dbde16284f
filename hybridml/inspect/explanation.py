"""`hybridml.explain`: what a call of a function runs, what it relies on, and what that costs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from hybridml_compiler.aval import Aval
from hybridml_compiler.errors import LOCATION, TraceError
from hybridml_compiler.graph import ir
from hybridml_compiler.graph.body import Body, family
from hybridml_compiler.graph.flops import node_flops
from hybridml_compiler.graph.text import print_graph
from hybridml_compiler.passes.sparse_updates import described
from hybridml_compiler.schedule.launch import goes_on
from hybridml_compiler.sizes.dims import hint

from ..core.tensor import Tensor
from ..tracing.function import TracedFunction
from ..tracing.python_state.mutations import Mutation, uses
from ..tracing.python_state.names import Names, arguments
from ..tracing.run.compiled_path import CompiledPath, array_of
from ..tracing.specialize.entry import Entry
from ..tracing.specialize.path_tree import ValueBranch, way
from .explained import CapturedLine, EffectLine, Explanation, GuardLine, KernelCost, LineCost, PathLine, SizeLine
from .side_by_side import both_styles, kind_of
from .snapshot import Snapshot

_SHOWN = (bool, int, float, complex, str, bytes, type(None))
_MOST_GUARDS = 60  # lines of one explanation
_MOST_TEXT = 60


def explain(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Explanation:
    """Explains what `fn(*args, **kwargs)` runs when it is traced, without running it.

    Shown are the paths that calls take by the values that Python asks for, the guards, the captured tensors by the
    names that the function has for them, what the trace has done to Python, why there are several programs, the kernels
    with the reason for each, and the estimated cost of every line. A traced function is looked at itself, with what its
    calls have left; any other function, or module, is traced for this. The state that the function can reach is put
    back. Raises what the function raises while it is traced.

    >>> import hybridml as hm
    >>> found = hm.explain(lambda x: hm.exp(x) * 2 + x, hm.ones((64,)))
    >>> len(found.kernels), found.kernels[0].bytes
    (1, 512)
    """
    _, plain, traced = both_styles(fn)
    if isinstance(fn, TracedFunction):
        traced = fn
    elif isinstance(getattr(fn, "__dict__", {}).get("forward"), TracedFunction):
        traced = fn.__dict__["forward"]
    snapshot = Snapshot(function=plain, arguments=args, keywords=kwargs)
    try:
        call = traced.resolve(args, kwargs)
    except TraceError as error:
        return _eager(traced, str(error).partition(LOCATION)[0])
    finally:
        snapshot.restore()
    names = list(arguments(traced._fn, call.structure))
    objects = dict(zip(names, call.leaves, strict=True))
    return _explained(traced, call.entry, call.path, objects, names)


def explain_last(traced: TracedFunction) -> Explanation:
    """Explains what the last call has run."""
    entry = traced._last
    assert entry is not None
    return _explained(traced, entry, traced._shown(), {}, [])


def _eager(traced: TracedFunction, why: str) -> Explanation:
    info = traced.cache_info()
    return Explanation(traced._name, why, info.compiles + info.hits, info.entries, retraces=traced.retraces)


def _explained(
    traced: TracedFunction, entry: Entry, path: CompiledPath, objects: Mapping[str, Any], arguments: Sequence[str]
) -> Explanation:
    data = (Tensor, np.ndarray, float)
    names = Names(traced._fn, {name: obj for name, obj in objects.items() if not isinstance(obj, data)})
    guards, identities = _guards(entry, names)
    kernels = list(kernels_of(entry, path))
    info = traced.cache_info()
    sized = entry.sized
    symbols = () if sized is None else sized.pattern.describe(arguments) if arguments else sized.pattern.places
    why = f"it {'; it '.join(sorted(traced._reported))}" if entry.eager else ""
    return Explanation(
        name=traced._name,
        eager=why,
        calls=info.compiles + info.hits,
        programs=info.entries,
        paths=tuple(_paths(entry.root, 0)),
        guards=guards[:_MOST_GUARDS],
        identities=identities + max(len(guards) - _MOST_GUARDS, 0),
        lifted=tuple(i.node.name for i in entry.inputs if i.node.aval.weak),
        captured=tuple(_captured(entry, path)),
        effects=tuple(_effect(effect) for effect in path.effects),
        retraces=traced.retraces,
        symbols=tuple(symbols),
        sizes=() if sized is None else tuple(SizeLine(str(g), g.where) for g in sized.guards.list),
        kernels=tuple(kernel for kernel, _ in kernels),
        lines=tuple(_lines(kernels)),
        ir=print_graph(path.program.whole),
        reused=tuple(_reused(entry, path)),
        placement=tuple(_placement(entry, path)),
    )


# -- paths


def _paths(at: ValueBranch | CompiledPath | None, depth: int) -> Iterator[PathLine]:
    if isinstance(at, ValueBranch):
        yield PathLine(depth, f"{at.what} of {at.node.aval}", at.where, at.hits)
        for key, after in at.next.items():
            yield PathLine(depth + 1, f"{_answer(key, at.node.aval)}:", "", 0)
            yield from _paths(after, depth + 2)
    elif at is not None:
        kernels = getattr(at.program.executable.stats, "kernels", 0)
        yield PathLine(depth, f"a program of {kernels} kernel{'s' * (kernels != 1)}", "", at.taken)


def _answer(key: bytes, aval: Aval) -> str:
    """The value that a key stands for (see `path_tree.key`)."""
    shape = tuple(hint(n) for n in aval.shape)
    if len(key) != math.prod(shape) * aval.dtype.itemsize:
        return "another value"
    value = np.frombuffer(key, aval.dtype).reshape(shape)
    return _short(str(value.item() if value.size == 1 else value.tolist()))


# -- guards and state


def _guards(entry: Entry, names: Names) -> tuple[tuple[GuardLine, ...], int]:
    """Values that can be shown, and how many others there are."""
    shown: dict[str, GuardLine] = {}
    others = 0
    for guard in entry.watch.guards:
        value, own = guard.value, guard.name
        if guard.is_named and isinstance(value, _SHOWN):
            if isinstance(guard.container, Mapping) and guard.key not in guard.container:
                continue  # that there is no such attribute
            name = guard.path(names)
            said = own if name == own or name.endswith(f".{own}") else _container_of(name)
            where = next((use.where for use in uses(entry.watch.codes, said)), "")
            if where and not own.startswith("__"):
                shown.setdefault(name, GuardLine(name, _short(repr(value)), where))
                continue
        others += 1
    return tuple(shown.values()), others


def _container_of(name: str) -> str:
    """`groups` of `opt.groups[0]['lr']`: what code says to reach an item."""
    return name.partition("[")[0].rpartition(".")[2]


def _captured(entry: Entry, path: CompiledPath) -> Iterator[CapturedLine]:
    written = {id(source.node) for _, source in path.writes}
    set_ = {id(source.node) for source, _ in path.grads}
    rows = {id(output.source.node) for output in path.sparse}
    for i in path.inputs:
        if i.kind in ("held", "array", "grad"):
            use = [*(["written"] if id(i.node) in written else []), *(["gradient set"] if id(i.node) in set_ else [])]
            use += ["held as rows"] if id(i.node) in rows else []
            yield CapturedLine(i.node.name, str(_aval(i.real, i.start)), " and ".join(use) or "read")


def _aval(real: Any, node: ir.Node) -> Aval:
    return node.aval if real is None else Aval(array_of(real).shape, array_of(real).dtype)


def _effect(effect: Mutation) -> EffectLine:
    when = "done by every call" if effect.repeats else "calls run eagerly because of it"
    return EffectLine(effect.name, effect.where, when)


# -- cost


def executables_of(entry: Entry, path: CompiledPath) -> list[Any]:
    """The programs of a path: those that answer questions, then the one of its end."""
    segments = [ask.segment.executable for ask, _ in way(entry.root, path) if ask.segment is not None]
    return [*segments, path.program.executable]


def _reused(entry: Entry, path: CompiledPath) -> Iterator[str]:
    for executable in executables_of(entry, path):
        reused = getattr(getattr(executable, "stats", None), "reused", "")
        if reused:
            yield reused
        graph = getattr(getattr(executable, "stages", None), "graph", None)
        yield from described(graph) if graph is not None else ()


def _placement(entry: Entry, path: CompiledPath) -> Iterator[str]:
    for executable in executables_of(entry, path):
        choice = getattr(executable, "choice", None)
        if choice is not None:
            yield from choice.lines()
            for part, share in getattr(executable, "shares", {}).items():
                yield f"{part.graph.name} on {part.device}: {share}"


def kernels_of(entry: Entry, path: CompiledPath) -> Iterator[tuple[KernelCost, dict[str, float]]]:
    """The launches of a path, questions first, each with what its lines weigh in it."""
    from hybridml_compiler.schedule.cost import memory_cost
    from hybridml_compiler.targets.cpu.llvm.registry import kind_of as code_of

    for executable in executables_of(entry, path):
        before = None
        for launch in getattr(executable, "launches", ()):
            operations = alone = 0.0
            counts, before = not goes_on(launch, before), launch
            weights: dict[str, float] = dict.fromkeys(launch.where, 1e-9)
            for node in _computed(launch.nodes):
                operations += flops(node) * counts
                alone += _nanoseconds(node)
                lines = _lines_of(node)
                for line in lines:
                    weights[line] = weights.get(line, 1e-9) + _nanoseconds(node) / len(lines)
            ns = sum(code_of(spec).nanoseconds(spec) for spec in launch.specs) or alone or memory_cost(launch.nbytes)
            name, nbytes = kind_of(launch.spec), hint(launch.nbytes)
            other = executable.computed_by(launch.spec)
            reasons = (*launch.reasons, *[other] * bool(other))
            yield KernelCost(name, tuple(weights), reasons, float(ns), nbytes, operations), weights


def _computed(nodes: Sequence[ir.Node]) -> Iterator[ir.Node]:
    """The operations among nodes: several nodes may be the results of one, computed together."""
    seen: set[Any] = set()
    for node in nodes:
        if node.kind in ("control", "opaque"):
            if family(node) in seen:
                continue
            seen.add(family(node))
        yield node


def _lines_of(node: ir.Node) -> list[str]:
    """The user's line; for a loop over a `range`, or one that the compiler has made, the lines in its body."""
    if node.where and node.params.get("step") is None:
        return [node.where]
    bodies = [body for body in node.params.values() if isinstance(body, Body)]
    return list(dict.fromkeys(line for body in bodies for inner in body.graph.nodes() for line in _lines_of(inner)))


def flops(node: ir.Node) -> float:
    """Floating-point operations of one node: of a loop those of its body in every step, of a branch the longest way."""
    if node.op is None:
        return 0.0
    return _of_bodies(node, flops) if node.kind == "control" else float(node_flops(node))


def _of_bodies(node: ir.Node, cost: Callable[[ir.Node], float]) -> float:
    """Cost of all steps of a loop (one, where only the call knows how many), or of the longest branch."""
    bodies = {
        name: sum(map(cost, _computed(body.graph.nodes())))
        for name, body in node.params.items()
        if isinstance(body, Body)
    }
    if "true" in bodies:
        return max(bodies.values())
    length = node.params.get("length")
    return float(1 if length is None else hint(length)) * sum(bodies.values())


def _nanoseconds(node: ir.Node) -> float:
    if node.kind == "control":
        return _of_bodies(node, _nanoseconds)
    from hybridml_compiler.graph.facts import element_cost
    from hybridml_compiler.schedule.cost import FLOP_NS, NUMPY_CALL_NS, memory_cost

    moved = memory_cost(float(hint(node.aval.nbytes)))
    if node.kind == "opaque":
        return NUMPY_CALL_NS + moved
    if node.kind in ("contraction", "convolution"):
        return flops(node) * FLOP_NS
    return flops(node) * element_cost(node) + moved


def _lines(kernels: Sequence[tuple[KernelCost, dict[str, float]]]) -> Iterator[LineCost]:
    """Each kernel's cost goes to its lines in parts of what their operations would cost one by one."""
    found: dict[str, list[Any]] = {}
    for k, (kernel, weights) in enumerate(kernels):
        whole = sum(weights.values())
        for line, weight in weights.items():
            row = found.setdefault(line, [0.0, 0.0, 0.0, []])
            for column, amount in enumerate((kernel.ns, kernel.bytes, kernel.flops)):
                row[column] += amount * weight / whole
            row[3].append(k)
    ordered = sorted(found.items(), key=lambda item: -item[1][0])
    yield from (LineCost(line, ns, nbytes, flops, tuple(ks)) for line, (ns, nbytes, flops, ks) in ordered)


def _short(text: str) -> str:
    return text if len(text) <= _MOST_TEXT else text[: _MOST_TEXT - 3] + "..."
