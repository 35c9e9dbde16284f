"""Rows whose meaning is a Python function of NumPy arrays, with the columns that a user gives."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from hybridml_compiler import dtypes
from hybridml_compiler.aval import Aval
from hybridml_compiler.errors import ArgumentError, DTypeError, GradientError, ShapeError
from hybridml_compiler.hooks import hooks
from hybridml_compiler.ops import custom
from hybridml_compiler.ops.indexing import at
from hybridml_compiler.ops.op import Op
from hybridml_compiler.ops.shapes import broadcast
from hybridml_compiler.record import record

from ..arrays.creation import zeros
from ..core.batching.custom import METHODS
from ..core.context import clock, enable_grad
from ..core.forward.rules import fitting
from ..core.forward.transposition import differentiated, pulled_from_rule
from .columns import rule_of


@record
class Unknown:
    """The gradient's rule of an operation that was given none: a GradientError, where zeros would be believed."""

    title: str

    def __call__(self, g: Any) -> Any:
        raise GradientError(
            f"{self.title} has no gradient; give vjp= or jvp= a rule per tensor, and for one that has none vjp=(None,)"
        )


def rules(
    what: str, name: str, inputs: Sequence[str], params: Mapping[str, Any], column: str, given: Any, first: str
) -> tuple[Any, ...]:
    """The rules of a column, one per input; they are given `first`. ArgumentError where there are more or less, or one
    asks for what there is not."""
    given = tuple(given) if isinstance(given, tuple | list) else (given,)
    if len(given) != len(inputs):
        raise ArgumentError(
            f"{what}: {name} takes {len(inputs)} tensors ({', '.join(inputs)}), and {column}= has {len(given)} rules; "
            f"give a tuple with a rule per tensor, None for one without a {'gradient' if first == 'g' else 'tangent'}"
        )
    if first in (*inputs, *params):
        raise ArgumentError(f"{what}: rules of {column}= have another meaning for {first}; rename the argument")
    known = {first, "out", *inputs, *params, *(f"{x}_{part}" for x in inputs for part in ("shape", "dtype"))}
    for rule in given:
        names = [] if rule is None else list(inspect.signature(rule).parameters)
        unknown = [x for x in names if x not in known]
        if rule is not None and (unknown or names[:1] != [first]):
            raise ArgumentError(
                f"{what}: a rule of {name} is a function of {first}, and by name of out, {', '.join(inputs)}"
                f"{''.join(f', {x}_shape, {x}_dtype' for x in inputs)}{''.join(f', {x}' for x in params)}; got "
                f"({', '.join(names)})"
            )
    return given


def transposed_rule(rule: Callable[..., Any], x: str, what: str) -> Callable[..., Any]:
    """The gradient's rule of an operand from its rule of tangents, which is linear."""
    names = [name for name in inspect.signature(rule).parameters if name != "t"]

    def pull(g: Any, **kept: Any) -> Any:
        shape, dtype = kept[f"{x}_shape"], kept[f"{x}_dtype"]
        seeds = g if isinstance(g, tuple) else (g,)
        device = next(seed.device for seed in seeds if seed is not None)
        with enable_grad():
            start = clock()
            t = differentiated(zeros(shape, dtype=dtype, device=device))
            said = rule(t, **{name: kept[name] for name in names})
            pairs = zip(said if isinstance(g, tuple) else (said,), seeds, strict=True)
            moving = [(fitting(o, seed), seed) for o, seed in pairs if o is not None and seed is not None]
        (found,) = pulled_from_rule(rule, what, [o for o, _ in moving], [seed for _, seed in moving], [t], start)
        return t.detach() if found is None else found

    return rule_of(dict.fromkeys((*names, f"{x}_shape", f"{x}_dtype")), pull)


def plain_values(what: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters that a graph can hold: numbers, strings, None, dtypes and tuples of these."""
    found = {}
    for name, value in params.items():
        value = tuple(value) if isinstance(value, list) else value.item() if isinstance(value, np.generic) else value
        items = value if isinstance(value, tuple) else (value,)
        if not all(isinstance(x, bool | int | float | str | np.dtype | type(None)) for x in items):
            raise ArgumentError(
                f"{what}: parameter {name} is a number, a string, a dtype, None or a tuple of these, got "
                f"{type(value).__name__}; arrays are tensors, which are passed by position"
            )
        found[name] = value
    return found


def _type(what: str, found: Any) -> Aval:
    """The type of a result from what `infer` has returned for it."""
    if isinstance(found, Aval):
        return Aval(tuple(found.shape), found.dtype)
    pair = (found.shape, found.dtype) if hasattr(found, "shape") and hasattr(found, "dtype") else found
    try:
        shape, dtype = pair
        return Aval(tuple(shape), dtypes.canonical(dtype))
    except (TypeError, ValueError):
        raise ArgumentError(
            f"{what}: infer returns a hm.ShapeDtypeStruct(shape, dtype) per result, got {found!r}"
        ) from None


def row_of_function(
    name: str,
    call: Callable[..., Any],
    inputs: tuple[str, ...],
    params: Mapping[str, Any],
    *,
    what: str,
    infer: Callable[..., Any] | None,
    version: str,
    vjp: Any = None,
    jvp: Any = None,
    lower: Callable[..., Any] | None = None,
    vmap: Any = None,
    native: Callable[[custom.Signature], int | None] | None = None,
    cuda: custom.CudaCode | None = None,
    results: tuple[str, ...] = (),
    accepts: Any = "any",
    unify: bool = False,
    fails: bool = True,
    samples: Callable[[np.random.Generator], Any] = lambda _: (),
    doc: str = "",
) -> Op:
    """The row, registered. `call` gets arrays that it cannot write to, and returns an array per result."""
    title = f"{what}: {name}"
    if infer is None and lower is None:
        raise ArgumentError(f"{title} needs infer=, a function of types and parameters that gives the result's type")
    if isinstance(vmap, str) and vmap not in METHODS:
        raise ArgumentError(f"{title}: vmap= is a function or one of {', '.join(METHODS)}, got {vmap!r}")

    ahead = () if jvp is None else rules(what, name, inputs, params, "jvp", jvp, "t")
    if vjp is not None:
        back = rules(what, name, inputs, params, "vjp", vjp, "g")
    elif ahead:
        back = tuple([rule and transposed_rule(rule, x, title) for rule, x in zip(ahead, inputs, strict=True)])
    else:
        back = (Unknown(title),) * len(inputs)

    def inferred(*avals: Aval, **given: Any) -> Any:
        if infer is None:
            return Aval(broadcast(name, *avals), avals[0].dtype, all(a.weak for a in avals))
        found = infer(*avals, **given)
        if not results:
            return _type(title, found)
        if not isinstance(found, tuple | list) or len(found) != len(results):
            raise ArgumentError(f"{title}: infer returns a tuple with a type for {', '.join(results)}")
        return tuple([_type(title, each) for each in found])

    def types_of(arrays: Sequence[np.ndarray], given: Mapping[str, Any]) -> tuple[Aval, ...]:
        found = inferred(*[Aval(x.shape, dtypes.canonical(x.dtype)) for x in arrays], **given)
        return found if results else (found,)

    symbol = None if native is None else custom.native_symbols(version, native)

    def eager(*arrays: np.ndarray, **given: Any) -> Any:
        made = types_of(arrays, given)
        if symbol is not None:
            avals = [*[Aval(x.shape, dtypes.canonical(x.dtype)) for x in arrays], *made]
            code = symbol(avals, given)
            if code is not None:
                sizes = custom.native_sizes(avals, given)
                found = hooks.routine(code, arrays, sizes, [(aval.shape, aval.dtype) for aval in made])
                if found is not None:
                    return tuple(found) if results else found[0]
        returned = call(*map(_read_only, arrays), **given)
        found = returned if results else (returned,)
        if not isinstance(found, tuple | list) or len(found) != len(made):
            raise ArgumentError(f"{title} returns a tuple of {len(made)} arrays")
        checked: list[np.ndarray] = []
        for x, aval in zip(found, made, strict=True):
            checked.append(_checked(title, x, aval, [*arrays, *checked]))
        return tuple(checked) if results else checked[0]

    def element(s: Any, i: Any, *loads: Any, **given: Any) -> Any:
        assert lower is not None
        return lower(s, *[at(load, i) for load in loads], **given)

    return custom.register(
        Op(
            name,
            "opaque" if lower is None else "elementwise",
            inputs=inputs,
            params=params,
            canon=lambda *avals, **given: plain_values(title, given),
            infer=inferred,
            eager=eager,
            lower=None if lower is None else element,
            vjp=back,
            jvp=ahead,
            vmap=vmap,
            native=symbol,
            cuda=cuda,
            results=results,
            accepts=accepts,
            unify=tuple(range(len(inputs))) if unify or lower is not None else (),
            fails=fails and lower is None,
            samples=samples,
            version=version,
            doc=doc,
        )
    )


def _read_only(array: np.ndarray) -> np.ndarray:
    view = array.view()
    view.flags.writeable = False
    return view


def _checked(title: str, found: Any, aval: Aval, others: Sequence[np.ndarray]) -> np.ndarray:
    """A result as an array that shares no memory with others. ShapeError, DTypeError where `infer` says another."""
    array = np.asarray(found)
    if array.shape != tuple(aval.shape):
        raise ShapeError(f"{title} returned shape {array.shape}, and infer says {tuple(aval.shape)}")
    if array.dtype != aval.dtype:
        raise DTypeError(
            f"{title} returned {array.dtype}, and infer says {aval.dtype.name}; cast the result with astype"
        )
    if not array.flags.writeable or any(np.may_share_memory(array, x) for x in others):
        array = array.copy()
    return array
