"""Composites on float16 and bfloat16 compute in float32 and round their result once, as rows do (see dispatch.py).

A sum of squares overflows in float16 from 256 on, whatever root is taken of it.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, ParamSpec

from hybridml_compiler import dtypes
from hybridml_compiler.ops.table import OPS

from ..tensor import Tensor

P = ParamSpec("P")
_astype = OPS["astype"]


def wide(x: Any) -> Any:
    """A tensor of float16 or bfloat16 in float32, anything else as it is."""
    return _astype.fn(x, dtypes.float32) if isinstance(x, Tensor) and dtypes.is_narrow(x.dtype) else x


def in_float32(fn: Callable[P, Tensor]) -> Callable[P, Tensor]:
    """Decorator of a composite: narrow floats among its arguments are widened, and its result is rounded to their dtype
    where no other argument is a wider float.

    Arguments named `running_...`, which are updated in place, stay as they are.
    """
    call: Callable[..., Tensor] = fn
    code = inspect.unwrap(fn).__code__
    names = code.co_varnames[: code.co_argcount]

    @functools.wraps(fn)
    def composite(*args: P.args, **kwargs: P.kwargs) -> Tensor:
        for value in (*args, *kwargs.values()) if kwargs else args:
            if isinstance(value, Tensor) and dtypes.is_narrow(value.dtype):
                break
        else:
            return fn(*args, **kwargs)
        given = dict(zip(names, args, strict=False)) | kwargs
        taken = {name: v for name, v in given.items() if not name.startswith("running_")}
        floats = [v.dtype for v in taken.values() if isinstance(v, Tensor) and v.dtype.kind in "fcV"]
        widened: dict[str, Any] = {name: wide(v) if name in taken else v for name, v in given.items()}
        by_place = [widened.pop(name) for name, _ in zip(names, args, strict=False)]
        result: Tensor = call(*by_place, **widened)
        if result.dtype is not dtypes.float32 or not all(map(dtypes.is_narrow, floats)):
            return result
        rounded: Tensor = _astype.fn(result, dtypes.result_type([(d, False) for d in floats]))
        return rounded

    return composite
