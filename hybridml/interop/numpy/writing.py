"""Text and files: NumPy writes the values. A traced function asks for them, as `print` does."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core.tensor import Tensor
from .table import implements


def _array(x: Any) -> Any:
    if isinstance(x, Tensor):
        return np.asarray(x.detach())
    return type(x)([_array(v) for v in x]) if isinstance(x, list | tuple) else x


def _writing(function: Any) -> Any:
    def write(*args: Any, **kwargs: Any) -> Any:
        return function(*(_array(x) for x in args), **{name: _array(x) for name, x in kwargs.items()})

    write.__name__ = function.__name__
    return write


for _function in (np.array2string, np.array_repr, np.array_str, np.save, np.savetxt, np.savez, np.savez_compressed):
    implements(_function)(_writing(_function))
