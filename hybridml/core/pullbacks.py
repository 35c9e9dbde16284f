"""Pulls: the reverse step of a row, generated when first needed, one for each subset of inputs that want a gradient.

A pull takes the cotangent of a result and its tape node (see tape.py) and gives `(input node, cotangent)` pairs. It
keeps, and checks for later in-place updates, exactly the values that the rules of that subset name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hybridml_compiler.ops.op import Op

from .context import current_interpreter
from .tape import KEPT, stale
from .tensor import Tensor, wrap

_ndarray = np.ndarray


def compile_function(op: Op, name: str, lines: list[str], env: dict[str, Any]) -> Callable[..., Any]:
    source = "\n".join(lines) + "\n"
    exec(compile(source, f"<dispatch {op.name}>", "exec"), env)
    fn: Callable[..., Any] = env[name]
    return fn


def kept_names(op: Op, wanting: tuple[int, ...]) -> tuple[str, ...]:
    """What the rules of these inputs keep, each name once, in the order of first use."""
    return tuple(dict.fromkeys(name for k in wanting for name in op.needs[k] or ()))


def may_be_stale(op: Op, names: Sequence[str]) -> bool:
    """Whether what is kept can be overwritten: then a node ends with the place that keeps it."""
    return any(name == "out" or name in op.inputs for name in names)


_pulls: dict[tuple[Op, tuple[int, ...]], Callable[..., Any]] = {}


def pull_of(op: Op, wanting: tuple[int, ...]) -> Callable[..., Any]:
    found = _pulls.get((op, wanting))
    if found is None:
        found = _pulls[op, wanting] = _generate_pull(op, wanting)
    return found


def _generate_pull(op: Op, wanting: tuple[int, ...]) -> Callable[..., Any]:
    name = f"pull_{op.name}_{digits(wanting)}"
    names = kept_names(op, wanting)
    at = {kept: f"_node[{KEPT + len(wanting) + i}]" for i, kept in enumerate(names)}
    lines = [f"def {name}(g, _node):"]
    for kept in names:
        if kept == "out":
            lines += [
                f"    out = _rebuild({at[kept]}, _node)",
                f"    _stale({op.name!r}, 'result', out._version, _node[0], _node[-2:])",
            ]
        elif kept in op.inputs:
            message = f"input {kept}"
            lines += [
                f"    {kept} = {at[kept]}",
                f"    if {kept}._version:",
                f"        _stale({op.name!r}, {message!r}, {kept}._version, _node[0], _node[-2:])",
            ]
        else:
            lines += [f"    {kept} = {at[kept]}"]
    calls = [
        f"(_node[{KEPT + i}], _rule{k}({', '.join(['g', *(f'{p}={p}' for p in op.needs[k] or ())])}))"
        for i, k in enumerate(wanting)
    ]
    lines += [f"    return ({', '.join(calls)},)"]
    return compile_function(
        op, name, lines, {f"_rule{k}": rule for k, rule in enumerate(op.vjp)} | {"_rebuild": _rebuild, "_stale": stale}
    )


def _rebuild(kept: tuple[Any, Any], node: list[Any]) -> Tensor:
    """The result of a node that keeps its own result (a reference to the tensor would be a cycle)."""
    array, version = kept
    if type(array) is _ndarray:
        t = wrap(array)
    else:
        t = current_interpreter().wrap(array)
    t._version, t._node = version, node
    return t


def pull_variadic(g: Tensor, node: list[Any]) -> Any:
    op, wanting, tensors, params, _ = node[-5:]
    rule, needs = op.vjp[0], op.needs[0] or ()
    xs = op.inputs[0]
    pairs = []
    for parent, k in zip(node[KEPT:-5], wanting, strict=True):
        kept: dict[str, Any] = {}
        for name in needs:
            if name == "k":
                kept[name] = k
            elif name == f"{xs}_shapes":
                kept[name] = tuple(t.shape for t in tensors)
            elif name == f"{xs}_dtypes":
                kept[name] = tuple(t.dtype for t in tensors)
            else:
                kept[name] = tensors if name == xs else params[name]
        pairs.append((parent, rule(g, **kept)))
    return pairs


def digits(wanting: tuple[int, ...]) -> str:
    return "".join(map(str, wanting))
