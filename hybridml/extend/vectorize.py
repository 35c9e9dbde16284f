"""`hm.vectorize`: a Python function of numbers, or of small arrays, over all elements of larger ones, as NumPy's.

@hm.vectorize                               a function of numbers is read from its source, as by `hm.kernel`: it is
def steps(c, limit):                        one native loop, in which an element that is done is left
    z, n = 0j, 0
    while abs(z) < 2 and n < limit:
        z, n = z * z + c, n + 1
    return n

@hm.vectorize(signature="(m,n),(n)->(m)")   a function of arrays is called for each of them, in a loop over `prange`
"""

from __future__ import annotations

import ast
import functools
import inspect
import math
import types
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from hybridml_compiler import dtypes
from hybridml_compiler.aval import Aval
from hybridml_compiler.errors import ArgumentError, ShapeError
from hybridml_compiler.ops.shapes import broadcast
from hybridml_compiler.sizes.dims import same

from ..arrays.creation import asarray, empty
from ..arrays.shaping.manipulation import reshape
from ..control_flow.loops import prange
from ..core.ops import names as row
from ..core.tensor import Tensor
from .cores import Cores, Names, cores_of
from .kernel import Kernel
from .operation import Reads
from .scalar_loops import rank_of
from .source import Source, source_of

_broadcast_to = row["broadcast_to"]
_PYTHONS = (bool, int, float, complex)
_NAMED = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class _Result(Kernel):
    """One result of a function of numbers, of which some arguments are arrays, and others the same for all."""

    of_one_dtype = False

    def __init__(self, fn: Any, inputs: tuple[str, ...], params: Sequence[str], number: int | None) -> None:
        self.number = number
        super().__init__(fn, inputs=inputs, params=dict.fromkeys(params), what="hm.vectorize")
        if number is not None:
            self.name = f"{self.name}_{number}"
        self.digested = (fn, number, inputs)

    def run(self, reads: Reads) -> Callable[..., Any]:
        of_scalars = super().run(reads)

        def run(*scalars: Any, **params: Any) -> Any:
            found = of_scalars(**dict(zip(self.inputs, scalars, strict=True)), **params)
            return found if self.number is None else found[self.number]

        return run


class Vectorized:
    """A function over all elements of its arguments."""

    digested: tuple[Any, ...] = ()  # what a trace looks at (see tracing/python_state/guards.py)

    def __init__(
        self,
        fn: types.FunctionType,
        otypes: Any,
        doc: str | None,
        excluded: Collection[str | int],
        signature: str | None,
    ) -> None:
        functools.update_wrapper(self, fn)
        self.__doc__ = self.__doc__ if doc is None else doc
        self.fn, self.digested, self.signature = fn, (fn,), signature
        self.cores = None if signature is None else cores_of(signature)
        self.otypes = None if otypes is None else [dtypes.canonical(x) for x in otypes]
        self.named = inspect.signature(fn)
        parameters = [*self.named.parameters]
        if any(p.kind not in _NAMED for p in self.named.parameters.values()):
            raise ArgumentError(f"hm.vectorize: arguments have names, and {fn.__name__}{self.named} has others")
        self.excluded = {parameters[x] if isinstance(x, int) else x for x in excluded}
        self.kernels: dict[Any, list[_Result]] = {}
        if self.cores is None:
            self.results = _results_of(source_of(fn, "hm.vectorize"))
        else:
            self.results = len(self.cores.outputs)
        if self.otypes is not None and len(self.otypes) != self.results:
            raise ArgumentError(
                f"hm.vectorize: {fn.__name__} has {self.results} results, and otypes {len(self.otypes)} dtypes"
            )

    @property
    def of_scalars(self) -> Source | None:
        """The source, which a kernel that calls it has in its place."""
        return source_of(self.fn, "hm.vectorize") if self.cores is None else None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        given = dict(self.named.bind(*args, **kwargs).arguments)
        inputs = {name: x for name, x in given.items() if name not in self.excluded}
        if not inputs:
            raise ArgumentError(f"hm.vectorize: {self.__name__} is given no array")  # type: ignore[attr-defined]
        params = {name: x for name, x in given.items() if name in self.excluded}
        found = self._of_numbers(inputs, params) if self.cores is None else self._of_arrays(self.cores, inputs, params)
        if self.otypes is not None:
            found = [x.astype(dtype) for x, dtype in zip(found, self.otypes, strict=True)]
        return found[0] if self.results == 1 else tuple(found)

    def _of_numbers(self, inputs: Mapping[str, Any], params: Mapping[str, Any]) -> list[Tensor]:
        key = (*inputs, None, *params)
        if key not in self.kernels:
            numbers = [None] if self.results == 1 else [*range(self.results)]
            self.kernels[key] = [_Result(self.fn, tuple(inputs), tuple(params), k) for k in numbers]
        operands = _tensors([*inputs.values()])
        return [kernel(*operands, **params) for kernel in self.kernels[key]]

    def _of_arrays(self, cores: Cores, inputs: Mapping[str, Any], params: Mapping[str, Any]) -> list[Tensor]:
        name = f"hm.vectorize: {self.__name__}"  # type: ignore[attr-defined]
        if len(inputs) != len(cores.inputs):
            raise ArgumentError(f"{name} takes {len(cores.inputs)} arrays by its signature, and is given {len(inputs)}")
        arrays = [asarray(x) for x in inputs.values()]
        before, sizes = cores.split(name, [tuple(x.shape) for x in arrays])
        shape = broadcast(name, *(Aval(axes, x.dtype) for x, axes in zip(arrays, before, strict=True)))
        if not shape:
            return _called(name, self.fn, dict(zip(inputs, arrays, strict=True)), params, cores.outputs)
        count = math.prod(shape)
        if same(count, 0):
            return self._empty(name, cores.shapes(sizes), shape, arrays)
        rows, whole = {}, {**params}
        for argument, x, axes in zip(inputs, arrays, before, strict=True):
            if axes:
                core = tuple(x.shape[len(axes) :])
                rows[argument] = reshape(_broadcast_to(x, (*shape, *core)), (count, *core))
            else:
                whole[argument] = x
        return [reshape(x, (*shape, *x.shape[1:])) for x in _each(name, self.fn, rows, whole, cores.outputs, count)]

    def _empty(self, name: str, shapes: Any, shape: Sequence[Any], arrays: Sequence[Tensor]) -> list[Tensor]:
        if shapes is None:
            raise ShapeError(f"{name}: arrays without elements do not tell the sizes of its results")
        return [empty((*shape, *core), dtype=arrays[0].dtype) for core in shapes]

    def __reduce__(self) -> str:  # as a function: pickled by name, and not copied
        return str(self.__qualname__)  # type: ignore[attr-defined]

    def __repr__(self) -> str:
        return f"<vectorized {self.__name__}>"  # type: ignore[attr-defined]


def _each(
    name: str, fn: Callable[..., Any], rows: Mapping[str, Tensor], whole: Mapping[str, Any], cores: Names, count: Any
) -> list[Tensor]:
    """The results of `fn` for each row, stacked. A function of its own: a trace can tell what a step changes."""
    first = _called(name, fn, _at(rows, 0), whole, cores)
    outs = [empty((count, *x.shape), dtype=x.dtype) for x in first]
    _put(outs, 0, first)
    for k in prange(1, count):
        _put(outs, k, _called(name, fn, _at(rows, k), whole, cores))
    return outs


def _at(rows: Mapping[str, Tensor], k: Any) -> dict[str, Tensor]:
    return {argument: x[k] for argument, x in rows.items()}


def _called(
    name: str, fn: Callable[..., Any], arrays: Mapping[str, Tensor], others: Mapping[str, Any], cores: Names
) -> list[Tensor]:
    """The results of a call, with as many axes as the signature says."""
    found = fn(**arrays, **others)
    results = [asarray(x) for x in (found if isinstance(found, tuple) else (found,))]
    if len(results) != len(cores):
        raise ArgumentError(f"{name} returns {len(results)} results, and its signature says {len(cores)}")
    for x, core in zip(results, cores, strict=True):
        if x.ndim != len(core):
            raise ShapeError(f"{name} returns shape {tuple(x.shape)}, and its signature says ({', '.join(core)})")
    return results


def _put(outs: Sequence[Tensor], k: Any, values: Sequence[Tensor]) -> None:
    for out, value in zip(outs, values, strict=True):
        out[k] = value


def _tensors(values: Sequence[Any]) -> list[Tensor]:
    """Arguments as tensors. A Python number has the dtype of the arrays where that is of its kind, else Python's."""
    alone = [isinstance(x, _PYTHONS) and not isinstance(x, Tensor | np.generic) for x in values]
    arrays = [asarray(x) for x, is_number in zip(values, alone, strict=True) if not is_number]
    common = dtypes.result_type([(x.dtype, False) for x in arrays]) if arrays else dtypes.bool_
    left = iter(arrays)
    return [
        asarray(x, dtype=_dtype_of(x, common)) if is_number else next(left)
        for x, is_number in zip(values, alone, strict=True)
    ]


def _dtype_of(number: Any, common: np.dtype) -> np.dtype:
    own: np.dtype = next(dtypes.canonical(kind) for kind in _PYTHONS if isinstance(number, kind))
    if own.kind == "c" and dtypes.is_float(common):
        return dtypes.complex_of(common)
    if own.kind == "f" and common.kind == "c":
        return dtypes.real_of(common)
    return common if rank_of(own) == rank_of(common) else own


def _results_of(source: Source) -> int:
    """The number of results that a function returns."""
    body = source.tree.body
    values = (
        [body]
        if isinstance(source.tree, ast.Lambda)
        else [n.value for n in ast.walk(source.tree) if isinstance(n, ast.Return)]
    )
    counts = {len(value.elts) if isinstance(value, ast.Tuple) else 1 for value in values}
    return counts.pop() if len(counts) == 1 else 1


def vectorize(
    pyfunc: Any = None, /, otypes: Any = None, doc: str | None = None, excluded: Collection[str | int] = (),
    cache: bool = False, signature: str | None = None,
) -> Any:  # fmt: skip
    """A function of arrays from one of their elements; a decorator, with or without arguments, as `numpy.vectorize`.

    Without a signature `pyfunc` is a function of numbers, read from its source as by `hm.kernel`: with `if`, `while`,
    `for`, `break` and early `return`. It is compiled to one loop, in which every element takes its own number of steps.
    Arguments broadcast, and keep their dtypes; Python numbers take that of the arrays. A tuple is several results.
    With one, `"(m,n),(n)->(m)"`, `pyfunc` is a function of arrays with these as their last axes: it is called for
    each element of the axes before them, which broadcast; traced, in one loop that threads share (`hm.prange`).

    otypes: dtypes of the results, as a string of NumPy's letters or a list; those that are computed, without.
    excluded: names or positions of arguments that are the same for all elements: Python numbers, or, with a
        signature, anything.
    doc: the docstring, in the place of that of `pyfunc`. `cache` has no effect: nothing is called twice.

    Errors: TraceError for statements that have no meaning for all elements, ArgumentError, ShapeError.

    >>> import hybridml as hm
    >>> @hm.vectorize
    ... def escape(c, limit):
    ...     z, n = 0j, 0
    ...     while abs(z) < 2 and n < limit:
    ...         z, n = z * z + c, n + 1
    ...     return n
    >>> escape(hm.tensor([1 + 1j, 0.3 + 0.5j, 0.25]), 50)
    Tensor([ 2, 50, 50])
    >>> product = hm.vectorize(lambda a, x: a @ x, signature="(m,n),(n)->(m)")
    >>> product(hm.ones((4, 1, 2, 3)), hm.ones((5, 3))).shape
    (4, 5, 2)
    """
    if pyfunc is None:
        return functools.partial(vectorize, otypes=otypes, doc=doc, excluded=excluded, cache=cache, signature=signature)
    if not isinstance(pyfunc, types.FunctionType):
        raise ArgumentError(f"hm.vectorize: takes a Python function, got {type(pyfunc).__name__}")
    return Vectorized(pyfunc, otypes, doc, excluded or (), signature)
