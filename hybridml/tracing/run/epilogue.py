"""Work left for Python after the native call of a program: stamps of updated tensors, `.grad`, containers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hybridml_compiler.dtypes import bool_, float64

from ...core import aliasing, pytree
from ...core.autodiff.tape import Node, freed, is_freed, is_node, part
from ...core.context import grad_is_off
from ...core.tensor import Tensor, adopt
from ..capture.memory_order import as_seen
from .compiled_path import CompiledPath, real_of


def returned(path: CompiledPath, executable: Any) -> tuple[list[Any], bool] | None:
    """The parts of what a call returns, and whether they are a tuple; None where Python makes them, or has more to do
    than the stamps of updated tensors."""
    from hybridml_compiler.targets.cpu.python_entry.spec import Returned

    place = {k: j for j, k in enumerate(executable.fresh)}
    program, (whole, *others) = path.program, path.structure.children
    leaves = [whole] if whole.kind is None else whole.children if whole.kind is tuple else ()
    own = program.outputs[: path.n_results]
    if (
        not leaves or others or any(child.kind is not None for child in leaves)
        or path.late or path.effects or path.grads or path.views
        or any(program.output_orders) or any(i.kind not in ("argument", "held") for _, i in path.writes)
        or any(is_node(o._node) for o in own) or _historian(path) is not None
    ):  # fmt: skip
        return None
    parts: list[Any] = []
    for r in path.results:
        source = path.inputs[r.index] if r.kind == "input" else None
        if r.kind == "output" and r.index in place:
            parts.append(Returned("output", place[r.index]))
        elif r.kind == "float" and r.index in place and r.value in (float, int, bool):
            aval = executable.outputs[place[r.index]]
            if aval.shape or aval.dtype is not (bool_ if r.value is bool else float64):
                return None
            parts.append(Returned(r.value.__name__, place[r.index]))
        elif source is not None and source.kind == "argument" and not r.value:
            parts.append(Returned("argument", source.index))
        elif source is not None and source.kind == "held":
            parts.append(Returned("object", source.real))
        elif r.kind == "value":
            parts.append(Returned("object", r.value))
        else:
            return None
    made = sorted(part.of for part in parts if part.kind not in ("argument", "object"))
    return (parts, whole.kind is tuple) if made == [*range(len(place))] else None


def finisher(path: CompiledPath, executable: Any) -> Callable[[Any, Sequence[Any]], Any] | None:
    """Returns a function that makes a call's result from the native one's; None when they are the same."""
    place = {k: j for j, k in enumerate(executable.fresh)}
    count = len(place)
    results: list[tuple[int, bool, Any]] = [
        (
            r.index if r.kind == "input" else place.get(r.index, -1) if r.kind in ("output", "float", "array") else -1,
            r.kind in ("float", "array"),
            r.index if r.kind == "view" else r.value,
        )
        for r in path.results
    ]
    kinds = [r.kind for r in path.results]
    bases = [
        (view, None if view.of_input else place[view.index], path.inputs[view.index] if view.of_input else None)
        for view in path.views
    ]
    stamped = [i.real for _, i in path.writes if isinstance(i.real, Tensor)]
    updated = [i.index for _, i in path.writes if i.kind == "argument"]
    grads = [(i.real, None if k is None else place[k]) for i, k in path.grads]
    sparse = [(s.put, s.source.real, place[s.rows], place[s.values]) for s in path.sparse]
    permuted = [(place[k], order) for k, order in enumerate(path.program.output_orders) if order and k in place]
    without_history = [
        place[k] for k, o in enumerate(path.program.outputs[: path.n_results])
        if is_node(o._node) and is_freed(o._node) and not grad_is_off()
    ]  # fmt: skip
    history = _historian(path)
    recorded = [] if history is None else [k for k in path.program.differentiable() if k in place]
    structure, effects, there, known = path.structure, path.effects, path.there, path.known
    is_flat = all(child.kind is None for child in structure.children)  # the result, and what effects put, are leaves
    single, whole = is_flat and not effects, structure.children[0]
    is_tuple = whole.kind is tuple and all(child.kind is None for child in whole.children) and not effects
    as_they_are = [at for at, number, _ in results if not number] == list(range(count)) and "input" not in kinds
    nothing_else = not (stamped or updated or grads or without_history or recorded or permuted)
    if as_they_are and nothing_else and len(results) == count and (count == 1 if single else is_tuple and count > 1):
        return None

    changes = bool(stamped or updated or grads or permuted or without_history or history)
    takers = [_taker(path, kind, *result) for result, kind in zip(results, kinds, strict=True)]
    if single and count == 1 and kinds == ["float"] and not (changes or path.late):
        number = results[0][2]
        return lambda out, _: number(out._array.item())

    def change(tensors: Sequence[Any], args: Sequence[Any]) -> None:
        aliasing.stamp(*stamped, *[t for k in updated if isinstance(t := args[k], Tensor)])
        for j, order in permuted:
            tensors[j]._array = as_seen(tensors[j]._array, order)
        for j in without_history:
            tensors[j]._node = freed(tensors[j]._array.shape)
        if history is not None:
            joint = history(args)
            for k in recorded:
                tensor = tensors[place[k]]
                tensor._node = part(joint, k, tensor._array.shape)
        for real, at in grads:
            real._node.grad = None if at is None else tensors[at]
        for put, real, rows, values in sparse:
            put(real, tensors[rows], tensors[values])

    def finish(out: Any, args: Sequence[Any]) -> Any:
        for clock in path.late:
            clock.take()
        tensors = (out,) if count == 1 else out or ()
        if changes:
            change(tensors, args)
        views = [view.make(tensors[at] if at is not None else _base(source, args)) for view, at, source in bases]
        values = [take(tensors, views, args) for take in takers]
        if single:
            return values[0]
        if is_tuple:
            return tuple(values)
        value, *put = values if is_flat else pytree.unflatten(structure, values, dict(there), known)
        for effect, new in zip(effects, put, strict=True):
            effect.put(new)
        return value

    return finish


def _taker(path: CompiledPath, kind: str, at: int, number: bool, value: Any) -> Callable[..., Any]:
    """Returns a function that makes one result of a call from the native one's results, its views and its arguments."""
    if kind == "view":
        return lambda tensors, views, args: views[value]
    if kind == "input":
        source = path.inputs[at]
        if source.kind == "argument" and not value:
            return lambda tensors, views, args: args[source.index]
        return lambda tensors, views, args: _given(source, args, value)
    if at < 0:
        return lambda tensors, views, args: value
    if kind == "array":
        return lambda tensors, views, args: value.of_memory(tensors[at]._array)
    if number:
        return lambda tensors, views, args: value(tensors[at]._array.item())
    return lambda tensors, views, args: tensors[at]


def _given(source: Any, args: Sequence[Any], as_tensor: bool) -> Any:
    """An input that is a result."""
    return _base(source, args) if as_tensor else real_of(source, args)


def _base(source: Any, args: Sequence[Any]) -> Tensor:
    """The tensor that an input is in this call."""
    real = real_of(source, args)
    return real if isinstance(real, Tensor) else adopt(real)


def _historian(path: CompiledPath) -> Callable[[Sequence[Any]], Node] | None:
    """Returns a function that makes a recorded call's tape node from its arguments (none wants a gradient); None if it
    has none."""
    program = path.program
    wanting = [k for k, leaf in enumerate(program.leaves) if leaf is not None and path.inputs[k].kind == "held"]
    if grad_is_off() or not wanting or not any(k < path.n_results for k in program.differentiable()):
        return None
    needed = program.needed()
    parents = [path.inputs[k].real for k in wanting]
    given = [(k, path.inputs[k].index) for k in needed if path.inputs[k].kind == "argument"]
    fixed = [i.real if k in needed and i.kind != "argument" else None for k, i in enumerate(path.inputs)]
    numbers = [(k, i.scalar) for k, i in enumerate(path.inputs) if k in needed and i.scalar is not None]

    def history(args: Sequence[Any]) -> Node:
        kept = fixed.copy()
        for k, index in given:
            kept[k] = args[index]
        for k, scalar in numbers:
            kept[k] = scalar.read()
        return program.history(parents, wanting, kept)

    return history
