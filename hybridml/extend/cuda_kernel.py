"""Operations that are kernels of a GPU alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hybridml_compiler.aval import Aval
from hybridml_compiler.errors import ArgumentError, DeviceError
from hybridml_compiler.ops.shapes import broadcast

from ..core.codegen import generate
from .code_digest import version_of
from .columns import row_name
from .cuda_code import cuda_code, digestible, element_types, is_elementwise_kernel
from .row_of_function import row_of_function


def cuda_kernel(
    code: Any,
    *,
    inputs: Sequence[str] | None = None,
    infer: Callable[..., Any] | None = None,
    launch: Callable[..., Any] | None = None,
    params: Mapping[str, Any] | None = None,
    name: str | None = None,
    vjp: Any = None,
    jvp: Any = None,
    vmap: Any = None,
    results: Sequence[str] = (),
) -> Callable[..., Any]:
    """The operation of a kernel for a GPU, without a meaning on other devices."""
    given = name or str(getattr(code, "name", "") or getattr(code, "__name__", "") or "cuda_kernel")
    given = row_name("hm.kernel", None, given)
    title = f"hm.kernel: {given}"
    if is_elementwise_kernel(code):
        inputs = [p.name for p in code.in_params]
        results = [p.name for p in code.out_params] if len(code.out_params) > 1 else ()
        infer = infer or _broadcasting(title, code)
        vmap = vmap or "expand_dims"
    if inputs is None or not inputs:
        raise ArgumentError(f"{title}: inputs= names the tensors that it takes, in the order of a call")

    def elsewhere(*arrays: Any, **_: Any) -> Any:
        raise DeviceError(f"{given} is a kernel for a GPU, and its operands are elsewhere; move them: x.to('cuda')")

    row = row_of_function(
        given,
        elsewhere,
        tuple(inputs),
        dict(params or {}),
        what="hm.kernel",
        infer=infer,
        version=version_of(digestible(code), infer, launch, vjp, jvp, vmap, tuple(results)),
        vjp=vjp,
        jvp=jvp,
        vmap=vmap,
        cuda=cuda_code(title, code, launch),
        results=tuple(results),
        fails=False,
        doc=f"The CUDA kernel {given}.",
    )
    return generate(row)


def _broadcasting(title: str, code: Any) -> Callable[..., Any]:
    """The types of results: the operands' common shape, and the dtypes of the parameters."""

    def infer(*avals: Aval) -> Any:
        shape = broadcast(title, *avals)
        found = tuple(Aval(shape, dtype) for dtype in element_types(title, code, avals))
        return found if len(found) > 1 else found[0]

    return infer
