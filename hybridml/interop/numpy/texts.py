"""Functions of strings whose other operands are numbers: places, widths and counts may be tensors.

NumPy computes them of the values, which a traced function asks for. Numbers and bools that come out are tensors;
strings are arrays, since tensors hold none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hybridml_compiler.errors import DTypeError

from ... import arrays as xp
from ...core.tensor import Tensor

WHY = "works on strings, and tensors hold numbers; give it arrays of strings"
# ufunc -> its operands that are numbers
NUMBERS = {
    **dict.fromkeys(("count", "find", "index", "rfind", "rindex", "startswith", "endswith"), (2, 3)),
    **dict.fromkeys(("_center", "_ljust", "_rjust", "_zfill", "_expandtabs", "_expandtabs_length"), (1,)),
    "_slice": (1, 2, 3),
}


def of_numbers(ufunc: np.ufunc) -> Callable[..., Any]:
    """The ufunc with tensors for its numbers."""

    def of_values(*inputs: Any, **kwargs: Any) -> Any:
        if any(isinstance(x, Tensor) and k not in NUMBERS[ufunc.__name__] for k, x in enumerate(inputs)):
            raise DTypeError(f"np.{ufunc.__name__}: {WHY}")
        result = ufunc(*(np.asarray(x.detach()) if isinstance(x, Tensor) else x for x in inputs), **kwargs)
        return xp.asarray(result) if np.asarray(result).dtype.kind in "biu" else result

    return of_values
