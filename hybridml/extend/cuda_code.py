"""Kernels of users for a GPU: CUDA C, kernels of CuPy, and functions of numba.cuda, as the code of a row."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from hybridml_compiler import dtypes
from hybridml_compiler.aval import Aval
from hybridml_compiler.errors import ArgumentError
from hybridml_compiler.ops.custom import CudaCode
from hybridml_compiler.targets.cuda.emit.types import c_type

_GLOBAL = re.compile(
    r"__global__\s+(?:__launch_bounds__\s*\([^)]*\)\s*)?void\s+(?:__launch_bounds__\s*\([^)]*\)\s*)?(\w+)"
)
_BLOCK = 256  # threads of a block of an elementwise kernel
_MOST_BLOCKS = 1 << 16  # they take turns at more elements


def is_elementwise_kernel(code: Any) -> bool:
    """Whether it is a `cupy.ElementwiseKernel`, or has its attributes."""
    return all(hasattr(code, name) for name in ("in_params", "out_params", "operation", "preamble"))


def is_cuda_code(code: Any) -> bool:
    """Whether it is code for a GPU: text, or a kernel of CuPy or numba.cuda."""
    is_raw = isinstance(code, str) or all(hasattr(code, name) for name in ("code", "name", "options"))
    return is_raw or is_elementwise_kernel(code) or (hasattr(code, "py_func") and hasattr(code, "forall"))


def digestible(code: Any) -> Any:
    """The parts of a kernel, if there is one, by which a digest tells it from others."""
    if is_elementwise_kernel(code):
        params = [(p.name, p.ctype, str(p.dtype), p.raw) for p in (*code.in_params, *code.out_params)]
        return tuple(params), code.operation, code.preamble
    if code is None or isinstance(code, str):
        return code
    return code.py_func if hasattr(code, "py_func") else (code.code, code.name)


def cuda_code(title: str, code: Any, launch: Callable[..., Any] | None) -> CudaCode:
    """The column `cuda` of a row. ArgumentError for what is no kernel, and for one that lacks its launch."""
    if is_elementwise_kernel(code):
        if launch is not None:
            raise ArgumentError(f"{title}: an ElementwiseKernel has its launch, launch= is for other kernels")
        return CudaCode(_over_elements, lambda types, _: (_elementwise(title, code, types), "elementwise"))
    if launch is None:
        raise ArgumentError(
            f"{title}: a CUDA kernel needs launch=, a function of the types of tensors and results that returns (grid, "
            "block, arguments)"
        )
    if isinstance(code, str):
        names = _GLOBAL.findall(code)
        if len(names) != 1:
            raise ArgumentError(f"{title}: the source has one __global__ function, found {', '.join(names) or 'none'}")
        return CudaCode(launch, _written(title, code, names[0]))
    if hasattr(code, "py_func"):
        return CudaCode(launch, lambda types, arguments: _numba(title, code, types, arguments), _expanded)
    options = [option for option in code.options if not option.lstrip("-").startswith("std")]
    if code.code is None or options:
        what = f"with the options {', '.join(options)}" if options else "of a file"
        raise ArgumentError(f"{title}: a RawKernel {what} is not taken: pass one of source text, without options")
    return CudaCode(launch, _written(title, code.code, code.name))


def _written(title: str, source: str, name: str) -> Callable[[Any, Any], tuple[str, str]]:
    """The source as it is written, for all types."""
    if 'extern "C"' not in source:
        raise ArgumentError(f'{title}: the kernel is declared extern "C", so that it is found by its name')
    return lambda types, arguments: (source, name)


# ---- elementwise kernels of CuPy


def element_types(title: str, kernel: Any, operands: Sequence[Any]) -> tuple[np.dtype, ...]:
    """The dtypes of the results: those that the parameters name, or those of operands with the same letter."""
    letters: dict[str, np.dtype] = {}
    if len(operands) != len(kernel.in_params):
        raise ArgumentError(f"{title}: takes {len(kernel.in_params)} tensors, got {len(operands)}")
    for param, operand in zip(kernel.in_params, operands, strict=True):
        if param.dtype is None:
            known = letters.setdefault(param.ctype, operand.dtype)
            wanted = known
        else:
            wanted = dtypes.canonical(np.dtype(param.dtype))
        if wanted != operand.dtype:
            raise ArgumentError(
                f"{title}: {param.name} is {wanted.name}, got {operand.dtype.name}; cast it with astype"
            )
    found = [
        letters.get(param.ctype) if param.dtype is None else dtypes.canonical(np.dtype(param.dtype))
        for param in kernel.out_params
    ]
    if None in found:
        raise ArgumentError(f"{title}: the type of a result is none of an operand; name it in the parameters")
    return tuple(x for x in found if x is not None)


def _elementwise(title: str, kernel: Any, types: Sequence[Aval]) -> str:
    """CUDA C of an elementwise kernel for operands and results of these types."""
    params = [*kernel.in_params, *kernel.out_params]
    inputs, result = len(kernel.in_params), types[-1]
    names = [_c_name(title, t.dtype) for t in types]
    known = {p.ctype: name for p, name in zip(params, names, strict=True) if p.dtype is None}
    arguments, views = [], []
    for k, (p, name, t) in enumerate(zip(params, names, types, strict=True)):
        const = "const " * (k < inputs)
        arguments.append(f"{const}{name}* _{p.name}")
        of_element = f"{const}{name}& {p.name} = _{p.name}[{_place(t.shape, result.shape)}];"
        views.append(f"{const}{name}* {p.name} = _{p.name};" if p.raw else of_element)
    return "\n".join(
        [
            *[f"typedef {name} {letter};" for letter, name in known.items()],
            kernel.preamble,
            f'extern "C" __global__ void elementwise({", ".join([*arguments, "long long _n"])}) {{',
            "  const long long _step = (long long)gridDim.x * blockDim.x;",
            "  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < _n; i += _step) {",
            *[f"    {view}" for view in views],
            f"    {kernel.operation};",
            "  }",
            "}",
        ]
    )


def _place(shape: Sequence[int], whole: Sequence[int]) -> str:
    """C of the place of element `i` of the result in an operand that is stretched to it."""
    if tuple(shape) == tuple(whole):
        return "i"
    terms, inner, step = [], 1, 1
    padded = (*[1] * (len(whole) - len(shape)), *shape)
    for size, n in zip(reversed(padded), reversed(whole), strict=True):
        if size != 1:
            terms.append(f"i / {inner} % {n} * {step}")
            step *= size
        inner *= n
    return " + ".join(terms) or "0"


def _over_elements(*types: Aval) -> tuple[Any, Any, Sequence[Any]]:
    size = types[-1].size
    return (min(-(-size // _BLOCK), _MOST_BLOCKS),), (_BLOCK,), [*types, size]


def _c_name(title: str, dtype: np.dtype) -> str:
    if dtypes.is_narrow(dtype) or dtype.kind == "c":
        raise ArgumentError(f"{title}: ElementwiseKernels take bool, integers, float32 and float64, got {dtype.name}")
    return c_type(dtype)


# ---- functions of numba.cuda


def _numba(title: str, dispatcher: Any, types: Sequence[Aval], arguments: Sequence[Any]) -> tuple[str, str]:
    """PTX of a function of numba.cuda for the arguments of its launch. Arrays of operands are not written to."""
    numba: Any = importlib.import_module("numba")

    def of(value: Any) -> Any:
        if isinstance(value, Aval):
            return numba.types.Array(numba.from_dtype(value.dtype), value.ndim, "C")
        return numba.typeof(value)

    try:
        return _compiled(dispatcher.py_func, tuple(map(of, arguments)))
    except numba.core.errors.NumbaError as error:
        raise ArgumentError(f"{title}: numba cannot compile it\n{error}") from error


@cache
def _compiled(function: Callable[..., Any], types: tuple[Any, ...]) -> tuple[str, str]:
    """(PTX, its entry): numba compiles anew whenever it is asked, and each launch asks."""
    cuda: Any = importlib.import_module("numba.cuda")
    ptx, _ = cuda.compile_ptx(function, types, cc=(8, 0))
    found = re.search(r"\.entry\s+(\w+)", ptx)
    assert found is not None, ptx
    return ptx, found[1]


def _expanded(arguments: Sequence[Any]) -> list[Any]:
    """The arguments as numba passes them: of an array its owner and parent, its number of elements and their size, its
    memory, shape and strides."""
    found: list[Any] = []
    for value in arguments:
        if not isinstance(value, Aval):
            found.append(value)
            continue
        step, strides = value.dtype.itemsize, []
        for size in reversed(value.shape):
            strides.append(step)
            step *= size
        found += [0, 0, value.size, value.dtype.itemsize, value, *value.shape, *reversed(strides)]
    return found
