"""What a user sees of a program, eagerly and traced: results with their types, arguments, state, what is printed."""

from __future__ import annotations

import contextlib
import io
import random
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import hybridml as hm

Made = tuple[Any, ...]  # the function, its calls (tuples of arguments, or what makes one), and what shows state


def canonical(value: Any, met: dict[int, int] | None = None) -> Any:
    """Equal for what no program can tell apart: types, bits, and which containers are one."""
    met = {} if met is None else met
    if isinstance(value, hm.Tensor):
        array = value.detach().numpy()
        return ("tensor", type(value) is hm.Tensor, array.dtype.str, array.shape, array.tobytes(), value.requires_grad)
    if isinstance(value, np.ndarray):
        return ("array", type(value).__name__, value.dtype.str, value.shape, repr(value), value.flags.writeable)
    if isinstance(value, list | tuple | dict):
        if id(value) in met:
            return ("again", met[id(value)])
        met[id(value)] = len(met)
        items = [*value, *value.values()] if isinstance(value, dict) else value
        return (type(value).__name__, [canonical(item, met) for item in items])
    if isinstance(value, set):
        return ("set", sorted(map(repr, value)))
    if isinstance(value, BaseException):
        return (type(value).__name__, str(value))
    return (type(value).__name__, repr(value).split(" at 0x")[0])


def observe(make: Callable[[], Made], style: Callable[[Any], Any]) -> tuple[list[Any], str, list[str], Any]:
    """What all calls give and leave behind, what they print, what is said of eager calls, and the function."""
    hm.manual_seed(0), random.seed(0), np.random.seed(0)
    fn, calls, *state = make()
    styled = style(fn)
    seen: list[Any] = []
    out = io.StringIO()
    with warnings.catch_warnings(record=True) as found, contextlib.redirect_stdout(out):
        warnings.simplefilter("always")
        for call in calls:
            args = call() if callable(call) else call
            try:
                result = styled(*args)
            except Exception as error:
                result = error
            seen.append(canonical([result, args, [show() for show in state]]))
    others = [str(w.message) for w in found if "run eagerly" not in str(w.message)]
    seen.append(others)
    return seen, out.getvalue(), [str(w.message) for w in found if "run eagerly" in str(w.message)], styled
