"""`hm.op`: an operation of a user's own, from a function of NumPy arrays and what else is known about it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from hybridml_compiler.errors import ArgumentError
from hybridml_compiler.ops.op import Accepts

from ..core.codegen import generate
from .code_digest import version_of
from .columns import inputs_and_params, row_name
from .cuda_code import cuda_code, digestible
from .row_of_function import row_of_function


def op(
    fn: Callable[..., Any] | None = None,
    /,
    *,
    infer: Callable[..., Any] | None = None,
    vjp: Callable[..., Any] | Sequence[Callable[..., Any] | None] | None = None,
    jvp: Callable[..., Any] | Sequence[Callable[..., Any] | None] | None = None,
    lower: Callable[..., Any] | None = None,
    vmap: str | Callable[..., Any] | None = None,
    native: Callable[[Any], int | None] | None = None,
    cuda: Any = None,
    launch: Callable[..., Any] | None = None,
    results: Sequence[str] = (),
    accepts: Accepts = "any",
    fails: bool = True,
    samples: Callable[[np.random.Generator], Any] = lambda _: (),
    name: str | None = None,
) -> Any:
    """Makes an operation of a function of NumPy arrays; a decorator, with or without arguments.

    The operation works like one of the table, in both styles and on every device: it is traced as one node, has the
    gradient of `vjp`, is batched under `vmap`, and is printed and parsed by its name and a digest of its code.

    fn: takes a read-only array per positional argument, and parameters as keywords after a `*`; returns an array, or a
        tuple of them where `results` names several.
    infer: takes a type (`shape`, `dtype`) per tensor and the parameters, returns the result's `hm.ShapeDtypeStruct`,
        a tuple of them for several. Needed unless `lower` is given.
    vjp: one rule per tensor, None where the gradient is zero: a function of `g`, the gradient of the result (a tuple
        for several results), and by name of tensors, `out`, parameters, `x_shape`, `x_dtype`. Rules are written in
        operations on tensors. Without vjp and jvp a gradient is a GradientError.
    jvp: one rule per tensor, None where the derivative is zero: a function of `t`, the tangent of that tensor, linear
        in it, and by the names above, that gives the tangent of the result (a tuple for several, None for zeros).
        Their results are added up, as those of `hm.custom_jvp`'s `defjvps`. Forward mode transposes vjp without it;
        reverse mode transposes jvp where vjp is not given.
    lower: makes the operation elementwise: `lower(s, *scalars, **params)` gives an element by the instructions of a
        builder (docs/adding_an_op.md), and is fused into kernels. It must agree with `fn` to the bit.
    vmap: "sequential", "expand_dims" or "broadcast_all" as in `jax.pure_callback`, or `rule(axis_size, in_batched,
        *tensors, **params) -> (results, whether they have the batch)`, with the batch first, as `jax.custom_vmap`'s.
        Without it the operation runs once per element, with a warning.
    native: a function of a signature, `((dtype, ndim) per operand and result, letters of parameters)`, that gives the
        address of `int64_t f(void **arrays, const int64_t *sizes)` (hybridml_compiler/ops/custom.py) or None.
        Programs call it without Python; 1 means failure, which `fn` then explains.
    cuda, launch: code for a GPU, and a function of the types of tensors and results and the parameters that returns
        (grid, block, arguments), as a `cupy.RawKernel` is called, a type in the place of its array. The code is CUDA C
        with one `extern "C" __global__` function, a `cupy.RawKernel`, a function of `numba.cuda.jit`, or a
        `cupy.ElementwiseKernel`, which needs no launch.
    accepts: the dtypes that are taken: "any", "number", "ordered", "float", "integer" or "bool".
    fails: whether it may raise for values; then it is run where nobody reads its result, too.
    samples: yields `hm.testing.Sample`s, on which `hm.testing.check_op` runs it.

    Errors: ArgumentError where the columns do not fit; ShapeError and DTypeError where a result is not what `infer`
    says.

    >>> import hybridml as hm
    >>> @hm.op(infer=lambda x: hm.ShapeDtypeStruct(x.shape[:1], x.dtype), vjp=lambda g, x: g[:, None] * hm.sign(x))
    ... def row_norm(x):
    ...     return abs(x).sum(1)
    >>> hm.grad(lambda x: row_norm(x).sum())(hm.tensor([[1.0, -2.0]]))
    Tensor([[ 1., -1.]])
    """
    if fn is None:
        return functools.partial(
            op, infer=infer, vjp=vjp, jvp=jvp, lower=lower, vmap=vmap, native=native, cuda=cuda, launch=launch,
            results=results, accepts=accepts, fails=fails, samples=samples, name=name,
        )  # fmt: skip
    if not callable(fn):
        raise ArgumentError(f"hm.op: makes an operation of a function, got {type(fn).__name__}")
    given = row_name("hm.op", fn, name)
    inputs, params = inputs_and_params("hm.op", fn)
    columns: Mapping[str, Any] = {
        "infer": infer,
        "vjp": vjp,
        "jvp": jvp,
        "lower": lower,
        "vmap": vmap,
        "native": native,
    }
    if cuda is not None and lower is not None:
        raise ArgumentError(
            f"hm.op: {given} has lower=, which a GPU's kernels are made of: cuda= is for other operations"
        )
    code = None if cuda is None else cuda_code(f"hm.op: {given}", cuda, launch)
    row = row_of_function(
        given,
        fn,
        inputs,
        params,
        what="hm.op",
        version=version_of(fn, *columns.values(), digestible(cuda), launch, tuple(results), accepts),
        cuda=code,
        results=tuple(results),
        accepts=accepts,
        fails=fails,
        samples=samples,
        doc=inspect.getdoc(fn) or "",
        **columns,
    )
    function = generate(row)
    function.__module__ = fn.__module__
    return function
