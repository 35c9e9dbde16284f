"""Control flow that a graph can hold: `cond`, `while_loop`, `scan`, with the signatures of JAX.

Eagerly they are Python: a loop is a loop, prints and debuggers work in its body, and gradients are those of the
operations that ran. In a traced function each is one operation of the graph, compiled to a native loop or branch with
the function as its body, which is captured once, whatever the number of steps.

A function may reach whatever the program around it may: tensors and modules of the enclosing scope, generators, tensors
that it updates in place. What it is given and gives are nested containers of tensors (arrays and numbers become
tensors; None is an empty container). A carry keeps its structure, shapes, dtypes and devices from step to step.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from hybridml_compiler.errors import ArgumentError, DeviceError, DTypeError, HybridmlError, ShapeError
from hybridml_compiler.ops.table import OPS
from hybridml_compiler.record import replace

from .arrays.creation import arange, asarray, zeros, zeros_like
from .arrays.shaping import manipulation
from .core import pytree
from .core.autodiff.tape import Node, boundary, is_node, kept_by, make_node, part
from .core.context import beside, current_interpreter, placed
from .core.pytree import LEAF, Structure
from .core.tensor import Tensor, aval_of, place_of

if TYPE_CHECKING:
    from .tracing.capture.tracer import Tracer

__all__ = ["cond", "fori_loop", "map", "scan", "while_loop"]

_concat = OPS["concat"]


def _tracer() -> Tracer | None:
    """The tracer on top of the stack, None in eager code, which loads no tracer."""
    if current_interpreter() is None:
        return None
    from .tracing.capture.tracer import top_tracer

    return top_tracer()


# -- containers of tensors


def _flatten(value: Any, what: str, others: Sequence[Tensor] = ()) -> tuple[list[Tensor], Structure]:
    """The tensors of a container. None among them is part of the structure. A number becomes one on the device of the
    container's tensors, or of `others`.
    """
    leaves: list[Any] = []
    structure = _without_none(pytree.flatten(value, leaves), iter(leaves))
    given = [leaf for leaf in leaves if leaf is not None]
    for leaf, path in zip(given, paths(structure), strict=True):
        if not isinstance(leaf, Tensor | np.ndarray | np.generic | bool | int | float):
            raise DTypeError(f"{what}{path} must be a tensor, an array or a number, got {type(leaf).__name__}")
    tensors = [t for t in (*given, *others) if isinstance(t, Tensor)]
    place = next(filter(None, (place_of(t) for t in tensors)), None)
    return [asarray(leaf, device=place if isinstance(leaf, int | float) else None) for leaf in given], structure


_NONE = Structure(type(None), (), ())


def _without_none(structure: Structure, leaves: Any) -> Structure:
    if structure.kind is None:
        return _NONE if next(leaves) is None else LEAF
    return structure._replace(children=tuple([_without_none(child, leaves) for child in structure.children]))


def _unflatten(structure: Structure, tensors: Sequence[Any]) -> Any:
    left = iter(tensors)

    def filled(s: Structure) -> list[Any]:
        if s.kind is None:
            return [next(left)]
        return [None] if s is _NONE or s == _NONE else [leaf for child in s.children for leaf in filled(child)]

    return pytree.unflatten(_with_none(structure), filled(structure))


def _with_none(s: Structure) -> Structure:
    return LEAF if s == _NONE else s._replace(children=tuple([_with_none(child) for child in s.children]))


def paths(s: Structure, start: str = "") -> list[str]:
    """The path to each leaf, as Python code: `[0]['h']`."""
    if s.kind is None:
        return [start]
    if hasattr(s.kind, "_fields"):
        names = [f".{name}" for name in s.kind._fields]
    elif s.keys:
        names = [f"[{key!r}]" if isinstance(s.kind, type) and issubclass(s.kind, dict) else f".{key}" for key in s.keys]
    else:
        names = [f"[{k}]" for k in range(len(s.children))]
    return [path for name, child in zip(names, s.children, strict=True) for path in paths(child, start + name)]


def _difference(x: Tensor, y: Tensor) -> tuple[type[HybridmlError], str, str] | None:
    """The error for values that must be of one type, with what each is; None where they are."""
    if place_of(x) != place_of(y):
        return DeviceError, f"on {x.device.type!r}", f"on {y.device.type!r}"
    if x.shape == y.shape and x.dtype is y.dtype:
        return None
    error = ShapeError if x.shape != y.shape else DTypeError
    return error, f"{x.dtype.name} of shape {x.shape}", f"{y.dtype.name} of shape {y.shape}"


def _check_kept(what: str, before: Sequence[Tensor], old: Structure, after: Sequence[Tensor], new: Structure) -> None:
    """Raises an error unless the carry has the same structure, shapes, dtypes and devices after a step."""
    if old != new:
        raise ArgumentError(
            f"{what}: the carry has the leaves {_listed(old)} before a step and {_listed(new)} after it; the function "
            "must return a carry of the structure that it was given"
        )
    for path, x, y in zip(paths(old), before, after, strict=True):
        if found := _difference(x, y):
            error, one, other = found
            raise error(
                f"{what}: carry{path} is {one} before a step and {other} after it; the function must return what it "
                "was given: start from such a value, or convert it with .to(...)"
            )


def _listed(s: Structure) -> str:
    return f"carry{', carry'.join(paths(s))}" if paths(s) else "none"


def _check_alike(
    what: str, name: str, first: Sequence[Any], old: Structure, now: Sequence[Any], new: Structure
) -> None:
    """Raises an error unless both branches, or two steps, give the same structure, shapes, dtypes and devices."""
    if old != new:
        raise ArgumentError(f"{what} in structure: {paths(old)} and {paths(new)}; return the same containers")
    for path, x, y in zip(paths(old), first, now, strict=True):
        if found := _difference(x, y):
            error, one, other = found
            raise error(f"{what}: {name}{path} is {one} and {other}")


def _is_count(value: Any, least: int) -> bool:
    return isinstance(value, int) and value >= least


def _version(t: Tensor) -> int:
    return t._version if type(t._version) is int else t._version[0]


def _run(what: str, fn: Callable[..., Any], *groups: tuple[Sequence[Tensor], Structure]) -> Any:
    """Calls `fn` with containers of these tensors, which it must not write to."""
    stamps = [[_version(t) for t in tensors] for tensors, _ in groups]
    result = fn(*(_unflatten(structure, tensors) for tensors, structure in groups))
    for (tensors, _), before in zip(groups, stamps, strict=True):
        if [_version(t) for t in tensors] != before:
            raise ArgumentError(
                f"{what} updates one of its arguments in place; compute the new value and return it instead"
            )
    return result


# -- cond


def cond(pred: Any, true_fn: Callable[..., Any], false_fn: Callable[..., Any], *operands: Any) -> Any:
    """`true_fn(*operands)` where `pred` is true, `false_fn(*operands)` where it is not; only one of them runs.

    `pred` is a bool or a tensor of one element. In a traced function both are captured, and must return containers
    of one structure, shapes, dtypes and devices: ArgumentError, ShapeError, DTypeError or DeviceError names the leaf.
    A Python bool is decided on the spot in either style.

    >>> import hybridml as hm
    >>> x = hm.tensor([1.0, -2.0])
    >>> hm.cond(x.sum() > 0, lambda t: t * 2, lambda t: -t, x).tolist()
    [-1.0, 2.0]
    """
    if not all(builtins.map(callable, (true_fn, false_fn))):
        raise ArgumentError("cond: takes a predicate and two functions: cond(pred, true_fn, false_fn, *operands)")
    predicate = _predicate(pred, "cond: pred")
    tracer = _tracer()
    if tracer is None or isinstance(predicate, bool):
        name, fn = ("true_fn", true_fn) if predicate else ("false_fn", false_fn)
        tensors, structure = _flatten(fn(*operands), f"cond: what {name} returns")
        return _unflatten(structure, tensors)
    return _traced_cond(tracer, predicate, true_fn, false_fn, operands)


def _predicate(value: Any, what: str) -> Any:
    """A bool tensor without axes; a Python bool where it is known."""
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if not isinstance(value, Tensor | np.ndarray | int | float | np.generic):
        raise DTypeError(f"{what} must be a bool or a tensor of one element, got {type(value).__name__}")
    t = asarray(value)
    if t.numel() != 1:
        raise ShapeError(f"{what} must have one element, got shape {t.shape}; reduce it first (any, all)")
    t = t if t.shape == () else t.reshape(())
    t = t if t.dtype.kind == "b" else OPS["not_equal"].fn(t, 0)
    return bool(t) if _tracer() is None else t


def _traced_cond(tracer: Tracer, predicate: Tensor, true_fn: Any, false_fn: Any, operands: Sequence[Any]) -> Any:
    from .tracing.capture.cond import Branch, Choice
    from .tracing.capture.subgraphs import Region, capture_region, snapshot

    structures: list[Structure] = []
    regions = []
    for name, fn in (("true_fn", true_fn), ("false_fn", false_fn)):

        def branch(_: list[Tensor], fn: Any = fn, name: str = name) -> list[Tensor]:
            tensors, structure = _flatten(fn(*operands), f"cond: what {name} returns")
            structures.append(structure)
            return tensors

        regions.append(capture_region(tracer, f"{name} of cond", (), branch, (fn,), True))
        del structures[len(regions) : -1]  # of captures before the last
        structures[len(regions) - 1 :] = structures[-1:]
    true, false = regions
    counts = [len(r.outputs) - len(r.states) for r in regions]
    _check_alike(
        "cond: true_fn and false_fn differ", "result", true.outputs[: counts[0]], structures[0],
        false.outputs[: counts[1]], structures[1],
    )  # fmt: skip
    states = list({id(t): t for r in regions for t in r.states}.values())
    silent = [t for t in states if all(any(t is s for s in (*r.silent, *_missing(states, r.states))) for r in regions)]
    branches = []
    for region, count in zip(regions, counts, strict=True):
        left = {id(t): value for t, value in zip(region.states, region.outputs[count:], strict=True)}
        kept = [left[id(t)] if id(t) in left else snapshot(tracer, t) for t in states]
        outputs = [*region.outputs[:count], *kept]
        branches.append(Branch(region.since, region.made, [], outputs, region.checks))
    results = Choice(tracer, predicate, branches[0], branches[1], []).run()
    Region(tracer, 0, [], [], states, silent, set()).leave(results[counts[0] :])
    return _unflatten(structures[0], results[: counts[0]])


def _missing(all_: Sequence[Tensor], some: Sequence[Tensor]) -> list[Tensor]:
    return [t for t in all_ if all(t is not s for s in some)]


# -- while_loop


def while_loop(
    cond_fn: Callable[[Any], Any], body_fn: Callable[[Any], Any], init: Any, *, max_steps: int | None = None
) -> Any:
    """`value = body_fn(value)`, from `init`, as long as `cond_fn(value)`; at most `max_steps` times.

    The carry keeps its structure, shapes, dtypes and devices (ArgumentError, ShapeError, DTypeError and DeviceError
    name the leaf). A traced gradient needs `max_steps`, because it keeps values of every step: GradientError without
    it.

    >>> import hybridml as hm
    >>> hm.while_loop(lambda x: x < 100, lambda x: x * 2, hm.tensor(3)).item()
    192
    """
    if max_steps is not None and not _is_count(max_steps, 0):
        raise ArgumentError(f"while_loop: max_steps is a number of steps, got {max_steps!r}")
    carry, structure = _flatten(init, "while_loop: init")
    tracer = _tracer()
    if tracer is not None:
        return _traced_while(tracer, cond_fn, body_fn, carry, structure, max_steps)
    steps = 0
    while max_steps is None or steps < max_steps:
        go = _run("while_loop: cond_fn", cond_fn, (carry, structure))
        if not _predicate(go, "while_loop: what cond_fn returns"):
            break
        carry = _next(carry, structure, _run("while_loop: body_fn", body_fn, (carry, structure)), "while_loop")
        steps += 1
    return _unflatten(structure, carry)


def _next(carry: Sequence[Tensor], structure: Structure, result: Any, what: str) -> list[Tensor]:
    after, new = _flatten(result, f"{what}: the carry ", carry)
    _check_kept(what, carry, structure, after, new)
    return after


def _traced_while(
    tracer: Tracer, cond_fn: Any, body_fn: Any, carry: list[Tensor], structure: Structure, length: int | None
) -> Any:
    from .tracing.capture.loop import Loop
    from .tracing.capture.subgraphs import capture_region, snapshot

    n = len(carry)

    def step(tensors: list[Tensor]) -> list[Tensor]:
        *given, count = tensors
        written = len(tracer.frames[-1].written)
        go = _run("while_loop: cond_fn", cond_fn, (given, structure))
        if len(tracer.frames[-1].written) != written:
            raise ArgumentError(
                "while_loop: cond_fn updates a tensor or draws random numbers; do that in body_fn, and carry it"
            )
        go = asarray(_predicate(go, "while_loop: what cond_fn returns"))
        after = _next(given, structure, _run("while_loop: body_fn", body_fn, (given, structure)), "while_loop")
        return [*after, count + 1, go]

    start = [*carry, zeros((), dtype="int64")]
    region = capture_region(tracer, "the body of while_loop", [aval_of(t) for t in start], step, (body_fn, cond_fn))
    outputs = [*region.outputs[: n + 1], *region.outputs[n + 2 :]]
    init = [snapshot(tracer, t) for t in (*start, *region.states)]
    results = Loop(
        tracer, "while_loop", region.since, region.made, region.inputs, [], outputs, [], init, [], length,
        go=region.outputs[n + 1], steps=n, checks=region.checks,
    ).run()  # fmt: skip
    region.leave(results[n + 1 :])
    return _unflatten(structure, results[:n])


# -- scan


def scan(
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any = None,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
    *,
    checkpoint: bool | int = False,
) -> tuple[Any, Any]:
    """`carry, y = f(carry, x)` for each slice x of `xs` along its first axis: (the last carry, the ys stacked).

    xs: a container of tensors whose first axes agree, or None with `length`. reverse: from the last slice to the
    first. unroll: steps a round of the compiled loop (True: all); results are the same. checkpoint: what the traced
    gradient keeps. False: all that is dear to compute again; True: the carries of each step; k: those of every k-th
    step. Errors: ShapeError where sizes differ, and where carry or y change (ArgumentError, DTypeError, DeviceError)
    from one step to the next, naming the leaf.

    >>> import hybridml as hm
    >>> hm.scan(lambda total, x: (total + x, total), hm.tensor(0.0), hm.tensor([1.0, 2.0, 3.0]))
    (Tensor(6.), Tensor([0., 1., 3.]))
    """
    slices, shape = _flatten(xs, "scan: xs")
    carry, structure = _flatten(init, "scan: init", slices)
    steps = _length(slices, shape, length)
    if not _is_count(unroll, 1):
        raise ArgumentError(f"scan: unroll is a number of steps, at least 1, or True, got {unroll!r}")
    if not _is_count(checkpoint, 0):
        raise ArgumentError(f"scan: checkpoint is True, False or a number of steps, got {checkpoint!r}")
    tracer = _tracer()
    given = (f, carry, structure, slices, shape, steps, reverse)
    if steps and (tracer is None or unroll is True or unroll >= steps):
        return _python_scan(*given)
    if tracer is None:
        return _empty_scan(*given)
    given = (*given[:5], int(steps), reverse) if unroll > 1 or checkpoint > 1 else given
    if unroll > 1:
        return _in_chunks(*given, unroll, lambda g, c, x: scan(g, c, x, unroll, reverse, True), checkpoint)
    if checkpoint > 1 and checkpoint is not True:
        return _in_chunks(*given, checkpoint, lambda g, c, x: scan(g, c, x, checkpoint, reverse), True)
    return _traced_scan(tracer, *given, bool(checkpoint))


def _length(slices: Sequence[Tensor], structure: Structure, length: int | None) -> int:
    if length is not None and not _is_count(length, 0):
        raise ArgumentError(f"scan: length is a number of steps, got {length!r}")
    if length is None and not slices:
        raise ArgumentError("scan: xs holds no tensor, so it does not say how many steps there are; pass length")
    found = length
    for path, x in zip(paths(structure), slices, strict=True):
        if x.ndim == 0:
            raise ShapeError(f"scan: xs{path} has no axis to take slices of; it has shape ()")
        if found is not None and x.shape[0] != found:
            raise ShapeError(f"scan: xs{path} has shape {x.shape}, which is {x.shape[0]} steps and not {found}")
        found = x.shape[0]
    assert found is not None
    return found


def _step(f: Any, carry: Sequence[Tensor], structure: Structure, x: Sequence[Tensor], shape: Structure) -> Any:
    """Runs one step: (next carry, ys, structure of the ys)."""
    result = _run("scan: f", f, (carry, structure), (x, shape))
    if not isinstance(result, tuple) or len(result) != 2:
        got = f"{len(result)} values" if isinstance(result, tuple) else type(result).__name__
        raise ArgumentError(f"scan: f must return (carry, y), got {got}; y may be None")
    ys, new = _flatten(result[1], "scan: y")
    return _next(carry, structure, result[0], "scan"), ys, new


def _python_scan(
    f: Any, carry: list[Tensor], structure: Structure, xs: list[Tensor], shape: Structure, steps: int, reverse: bool
) -> tuple[Any, Any]:
    rows: list[list[Tensor]] = []
    first: Structure | None = None
    for k in builtins.range(steps)[:: -1 if reverse else 1]:
        carry, ys, new = _step(f, carry, structure, [x[k] for x in xs], shape)
        first = new if first is None else first
        _check_alike("scan: two steps differ", "y", rows[0] if rows else ys, first, ys, new)
        rows.append(ys)
    assert first is not None
    stacked = [manipulation.stack(list(column)) for column in zip(*rows[:: -1 if reverse else 1], strict=True)]
    return _unflatten(structure, carry), _unflatten(first, stacked)


@placed
def _empty_scan(
    f: Any, carry: list[Tensor], structure: Structure, xs: list[Tensor], shape: Structure, steps: int, reverse: bool
) -> tuple[Any, Any]:
    """Result of a scan without steps: capturing one finds the form of the ys, and what they and the carry depend on."""

    from .tracing.capture.tracer import Tracer

    tracer = Tracer("scan")

    def captured() -> Any:
        given = [[tracer.lift(t) for t in tensors] for tensors in (carry, xs)]
        return _traced_scan(tracer, f, given[0], structure, given[1], shape, steps, reverse, False)

    after, ys = tracer.run(captured)
    found, whole = _flatten(ys, "scan: y")
    traced = [*_flatten(after, "scan: carry")[0], *found]
    results = [*carry, *(zeros(y.shape, dtype=y.dtype, device=y.device) for y in found)]
    recorded = [k for k, t in enumerate(traced) if is_node(t._node)]
    ends = {id(end) for end in boundary([traced[k]._node for k in recorded], -1)}
    sources = [i.real for i in tracer.inputs if id(i.leaf) in ends]
    joint = make_node(_pull_nothing, None, [t._node for t in sources], sources, carry)
    for k in recorded:
        results[k] = results[k].detach().clone()
        results[k]._node = part(joint, k, results[k].shape)
    n = len(carry)
    return _unflatten(structure, results[:n]), _unflatten(whole, results[n:])


def _pull_nothing(bundle: dict[int, Tensor], node: Node) -> list[tuple[Any, Tensor]]:
    """Pullback of a scan without steps: the initial carry gets the cotangent of the carry, all others zeros."""
    sources, carry = kept_by(node)
    found = [(t._node, zeros_like(t)) for t in sources]
    return found + [(t._node, bundle[k]) for k, t in enumerate(carry) if k in bundle and t._node is not None]


def _in_chunks(
    f: Any,
    carry: list[Tensor],
    structure: Structure,
    xs: list[Tensor],
    shape: Structure,
    steps: int,
    reverse: bool,
    size: int,
    inner: Callable[..., Any],
    checkpoint: bool | int,
) -> tuple[Any, Any]:
    """A loop over chunks of `size` steps, and one over the steps that are left."""
    whole = steps - steps % size
    parts = [(0, whole), (whole, steps)]
    value, found = _unflatten(structure, carry), {}
    for low, high in parts[:: -1 if reverse else 1]:
        if low == high:
            continue
        part = [x[low:high] for x in xs]
        if low:
            value, found[low] = scan(f, value, _unflatten(shape, part), high - low, reverse, checkpoint=checkpoint)
            continue
        cut = _unflatten(shape, [x.reshape((whole // size, size, *x.shape[1:])) for x in part])
        value, ys = scan(lambda c, x: inner(f, c, x), value, cut, whole // size, reverse, checkpoint=checkpoint)
        leaves, new = _flatten(ys, "scan: y")
        found[low] = _unflatten(new, [y.reshape((whole, *y.shape[2:])) for y in leaves])
    both = [_flatten(found[low], "scan: y") for low in sorted(found)]
    joined = [_concat.fn(list(ys), axis=0) for ys in zip(*(ys for ys, _ in both), strict=True)]
    return value, _unflatten(both[0][1], joined)


def _traced_scan(
    tracer: Tracer,
    f: Any,
    carry: list[Tensor],
    structure: Structure,
    xs: list[Tensor],
    shape: Structure,
    steps: int,
    reverse: bool,
    again: bool,
) -> tuple[Any, Any]:
    from .tracing.capture.loop import Loop
    from .tracing.capture.subgraphs import capture_region, snapshot

    n, made = len(carry), []

    def step(tensors: list[Tensor]) -> list[Tensor]:
        after, ys, new = _step(f, tensors[:n], structure, tensors[n:], shape)
        made.append(new)
        return [*after, *ys]

    avals = [*(aval_of(t) for t in carry), *(replace(aval_of(x), shape=x.shape[1:]) for x in xs)]
    region = capture_region(tracer, "the body of scan", avals, step, (f,))
    end = len(region.outputs) - len(region.states)
    carries = [*region.inputs[:n], *region.inputs[n + len(xs) :]]
    after = [*region.outputs[:n], *region.outputs[end:]]
    results = Loop(
        tracer, "scan", region.since, region.made, carries, region.inputs[n : n + len(xs)], after,
        region.outputs[n:end], [snapshot(tracer, t) for t in (*carry, *region.states)],
        [snapshot(tracer, x) for x in xs], steps, reverse, again=again, checks=region.checks,
    ).run()  # fmt: skip
    region.leave(results[n : len(after)])
    return _unflatten(structure, results[:n]), _unflatten(made[-1], results[len(after) :])


# -- what follows from them


def fori_loop(lower: Any, upper: Any, body_fun: Callable[[Any, Any], Any], init: Any) -> Any:
    """`value = body_fun(i, value)` for i from `lower` to `upper` - 1, integers or tensors of one.

    >>> import hybridml as hm
    >>> hm.fori_loop(0, 4, lambda i, total: total + i, hm.tensor(0)).item()
    6
    """
    if isinstance(lower, int) and isinstance(upper, int):
        steps = beside(_flatten(init, "fori_loop: init")[0], partial(arange, lower, max(lower, upper)))
        return scan(partial(_numbered, body_fun), init, steps)[0]
    start = (asarray(lower), init)
    return while_loop(lambda c: c[0] < upper, partial(_counted, body_fun), start)[1]


def map(f: Callable[[Any], Any], xs: Any) -> Any:
    """`f` of each slice of `xs` along its first axis, the results stacked.

    >>> import hybridml as hm
    >>> hm.map(lambda row: row.sum(), hm.ones((2, 3))).tolist()
    [3.0, 3.0]
    """
    return scan(partial(_mapped, f), None, xs)[1]


# Partial functions of these, and not closures: what they call is looked at (see tracing/python_state/guards.py).


def _numbered(body_fun: Callable[[Any, Any], Any], value: Any, i: Any) -> Any:
    return body_fun(i, value), None


def _counted(body_fun: Callable[[Any, Any], Any], counted: Any) -> Any:
    i, value = counted
    return i + 1, body_fun(i, value)


def _mapped(f: Callable[[Any], Any], _: None, x: Any) -> Any:
    return None, f(x)
