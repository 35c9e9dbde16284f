"""NumPy's protocols: an unmodified NumPy function, or user code written for NumPy, runs on tensors.

`np.sin(t)`, `array * t` and `np.linalg.norm(t, axis=0)` run what has the same meaning
here: they differentiate and trace.
`ufuncs.py` has the elementwise functions and their methods, `table.py` how the others are called; the other files hold
their rows by subject. They are imported by the first call that needs them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core.dispatch import count
from ...core.native_methods import direct
from ...core.proxies.base import Proxy
from ...core.tensor import Tensor, method

_OURS = (Tensor, np.ndarray, np.generic)
_PLAIN = frozenset((Tensor, np.ndarray, np.float64, np.int64, float, int))


@method
def __array_ufunc__(self: Tensor, ufunc: Any, call: str, *inputs: Any, **kwargs: Any) -> Any:
    """NumPy's ufunc protocol: `np.add(array, tensor)` is `hm.add`; NEP 13."""
    from . import ufuncs

    count()
    if not kwargs and call in ("__call__", "outer") and _PLAIN.issuperset(map(type, inputs)):
        target = ufuncs.target_of(ufunc)
        if target is not None and call == "outer":
            return ufuncs.outer(target, *inputs)
        if target is not None:
            direct[ufunc, len(inputs)] = target
            return target(*inputs)
    if any(hasattr(x, "__array_ufunc__") and not isinstance(x, _OURS) for x in inputs):
        return NotImplemented  # another type's turn
    return ufuncs.run(ufunc, call, inputs, kwargs)


@method
def __array_function__(self: Tensor, func: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """NumPy's function protocol: `np.sum(tensor)` is `hm.sum`; NEP 18."""
    if not kwargs and len(types) == 1:
        target = direct.get((func, len(args)))
        if target is not None:
            return target(*args)
    from . import functions

    if not all(issubclass(t, (*_OURS, Proxy)) for t in types):
        return NotImplemented
    return functions.run(func, args, kwargs)
