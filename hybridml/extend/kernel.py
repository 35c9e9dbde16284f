"""`hm.kernel`: plain Python functions of scalars as elementwise operations, which fuse like those of the table."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from hybridml_compiler.aval import Aval
from hybridml_compiler.errors import ArgumentError, GradientError
from hybridml_compiler.graph.body import Body
from hybridml_compiler.ops import custom
from hybridml_compiler.ops.indexing import Index, Load, Scalar, at
from hybridml_compiler.ops.op import SIMPLE, Op, hash_key
from hybridml_compiler.ops.shapes import broadcast

from ..core.codegen import generate
from ..core.ops import names as rows
from ..tracing.python_state.libraries import is_fixed
from ..transforms.grad import jvp
from .array_kernel import ArrayKernel
from .code_digest import version_of
from .columns import inputs_and_params, row_name, rule_of
from .cuda_code import is_cuda_code
from .cuda_kernel import cuda_kernel
from .operation import Operation, Reads, op_of
from .row_of_function import plain_values
from .scalar_body import Run
from .scalar_graph import capture, evaluate
from .source import Source, has_loops, source_of

_LOOP = 10.0  # nanoseconds that an element of a function with loops is taken to need, of which nobody knows the steps


class Kernel(Operation):
    """An elementwise operation that is written as a function of scalars."""

    of_one_dtype = True

    def __init__(
        self, fn: Any, derivative: Any = None, inputs: tuple[str, ...] = (), params: Any = None, what: str = "hm.kernel"
    ) -> None:
        """`inputs` and `params`: names, where they are not those of the signature."""
        self.source = source_of(fn, what)
        self.inputs: tuple[str, ...] = inputs
        self.params: Mapping[str, Any] = params
        if not inputs:
            self.inputs, self.params = inputs_and_params(what, fn)
        self.name = row_name(what, fn, what[3:] if fn.__name__ == "<lambda>" else None)
        given = derivative if isinstance(derivative, tuple | list) or derivative is None else (derivative,)
        if given is not None and len(given) != len(self.inputs):
            raise ArgumentError(
                f"hm.kernel: {self.name} takes {len(self.inputs)} arguments, and derivative= has {len(given)} "
                "functions; give one per argument"
            )
        self.derivative = None if given is None else tuple(map(source_of, given))
        self.digested = (fn, *(given or ()))
        super().__init__(fn)

    def row(self, reads: Reads) -> Op:
        if self.fn.__code__ is not self._code:  # a tool has reloaded its module
            self.source = source_of(self.fn)
        version = version_of(*self.digested)
        given = None if self.derivative is None else [_runs(s, reads) for s in self.derivative]
        cost = _LOOP if has_loops(self.source) else SIMPLE
        return kernel_row(
            self.name, self.run(reads), self.inputs, self.params, version, given, cost, of_one_dtype=self.of_one_dtype
        )

    def run(self, reads: Reads) -> Callable[..., Any]:
        """The function of tensors without axes."""
        return _runs(self.source, reads)

    @property
    def of_scalars(self) -> Source | None:
        """The source, which a kernel that calls this one has in its place, if the gradient is that of it."""
        return self.source if self.derivative is None else None


def kernel_row(
    name: str,
    run: Callable[..., Any],
    inputs: tuple[str, ...],
    params: Mapping[str, Any],
    version: str,
    derivative: Sequence[Callable[..., Any]] | None = None,
    cost: float = SIMPLE,
    *,
    of_one_dtype: bool = True,
) -> Op:
    """The row of `run`, a function of tensors without axes. Its derivatives are rows of the same kind: `derivative`, or
    what forward mode makes of `run`. `of_one_dtype`: operands are brought to one dtype; else each keeps its own."""
    bodies: dict[Any, Body] = {}

    def body_of(operands: Sequence[Any], given: Mapping[str, Any]) -> Body:
        kinds = [x.dtype for x in operands]
        key = (*kinds, *map(hash_key, given.values()))
        if key not in bodies:
            bodies[key] = capture(f"kernel {name}", functools.partial(run, **given), kinds)
        return bodies[key]

    def infer(*avals: Aval, **given: Any) -> Aval:
        shape = broadcast(name, *avals)  # first: a graph is not made for nothing
        return Aval(shape, body_of(avals, given).outputs[0].dtype, all(a.weak for a in avals))

    def eager(*arrays: np.ndarray, **given: Any) -> np.ndarray:
        return evaluate(body_of(arrays, given), arrays)

    def lower(s: Any, i: Index, *loads: Load, **given: Any) -> Scalar:
        found: Scalar = body_of(loads, given).lower(s, [at(load, i) for load in loads])[0]
        return found

    @functools.cache
    def derivative_row(k: int) -> Op:
        slope = derivative[k] if derivative is not None else functools.partial(_slope, run, k)
        version_k = version_of(version, k)
        row = kernel_row(f"{name}_d{inputs[k]}", slope, inputs, params, version_k, cost=cost, of_one_dtype=of_one_dtype)
        generate(row)
        return row

    def rule(k: int) -> Callable[..., Any]:
        def pull(g: Any, **kept: Any) -> Any:
            operands = [kept.pop(x) for x in inputs]
            if any(x.dtype.kind == "c" for x in (g, *operands)):
                raise GradientError(f"{name}: no derivative is taken of complex numbers; write it of real ones")
            found = g * derivative_row(k).fn(*operands, **kept)
            return found if found.dtype == operands[k].dtype else found.astype(operands[k].dtype)

        return rule_of((*inputs, *params), pull)

    return custom.register(
        Op(
            name,
            "elementwise",
            inputs=inputs,
            params=params,
            canon=lambda *avals, **given: plain_values(f"kernel {name}", given),
            infer=infer,
            eager=eager,
            body=body_of,
            cost=cost,
            lower=lower,
            vjp=tuple(map(rule, range(len(inputs)))),
            samples=lambda _: (),
            accepts="ordered" if of_one_dtype else "any",
            complex_kernels=not of_one_dtype,
            unify=tuple(range(len(inputs))) if of_one_dtype else (),
            version=version,
            doc=f"The kernel {name}.",
        )
    )


def _slope(run: Callable[..., Any], k: int, *scalars: Any, **params: Any) -> Any:
    """The derivative of a function by its argument number k."""

    def of_one(x: Any) -> Any:
        return run(*scalars[:k], x, *scalars[k + 1 :], **params)

    one = rows["full"](shape=(), value=1.0, dtype=scalars[k].dtype)
    return jvp(of_one, (scalars[k],), (one,))[1]


def _runs(source: Source, reads: Reads) -> Callable[..., Any]:
    """The function of tensors without axes that a source means."""
    return lambda *scalars, **params: Run(source, reads, _unwrapped)(*scalars, **params)


def _unwrapped(fn: Any) -> Source | None:
    """The source of a kernel whose gradient is that of its source, or of a plain function that is not ours or a
    library's."""
    if hasattr(type(fn), "of_scalars"):
        found: Source | None = fn.of_scalars
        return found
    if isinstance(fn, types.FunctionType) and not is_fixed(str(fn.__module__)) and op_of(fn) is None:
        return source_of(fn)
    return None


def kernel(fn: Any = None, /, *, kind: str = "elementwise", derivative: Any = None, **columns: Any) -> Any:
    """Makes an operation of a plain Python function; a decorator, with or without arguments.

    kind="elementwise": fn is a function of scalars, and the operation that of all elements of its operands, which
        broadcast and have one dtype. It is read from its source: assignments, `if`, conditional expressions, `and`,
        `or`, `not`, `for` over ranges and what is known, `while`, early `return`, `break` and `continue`, calls of
        math, NumPy, hybridml and plain Python functions. It is fused into the kernels around it, and vectorized with
        them. Its gradient comes from the same source, unless `derivative=` has a function of the same scalars per
        argument.
    kind="array": fn is a function of whole arrays and parameters, which numba compiles: loops, branches, early exits.
        `infer=`, `vjp=`, `jvp=`, `vmap=`, `results=` are `hm.op`'s. It runs without the interpreter lock.

    A kernel for a GPU is taken in the place of fn: CUDA C, a `cupy.RawKernel` or a function of `numba.cuda.jit`, with
    `inputs=` (names of the tensors), `infer=` and `launch=` as in `hm.op`, or a `cupy.ElementwiseKernel` alone. On
    other devices such an operation is a DeviceError; `hm.op(cuda=...)` is for those that have code for both.

    Parameters are keywords after a `*`: Python numbers. Variables around the function may change: the next call has
    their new values. Errors: ArgumentError for signatures that do not fit and where numba cannot compile; TraceError
    for statements that have no meaning for all elements at once.

    >>> import math
    >>> import hybridml as hm
    >>> @hm.kernel
    ... def smooth(x, *, edge=1.0):
    ...     if abs(x) < edge:
    ...         return x * x / 2
    ...     return edge * (abs(x) - edge / 2)
    >>> smooth(hm.tensor([0.5, -3.0]))
    Tensor([0.125, 2.500])
    >>> hm.grad(lambda x: smooth(x).sum())(hm.tensor([0.5, -3.0]))
    Tensor([ 0.5, -1.0])
    """
    if fn is not None and is_cuda_code(fn):
        return cuda_kernel(fn, **columns)
    if kind not in ("elementwise", "array"):
        raise ArgumentError(f"hm.kernel: kind is 'elementwise' or 'array', got {kind!r}")
    if fn is None:
        return functools.partial(kernel, kind=kind, derivative=derivative, **columns)
    if kind == "array":
        if derivative is not None:
            raise ArgumentError("hm.kernel: derivative= is for kernels of scalars; give the rules of arrays by vjp=")
        return ArrayKernel(fn, columns)
    if columns:
        raise ArgumentError(f"hm.kernel: {', '.join(columns)} is for kind='array'")
    return Kernel(fn, derivative)
