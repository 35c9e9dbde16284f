"""Native functions by numba, in the form that compiled programs call (hybridml_compiler/ops/custom.py).

numba is imported when a kernel is first compiled. What is compiled takes its operands as read-only arrays and is run
without the interpreter lock; where it raises, it is run once more from Python, which then raises the error.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Sequence
from typing import Any

import numpy as np

from hybridml_compiler import dtypes
from hybridml_compiler.errors import ArgumentError
from hybridml_compiler.ops.custom import Signature

_PARAMETERS = {"b": "boolean", "i": "int64", "f": "float64"}


def numba() -> Any:
    """The package. ArgumentError where it is not installed."""
    try:
        import numba
    except ImportError:
        raise ArgumentError("hm.kernel: this kernel is compiled by numba; pip install numba") from None
    return numba


def compiled(fn: types.FunctionType, arguments: Sequence[Any]) -> Any:
    """The function compiled for arguments of these types of numba. ArgumentError with numba's reason where it
    cannot."""
    nb = numba()
    try:
        return nb.njit([tuple(arguments)], nogil=True, error_model="numpy")(fn)
    except nb.core.errors.NumbaError as error:
        shown = ", ".join(map(str, arguments))
        raise ArgumentError(f"hm.kernel: numba cannot compile {fn.__name__}({shown})\n{error}") from error


def array_type(dtype: np.dtype, ndim: int) -> Any:
    """numba's type of a dense array that is not written to. ArgumentError for what numba has no arithmetic of."""
    nb = numba()
    if dtypes.is_narrow(dtype):
        raise ArgumentError(f"hm.kernel: numba has no {dtype.name}; pass float32")
    return nb.types.Array(nb.from_dtype(dtype), ndim, "C", readonly=True)


def parameter_types(kinds: str) -> list[Any]:
    """numba's types of parameters, by the letters of a signature."""
    return [getattr(numba().types, _PARAMETERS[kind]) for kind in kinds]


def native_function(name: str, call: Any, signature: Signature, inputs: int) -> tuple[int, Any]:
    """The address of a native function, and what keeps it, which calls a compiled function of arrays and parameters and
    stores its results. ArgumentError where these are not what `infer` says."""
    nb = numba()
    arrays, kinds = signature
    read, at = [], 0
    for k, (_, ndim) in enumerate(arrays):
        shape = "".join(f"sizes[{at + j}], " for j in range(ndim))
        read.append(f"    x{k} = carray(pointer(table[{k}]), ({shape}), dtype{k})")
        at += ndim
    given = [f"x{k}" for k in range(inputs)]
    for j, kind in enumerate(kinds):
        number = f"sizes[{at + j}]"
        given.append({"b": f"{number} != 0", "i": number, "f": f"number({number})"}[kind])
    (overload,) = call.overloads.values()
    made = overload.signature.return_type
    several = isinstance(made, nb.types.BaseTuple)
    returned = list(made) if several else [made]
    if len(returned) != len(arrays) - inputs:
        raise ArgumentError(f"hm.kernel: {name} returns {len(returned)} results, and infer says {len(arrays) - inputs}")
    store = []
    for k, of in enumerate(returned):
        store += _stored(name, of, f"found[{k}]" if several else "found", f"x{inputs + k}", *arrays[inputs + k])
    source = [
        "def entry(arrays, sizes_):",
        f"    table, sizes = carray(arrays, ({len(arrays)},)), carray(sizes_, ({max(at + len(kinds), 1)},))",
        *read,
        "    try:",
        f"        found = call({', '.join(given)})",
        "    except Exception:",
        "        return 1",
        *store,
        "    return 0",
    ]
    env: dict[str, Any] = {f"dtype{k}": nb.from_dtype(dtype) for k, (dtype, _) in enumerate(arrays)}
    env |= {"carray": nb.carray, "call": call, **_conversions()}
    exec(compile("\n".join(source), "<hm.kernel>", "exec"), env)
    t = nb.types
    entry = nb.cfunc(t.int64(t.CPointer(t.int64), t.CPointer(t.int64)), nopython=True)(env["entry"])
    return int(entry.address), entry


def _stored(name: str, of: Any, found: str, place: str, dtype: np.dtype, ndim: int) -> list[str]:
    """Source that copies a result of a type of numba to its place; a shape that is another is a failure."""
    nb = numba()
    if isinstance(of, nb.types.Array):
        if (of.ndim, nb.np.numpy_support.as_dtype(of.dtype)) != (ndim, dtype):
            raise ArgumentError(
                f"hm.kernel: {name} returns {of.dtype} with {of.ndim} axes, and infer says {dtype.name} with {ndim}"
            )
        if not ndim:
            return [f"    {place}[()] = {found}[()]"]
        return [f"    if {found}.shape != {place}.shape:", "        return 2", f"    {place}[:] = {found}"]
    if not isinstance(of, nb.types.Number | nb.types.Boolean) or ndim or _rank(of) > _rank(nb.from_dtype(dtype)):
        raise ArgumentError(f"hm.kernel: {name} returns {of}, and infer says {dtype.name} with {ndim} axes")
    return [f"    {place}[()] = {found}"]


def _rank(of: Any) -> int:
    """The place of a type of numba among bools, integers, floats and complex numbers."""
    types = numba().types
    kinds = (types.Boolean, types.Integer, types.Float, types.Complex)
    return next(k for k, kind in enumerate(kinds) if isinstance(of, kind))


@functools.cache
def _conversions() -> dict[str, Any]:
    """Addresses and bits as what they are, for code of numba."""
    nb = numba()
    from numba.extending import intrinsic

    def cast(instruction: str, made: Any) -> Any:
        def convert(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return getattr(builder, instruction)(args[0], context.get_value_type(made))

        def typed(context, value):  # type: ignore[no-untyped-def]  # numba compares signatures
            return made(nb.types.int64), convert

        return intrinsic(typed)

    return {"pointer": cast("inttoptr", nb.types.voidptr), "number": cast("bitcast", nb.types.float64)}
