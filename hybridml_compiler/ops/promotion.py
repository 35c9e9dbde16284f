"""The dtype each input of a row is brought to before the row runs: the same answer eager and traced."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from .. import dtypes
from ..aval import Aval
from ..errors import DTypeError
from .op import Op
from .shapes import listing

# accepts -> (kinds of dtype that it takes as they are, words for the message)
_TAKES = {
    "any": ("biufcV", "any data"),
    "ordered": ("biufV", "real data"),
    "number": ("iufc", "numbers"),
    "numeric": ("iuf", "real numbers"),
    "inexact": ("biufc", "numbers"),
    "float": ("biuf", "real numbers"),
    "integer": ("iu", "integers"),
    "integral": ("biu", "integers or bool"),
    "bool": ("biufc", "any data"),
}


def input_dtypes(op: Op, avals: Sequence[Aval]) -> tuple[np.dtype, ...]:
    """One dtype per input: the common one for `unify` inputs, the input's own for the rest.

    "float" and "inexact" rows get the default float for integers and bool, "bool" rows get bool (any non-zero
    value is true).
    """
    found = _input_dtypes(op, tuple([(a.dtype, a.weak) for a in avals]), dtypes.default_float())
    if found is None:
        got = listing(avals[k] for k in _unified(op, len(avals)))
        is_complex = any(avals[k].dtype.kind == "c" for k in _unified(op, len(avals)))
        # `astype` would drop the imaginary parts without a word.
        way = "take real, imag or abs of complex numbers first" if is_complex else "convert with astype first"
        raise DTypeError(f"{op.name}: takes {_TAKES[op.accepts][1]}, got {got}; {way}")
    return found


def _unified(op: Op, count: int) -> Sequence[int]:
    return range(count) if op.variadic else (op.unify or (0,))


@lru_cache(maxsize=4096)  # a program has few combinations of dtypes
def _input_dtypes(op: Op, given: tuple[tuple[np.dtype, bool], ...], default: np.dtype) -> tuple[np.dtype, ...] | None:
    """`input_dtypes` of (dtype, weak) pairs; None for dtypes that the row does not take."""
    if not given:
        return ()
    unified = _unified(op, len(given))
    common = dtypes.result_type([given[k] for k in unified], op.name)
    if ("V" if dtypes.is_narrow(common) else common.kind) not in _TAKES[op.accepts][0]:
        return None
    if op.accepts in ("float", "inexact") and common.kind not in "fc":
        common = default
    elif op.accepts == "bool":
        common = dtypes.bool_
    return tuple(common if k in unified else dtype for k, (dtype, _) in enumerate(given))


def promoted(op: Op, avals: Sequence[Aval]) -> list[Aval]:
    """The avals as the row sees them."""
    wanted = input_dtypes(op, avals)
    return [a if a.dtype == d else Aval(a.shape, d, a.weak) for a, d in zip(avals, wanted, strict=True)]
