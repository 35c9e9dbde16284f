"""`trace`, the decorator."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any, ParamSpec, Protocol, TypeVar, overload

from .function import Check, TracedFunction
from .run.backend import Memory, Placement

P = ParamSpec("P")
R = TypeVar("R", covariant=True)


class _WithForward(Protocol):
    """Module, as far as `trace` looks at it."""

    @property
    def forward(self) -> Callable[..., Any]: ...


M = TypeVar("M", bound=_WithForward)


class _Decorator(Protocol):
    """`trace` that has its options."""

    @overload
    def __call__(self, fn: M) -> M: ...
    @overload
    def __call__(self, fn: Callable[P, R]) -> TracedFunction[P, R]: ...


@overload
def trace(
    fn: M,
    *,
    backend: str = ...,
    strict: bool = ...,
    dynamic: bool = ...,
    check: Check = ...,
    placement: Placement = ...,
    memory: Memory = ...,
) -> M: ...
@overload
def trace(
    fn: Callable[P, R],
    *,
    backend: str = ...,
    strict: bool = ...,
    dynamic: bool = ...,
    check: Check = ...,
    placement: Placement = ...,
    memory: Memory = ...,
) -> TracedFunction[P, R]: ...
@overload
def trace(
    fn: None = None,
    *,
    backend: str = ...,
    strict: bool = ...,
    dynamic: bool = ...,
    check: Check = ...,
    placement: Placement = ...,
    memory: Memory = ...,
) -> _Decorator: ...
def trace(
    fn: Any = None, *, backend: str = "llvm", strict: bool = False, dynamic: bool = True,
    check: Check = None, placement: Placement = None, memory: Memory = None,
) -> Any:  # fmt: skip
    """Captures a function (or a module) when it is called, compiles it, and runs the compiled program from then on.

    Works on any Python function of nested containers of tensors, arrays and scalars. Tensors that it reaches in
    other ways (closures, modules, optimizers, generators) are its state: updates in place, `.grad` and random
    numbers are as in eager code. A new dtype, number of axes or Python value is compiled again; a float argument is
    not. A size that changes is compiled a second time, for any size (`dynamic=False`: each size for itself).
    `backend="interpret"` runs the graph without the compiler. `check` runs the function itself beside the compiled
    program, at the "first" call of each, at every Nth call or "always", and reports what differs (see docs/seeing.md);
    such a call leaves the results and the state of the function itself. `placement` is a list of devices, or "auto" for
    those of the machine: each operation is computed by the one with which the whole is estimated to take the least time
    (see docs/devices.md); results are where the function itself would have them, sizes are fixed. `memory` limits the
    bytes that a call needs on a device, arguments and results included: a number, "2GB" or "2GiB". Values are computed
    again rather than kept, to the same bits; where that is not enough OutOfMemoryError says which lines hold the rest
    (see docs/seeing.md); sizes are fixed. A module is returned itself, with its `forward` traced, and has what a traced
    function has (`net.cache_info()`, `net.explain(x)`).

    >>> import hybridml as hm
    >>> @hm.trace
    ... def f(x):
    ...     return x * 2 + 1
    >>> f(hm.tensor([1.0, 2.0])).tolist()
    [3.0, 5.0]
    """
    if fn is None:
        return functools.partial(
            trace, backend=backend, strict=strict, dynamic=dynamic, check=check, placement=placement, memory=memory
        )
    if not isinstance(fn, types.FunctionType | types.MethodType) and hasattr(type(fn), "forward"):
        module: Any = fn
        traced = TracedFunction(
            module.forward, backend, strict=strict, dynamic=dynamic, check=check, placement=placement, memory=memory
        )
        object.__setattr__(module, "forward", traced)
        return module
    return TracedFunction(fn, backend, strict=strict, dynamic=dynamic, check=check, placement=placement, memory=memory)
