"""Op: one row of the operation table. The row is the public function: calling it binds through its frontend.

A row carries everything that the framework knows of an operation:

  infer(*avals, **params) -> Aval        shape and dtype rule; raises the user-facing error. Inputs are promoted.
  eager(*arrays, **params) -> ndarray    the NumPy meaning (reference and small-array path)
  lower(s, i, *loads, **params)          "out[i] = ..." over an abstract scalar builder `s`; `i`: int64 scalars
  vjp                                    one rule per input: (g, <names it keeps>) -> cotangent, over the rows
  jvp                                    one rule per input: (t, <names>) -> tangent of the result, which they add up
                                         to; without any, forward mode reads it off the vjp rules
  fails                                  whether it may raise for values, as gathers and scatters for an index
  cost                                   nanoseconds per element; SIMPLE by default, nothing for a movement
  is_update                              whether it is the first operand, but for a slice that the second one is put in
  is_view                                whether the result shares memory with the operand where NumPy can let it
  put_back(parent, value, **params)      of a view: `parent` with its elements replaced; by the vjp rule without it
  element_map                            where an element of the result is in the operands: "flat", at the same place in
                                         row-major order; "broadcast", at the same index of the stretched operand
  memory_order                           NumPy's layout of a result: as the "operands" together, as the "first" of them,
                                         or "" in C order
  covers                                 of a movement: the inputs all of whose elements it reads, or a function of the
                                         parameters that says so
  decided_by                             what may settle a result before all elements of its operands are read
  constant_of                            kinds of dtype on which the result is a constant
  reorders                               what compiled code adds or multiplies in its own order; "" for equal bits
  axis_params                            parameters about the axes that operands and result share: "each" has one entry
                                         per axis, "named" is an axis or several
  transforms                             of an opaque row: its Fourier transforms axis by axis, by types and parameters;
                                         a target may have kernels for them
  public                                 whether `hm.NAME` is offered to users; False for rows that serve other rows'
                                         rules and the library's own compositions
  routine                                sizes for a target's own routine, called instead of NumPy (routines.py)
  over_mask                              of a reduction: its result for the elements of x where a mask is true, from x,
                                         the mask, the axes that it reduces, which are among others those of the
                                         mask, and its other parameters, for any number of elements
  complex_kernels                        whether `lower` is for complex numbers, too (loops/complex_parts.py); else
                                         they are NumPy's in compiled programs, too
  complex_eager                          what computes complex numbers with the bits of kernels where `eager` does not
  body                                   of a kernel of a user: the graph that it is for types and parameters
  version, native, cuda, vmap            of rows of users (custom.py): a digest of their code, which is part of `key`;
                                         the symbol of native code for operands; code for a GPU; the rule for batches
  samples, error_samples                 the test inputs

Names a vjp rule may ask for: `g`, `out`, an input by name (keeps the tensor), `<input>_shape` and `<input>_dtype`
(keeps no data), or a parameter. The tape keeps exactly what the rules name. Rules never un-broadcast: the engine does.

`lower` by kind:
  elementwise, movement, creation, random, gather, transfer    returns the scalar at output index `i`
  reduction, contraction, convolution                the same, with `s.reduce(op, extents, body)`
  random     also has lower_tile(s, t, *loads, **params) -> the `tile` elements from flat position t * tile, where they
             cost as much together as one alone
  scan       returns the element at `i`; the kernel combines it along params["axis"] with `combine`
  scatter    lower(s, i, base, indices, updates, ...) -> (target index tuple, value): the update made by element `i` of
             `updates`; the kernel first copies `base`, then combines with `combine` in index order
  control    no expression: it runs graphs that its parameters hold, see control.py
  opaque     none: NumPy (or code over NumPy) computes it in a compiled program too, called back by the step, unless the
             target has its `routine`
  effect     none: the front end computes it (effects.py), called back by the step as NumPy is

A row with several `results` (names, for people) has an `infer` and an `eager` that give tuples. In its rule `g` and
`out` are tuples, an entry of `g` None where nothing used that result. A graph has one node per result; they differ in
the parameter `result`; one run computes all of them.
Loads are callables: `x(index_tuple) -> scalar`, with `.shape` and `.dtype`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, Literal

import numpy as np

from ..aval import Aval
from ..record import record
from .routines import Measure, with_routine

Kind = Literal[
    "elementwise",
    "movement",
    "creation",
    "random",
    "gather",
    "reduction",
    "contraction",
    "convolution",
    "scan",
    "scatter",
    "control",
    "opaque",
    "transfer",
    "effect",
]
# What an op takes, promotion.py has the kinds. "any", "number" and "inexact" take complex numbers, "ordered", "numeric"
# and "float" are the same without. Integers become the default float in "float" and "inexact" rows.
Accepts = Literal["any", "ordered", "number", "numeric", "inexact", "float", "integer", "integral", "bool"]
Rule = Callable[..., Any]

# "start": it begins what goes on while the program does, and makes a token; "wait": it has the result for that token.
# "send": another process waits for it; "receive": it waits for another process.
Asynchronous = Literal["", "start", "wait", "send", "receive", "plan"]
ElementMap = Literal["", "flat", "broadcast"]
MemoryOrder = Literal["", "operands", "first"]
_MEMORY_ORDER: dict[str, MemoryOrder] = {
    "elementwise": "operands", "reduction": "operands", "scan": "operands", "scatter": "first"
}  # fmt: skip
# By ranges of the operands ("comparison", "extremum"), by one of them ("logic"), by a number (x % 1, "number"), by a
# condition ("choice"), by an axis of one element ("axis").
DecidedBy = Literal["", "comparison", "extremum", "logic", "number", "choice", "axis"]
# A sum of products of operands, a product, a sum of squared distances, or anything built of them.
Reorders = Literal["", "sum", "product", "squares", "any"]

# Nanoseconds to compute one element on one core, measured on AVX-512 machines; they decide what is worth keeping.
# A vector instruction on 16 float32 lanes retires about every 0.3 ns: 0.02 ns per element.
SIMPLE = 0.02
DIVISION = 0.1
# Polynomials of 12-25 instructions with a division or a table, measured through the loop emitter.
TRANSCENDENTAL = 0.4
# Several polynomials; each element takes one, beside an exponential or a logarithm: 55-360 instructions.
SPECIAL = 2.0


@record
class Sample:
    """Inputs of one generated test: arrays (or lists of arrays for a variadic op) and parameters.

    `grad=False` keeps a sample out of the gradient checks (kinks, poles, integer inputs).

    >>> Sample((np.ones(3),), {"axis": 0}).params["axis"]
    0
    """

    args: tuple[Any, ...]
    params: Mapping[str, Any] = field(default_factory=dict)
    grad: bool = True


@record
class ErrorSample:
    """Inputs that must raise `error` with `match` (a plain substring) in the message, in both styles."""

    args: tuple[Any, ...]
    params: Mapping[str, Any]
    error: type[Exception]
    match: str


class Op:
    """A row. See the module docstring for the columns."""

    __slots__ = (
        "accepts", "asynchronous", "axis_params", "body", "canon", "combine", "complex_eager", "complex_kernels",
        "constant_of", "cost", "covers", "cuda", "decided_by", "differentiable", "doc", "eager", "element_map",
        "error_samples", "fails", "fn", "infer", "inputs", "is_update", "is_view", "jvp", "jvp_needs", "key", "kind",
        "lower", "lower_tile", "memory_order", "method", "name", "native", "needs", "operator", "over_mask", "params",
        "public", "put_back", "reorders", "results", "routine", "samples", "tile", "transforms", "unify", "variadic",
        "version", "vjp", "vmap",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        kind: Kind,
        *,
        inputs: tuple[str, ...],
        infer: Callable[..., Any],
        eager: Callable[..., Any],
        lower: Callable[..., Any] | None = None,
        vjp: Sequence[Rule | None] = (),
        jvp: Sequence[Rule | None] = (),
        samples: Callable[[np.random.Generator], Iterable[Sample]],
        error_samples: Callable[[], Iterable[ErrorSample]] = tuple,
        params: Mapping[str, Any] | None = None,
        canon: Callable[..., dict[str, Any]] | None = None,
        accepts: Accepts = "any",
        unify: tuple[int, ...] | None = None,
        variadic: bool = False,
        combine: str = "add",
        tile: int = 1,
        lower_tile: Callable[..., Any] | None = None,
        method: str | None = None,
        operator: str | None = None,
        results: tuple[str, ...] = (),
        fails: bool | None = None,
        asynchronous: Asynchronous = "",
        cost: float | None = None,
        is_view: bool = False,
        is_update: bool = False,
        put_back: Callable[..., Any] | None = None,
        element_map: ElementMap | None = None,
        memory_order: MemoryOrder | None = None,
        covers: tuple[str, ...] | Callable[..., tuple[str, ...]] = (),
        decided_by: DecidedBy = "",
        constant_of: str = "",
        reorders: Reorders = "",
        axis_params: Mapping[str, Literal["each", "named"]] | None = None,
        transforms: Callable[..., Sequence[Any]] | None = None,
        routine: Measure | None = None,
        over_mask: Callable[..., Any] | None = None,
        complex_kernels: bool | None = None,
        complex_eager: Callable[..., Any] | None = None,
        public: bool = True,
        body: Callable[[Sequence[Aval], Mapping[str, Any]], Any] | None = None,
        version: str = "",
        native: Callable[[Sequence[Aval], Mapping[str, Any]], str | None] | None = None,
        cuda: Any = None,
        vmap: str | Callable[..., Any] | None = None,
        doc: str = "",
    ) -> None:
        self.name, self.kind, self.inputs = name, kind, inputs
        self.key, self.version = f"{name}@{version}" if version else name, version
        self.body, self.native, self.cuda, self.vmap = body, native, cuda, vmap
        # May it raise for the values that it is given? Then a program that does not read its result raises too.
        self.fails = kind in ("gather", "scatter") if fails is None else fails
        self.asynchronous: Asynchronous = asynchronous
        self.cost = cost if cost is not None else 0.0 if kind == "movement" else SIMPLE
        self.is_view, self.is_update, self.put_back = is_view, is_update, put_back
        self.element_map: ElementMap = element_map or ("broadcast" if kind == "elementwise" else "")
        self.memory_order: MemoryOrder = _MEMORY_ORDER.get(kind, "") if memory_order is None else memory_order
        self.covers, self.decided_by, self.constant_of = covers, decided_by, constant_of
        self.reorders: Reorders = reorders
        self.axis_params = dict(axis_params or {})
        self.params: dict[str, Any] = dict(params or {})  # parameter name -> default; REQUIRED when there is none
        self.infer: Callable[..., Any] = infer
        self.eager: Callable[..., Any] = eager
        self.lower: Callable[..., Any] = lower or _no_expression
        of_any = kind in ("movement", "creation", "gather") or complex_eager is not None
        self.complex_kernels = of_any if complex_kernels is None else complex_kernels
        self.complex_eager = complex_eager
        self.results = results
        self.over_mask = over_mask
        self.routine = routine  # the sizes for a target's own routine (routines.py)
        if routine is not None:
            self.eager = with_routine(name, routine, infer, eager)
        self.vjp: tuple[Rule | None, ...] = tuple(vjp)
        self.jvp: tuple[Rule | None, ...] = tuple(jvp)
        self.transforms = transforms
        self.samples, self.error_samples = samples, error_samples
        self.canon = canon  # (*avals, **params) -> canonical hashable params; idempotent
        if results:
            self.params["result"] = None
            self.infer, self.eager = _one_of(infer), _one_of(self.eager)
            self.canon = None if canon is None else _but_result(canon)
        self.accepts: Accepts = accepts
        # Inputs that are brought to one dtype before the op runs; all of them for elementwise rows.
        self.unify = unify if unify is not None else (tuple(range(len(inputs))) if kind == "elementwise" else ())
        self.variadic = variadic  # the one input is a sequence of tensors
        self.combine = combine
        self.tile, self.lower_tile = tile, lower_tile
        self.method = method  # name of the Tensor method, None for no method
        self.operator = operator  # name of the Python operator slot: "add" -> __add__ (and __radd__)
        self.public = public
        self.doc = doc
        self.needs, self.jvp_needs = _names(self.vjp, "g"), _names(self.jvp, "t")
        self.differentiable = any(rule is not None for rule in self.vjp)
        self.fn: Callable[..., Any] = self.on_arrays

    def __call__(self, *args: Any, **params: Any) -> Any:
        return self.fn(*args, **params)

    def on_arrays(self, *args: Any, **params: Any) -> Any:
        """The row without a frontend: NumPy arrays in, NumPy array out."""
        if self.results:
            return self.eager(*args, **self.with_defaults(params))
        if self.complex_eager is not None:
            args = tuple(map(np.asarray, args))
        found = self.run(args[0] if self.variadic else args, self.with_defaults(params))
        return np.asarray(found)

    def with_defaults(self, params: Mapping[str, Any]) -> dict[str, Any]:
        return {**self.params, **params}

    def canonical_params(self, avals: Sequence[Aval], params: Mapping[str, Any]) -> dict[str, Any]:
        """Parameters as the graph stores them: defaults filled in, axes non-negative, everything hashable."""
        full = self.with_defaults(params)
        return full if self.canon is None else self.canon(*avals, **full)

    def run(self, arrays: Sequence[Any], params: Mapping[str, Any]) -> Any:
        """The row on NumPy arrays; `params` are all of its parameters."""
        if self.complex_eager is not None and arrays[0].dtype.kind == "c":
            return self.complex_eager(*arrays)
        return self.eager(arrays, **params) if self.variadic else self.eager(*arrays, **params)

    def infer_from(self, avals: Sequence[Aval], params: Mapping[str, Any]) -> Any:
        """Shape and dtype of the result for operands of these; `params` are canonical."""
        return self.infer(avals, **params) if self.variadic else self.infer(*avals, **params)

    def __repr__(self) -> str:
        return f"<op {self.name}>"


def _names(rules: Sequence[Rule | None], given: str) -> tuple[tuple[str, ...] | None, ...]:
    """Per rule: the names that it wants besides what it is given, read once from its signature."""
    return tuple(
        None if rule is None else tuple(p for p in inspect.signature(rule).parameters if p != given) for rule in rules
    )


def hash_key(value: Any) -> Any:
    """A parameter as part of a cache key: (2.0, 3) equals (2, 3) and -0.0 equals 0.0, but have different meanings."""
    kind = value.__class__
    if kind is tuple:
        return (value, *map(type, value))
    return repr(value) if kind is float or kind is complex else value


def size_key(value: Any) -> Any:
    """`hash_key` of sizes, positions or axes: a float among integers makes their sum one, in half of the time."""
    return (value, sum(value).__class__) if value.__class__ is tuple else hash_key(value)


def _one_of(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The function with a parameter that chooses one of its results, or all."""

    def chosen(*args: Any, result: int | None, **params: Any) -> Any:
        found = fn(*args, **params)
        return tuple(found) if result is None else found[result]

    return chosen


def _but_result(canon: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    return lambda *avals, result, **params: {**canon(*avals, **params), "result": result}


def _no_expression(*_: Any, **__: Any) -> Any:
    raise AssertionError("a row without `lower` is computed by NumPy, and lowered to no expression")


class _Required:
    def __repr__(self) -> str:
        return "required"


REQUIRED = _Required()  # default of a parameter that must be given
