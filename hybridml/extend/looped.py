"""Functions of scalars whose loops end where an element says: numba compiles them, and a native loop over the elements
calls them. Such an operation is a launch of its own: it does not fuse."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from hybridml_compiler import dtypes
from hybridml_compiler.aval import Aval
from hybridml_compiler.errors import ArgumentError, GradientError
from hybridml_compiler.ops.custom import Signature
from hybridml_compiler.ops.op import Op
from hybridml_compiler.ops.shapes import broadcast

from .columns import rule_of
from .numba_code import array_type, compiled, native_function, numba, parameter_types
from .row_of_function import row_of_function

_LETTERS = {bool: "b", int: "i", float: "f"}


def looped_row(
    fn: types.FunctionType,
    inputs: tuple[str, ...],
    params: Mapping[str, Any],
    version: str,
    slopes: Sequence[Callable[..., Any]] | None,
) -> Op:
    """The row of a function of scalars, on operands of one shape and dtype. `slopes`: its derivatives."""
    name = fn.__name__
    compiled_for: dict[tuple[np.dtype, str], Any] = {}
    kept: list[Any] = []

    def scalar(dtype: np.dtype, kinds: str) -> Any:
        """The function compiled for scalars."""
        if (dtype, kinds) not in compiled_for:
            of = numba().from_dtype(dtype)
            compiled_for[dtype, kinds] = compiled(fn, [*[of] * len(inputs), *parameter_types(kinds)])
        return compiled_for[dtype, kinds]

    def result(dtype: np.dtype, kinds: str) -> np.dtype:
        """The dtype of the result: numbers of numba's float64 have that of the operands where these are floats."""
        (overload,) = scalar(dtype, kinds).overloads.values()
        made: np.dtype = dtypes.canonical(numba().np.numpy_support.as_dtype(overload.signature.return_type))
        return dtype if made.kind == dtype.kind == "f" else made

    def infer(*avals: Aval, **given: Any) -> Aval:
        for param, value in given.items():
            if type(value) not in _LETTERS:
                raise ArgumentError(
                    f"kernel {name}: its loops end where an element says, so numba compiles it, and its parameters "
                    f"are numbers; {param} is {value!r}"
                )
        letters = "".join(_LETTERS[type(value)] for value in given.values())
        return Aval(broadcast(name, *avals), result(avals[0].dtype, letters))

    def loop(dtype: np.dtype, ndim: int, kinds: str) -> Any:
        """The loop over the elements of arrays, compiled."""
        names, extra = [f"x{k}" for k in range(len(inputs))], [f"p{k}" for k in range(len(kinds))]
        source = [
            f"def loop({', '.join([*names, *extra])}):",
            "    out = empty(x0.shape, made)",
            *[f"    f{k} = x{k}.reshape(-1)" for k in range(len(inputs))],
            "    flat = out.reshape(-1)",
            "    for i in range(flat.size):",
            f"        flat[i] = scalar({', '.join([*[f'f{k}[i]' for k in range(len(inputs))], *extra])})",
            "    return out",
        ]
        env = {"empty": np.empty, "made": numba().from_dtype(result(dtype, kinds)), "scalar": scalar(dtype, kinds)}
        exec(compile("\n".join(source), f"<{name}>", "exec"), env)
        return compiled(env["loop"], [*[array_type(dtype, ndim)] * len(inputs), *parameter_types(kinds)])

    def native(signature: Signature) -> int:
        (dtype, ndim), kinds = signature[0][0], signature[1]
        address, entry = native_function(name, loop(dtype, ndim, kinds), signature, len(inputs))
        kept.append(entry)
        return address

    def call(*arrays: np.ndarray, **given: Any) -> np.ndarray:
        """The function itself for each element, for its error."""
        found = [fn(*scalars, **given) for scalars in zip(*[x.reshape(-1) for x in arrays], strict=True)]
        dtype = infer(*[Aval(x.shape, x.dtype) for x in arrays], **given).dtype
        return np.array(found, dtype).reshape(arrays[0].shape)

    def rule(k: int) -> Callable[..., Any]:
        def pull(g: Any, **kept: Any) -> Any:
            if slopes is None:
                raise GradientError(
                    f"kernel {name}: its loops end where an element says, so that its source gives no derivative; give "
                    "derivative=, a function of the same scalars per argument"
                )
            return g * slopes[k](*[kept.pop(x) for x in inputs], **kept)

        return rule_of((*inputs, *params), pull)

    return row_of_function(
        name, call, inputs, params, what="hm.kernel", infer=infer, version=version,
        vjp=tuple(map(rule, range(len(inputs)))), vmap="broadcast_all", native=native, accepts="ordered", unify=True,
        doc=f"The kernel {name}.",
    )  # fmt: skip
