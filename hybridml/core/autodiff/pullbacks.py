"""Pullbacks: the reverse step of an op, generated when first needed, one per subset of inputs that want a gradient.

A pull takes the cotangent of a result and its tape node (see tape.py) and gives `(input node, cotangent)` pairs. It
keeps, and checks for later in-place updates, exactly the values that the rules of that subset name.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from hybridml_compiler import dtypes
from hybridml_compiler.ops.op import Op

from ..context import grad_is_off
from ..interpreter import interpreter_stack
from ..library import MISS, factories, is_early, missed
from ..nested import Nested
from ..tensor import Tensor, like
from .tape import Node, kept_by, kept_source, parent_source, parents_of, part, stale

_MOVING = ("movement", "gather", "creation", "contraction", "convolution")  # pulls that are views, or one kernel
_WORTH = 2  # operations of a pull that take longer one by one than as a native call


def compile_function(op: Op, name: str, lines: list[str], env: dict[str, Any]) -> Callable[..., Any]:
    source = "\n".join(lines) + "\n"
    exec(compile(source, f"<dispatch {op.name}>", "exec"), env)
    fn: Callable[..., Any] = env[name]
    return fn


def kept_names(op: Op, wanting: tuple[int, ...]) -> tuple[str, ...]:
    """Names of the values that the rules of these inputs keep, each once, in the order of first use."""
    return tuple(dict.fromkeys(name for k in wanting for name in op.needs[k] or ()))


def may_be_stale(op: Op, names: Sequence[str]) -> bool:
    """Whether a kept value can be overwritten: then a node ends with the place that keeps it."""
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
    at = {kept: kept_source(len(wanting), i) for i, kept in enumerate(names)}
    place = f"({kept_source(len(wanting), len(names))}, {kept_source(len(wanting), len(names) + 1)})"
    lines = [f"def {name}(g, _node):"]
    for kept in names:
        if kept == "out":
            lines += [
                f"    out = _rebuild(g, {at[kept]}, _node)",
                f"    _stale({op.name!r}, 'result', out._version, _node, {place})",
            ]
        elif kept in op.inputs:
            message = f"input {kept}"
            lines += [
                f"    {kept} = {at[kept]}",
                f"    if {kept}._version:",
                f"        _stale({op.name!r}, {message!r}, {kept}._version, _node, {place})",
            ]
        else:
            lines += [f"    {kept} = {at[kept]}"]
    if op.kind not in _MOVING:
        given = ", ".join(["g", *names])
        found = [
            (f"({parent_source(i)}, _t[{i}])" if len(wanting) > 1 else f"({parent_source(i)}, _t)")
            for i in range(len(wanting))
        ]
        lines += [
            "    if _library.worth and _no_grad():",
            f"        _t = _library.direct({given})",
            "        if _t is _MISS and _mode() is None:",
            f"            _t = _library.looked_up({given})",
            "        if _t is not _MISS:",
            f"            return ({', '.join(found)},)",
        ]
    calls = [
        f"({parent_source(i)}, _rule{k}({', '.join(['g', *(f'{p}={p}' for p in op.needs[k] or ())])}))"
        for i, k in enumerate(wanting)
    ]
    lines += [f"    return ({', '.join(calls)},)"]
    env = {
        "_rebuild": _rebuild, "_stale": stale, "_no_grad": grad_is_off, "_mode": interpreter_stack, "_MISS": MISS,
        "_library": PullLibrary(functools.partial(_rules, op, wanting, names), 1 + len(names)),
    }  # fmt: skip
    return compile_function(op, name, lines, env | {f"_rule{k}": rule for k, rule in enumerate(op.vjp)})


class PullLibrary:
    """The native calls of a pull."""

    def __init__(self, rules: Callable[[], Callable[..., Any]], count: int) -> None:
        """`rules` makes the function, of `count` arguments."""
        self.rules, self.count = rules, count
        self.worth, self.direct = True, missed
        self._function: Any = None

    def looked_up(self, *args: Any) -> Any:
        """The result of a call, or MISS."""
        if self._function is None:
            if is_early(args):
                return MISS
            self._function = factories[0](self.rules(), False, 1, True, True, False, self.count, _WORTH)
        out = self._function.of_row(args)
        self.direct, self.worth = self._function.direct, self._function.worth
        return out


def _rules(op: Op, wanting: tuple[int, ...], names: Sequence[str]) -> Callable[..., Any]:
    """The rules of these inputs as one function of the cotangent and of what they keep."""
    wanted = [(rule, op.needs[k] or ()) for k in wanting if (rule := op.vjp[k]) is not None]

    def rules(g: Tensor, *kept: Any) -> Any:
        known = dict(zip(names, kept, strict=True))
        found = tuple([rule(g, **{need: known[need] for need in needs}) for rule, needs in wanted])
        return found if len(found) > 1 else found[0]

    rules.__name__ = f"pull_{op.name}"
    return rules


def _rebuild(g: Tensor, kept: tuple[Any, Any], node: Node) -> Tensor:
    """The result of a node that keeps its own result (a reference to the tensor would be a cycle)."""
    array, version = kept
    while isinstance(g._array, Nested) and type(g._array) is not type(array):  # a cotangent of another level
        g = g._array.tensor
    return like(g, array, node, version)


def pull_variadic(g: Tensor, node: Node) -> list[tuple[Any, Tensor]]:
    """The pullback of an op over a list of tensors."""
    op, wanting, tensors, params = kept_by(node)
    xs = op.inputs[0]
    known = {
        **params, xs: tensors,
        f"{xs}_shapes": tuple(t.shape for t in tensors), f"{xs}_dtypes": tuple(t.dtype for t in tensors),
    }  # fmt: skip
    return [
        (parent, op.vjp[0](g, **{need: k if need == "k" else known[need] for need in op.needs[0] or ()}))
        for parent, k in zip(parents_of(node), wanting, strict=True)
    ]


def pull_results(bundle: dict[int, Tensor], node: Node) -> list[tuple[Any, Tensor]]:
    """The pullback of an op with several results, for the cotangents of those that have one."""
    op, wanting, tensors, params, kept, place = kept_by(node)
    first = next(iter(bundle.values()))
    known: dict[str, Any] = {**params, **dict(zip(op.inputs, tensors, strict=True))}
    for name, t in zip(op.inputs, tensors, strict=True):
        known |= {f"{name}_shape": t._array.shape, f"{name}_dtype": t._array.dtype}
    g = tuple(bundle.get(k) for k in range(len(kept)))
    pairs = []
    for parent, k in zip(parents_of(node), wanting, strict=True):
        needs = op.needs[k]
        if "out" in needs and "out" not in known:
            known["out"] = tuple(_rebuilt_part(first, op, j, node, kept[j], place) for j in range(len(kept)))
        for t in [known[name] for name in needs if name in op.inputs]:
            if t._version:
                stale(op.name, "input", t._version, node, place)
        pairs.append((parent, op.vjp[k](g, **{need: known[need] for need in needs})))
    return pairs


def _rebuilt_part(g: Tensor, op: Op, k: int, node: Node, kept: tuple[Any, Any], place: Any) -> Tensor:
    array, version = kept
    stale(op.name, "result", version, node, place)
    return like(g, array, part(node, k, array.shape) if array.dtype.kind in dtypes.INEXACT else None, version)


def digits(wanting: tuple[int, ...]) -> str:
    return "".join(map(str, wanting))
