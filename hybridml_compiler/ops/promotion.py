"""The dtype each input of a row is brought to before the row runs: the same answer eager and traced."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .. import dtypes
from ..aval import Aval
from ..errors import DTypeError
from .op import Op
from .shapes import listing

# accepts -> (kinds of dtype that it takes as they are, words for the message)
_TAKES = {
    "any": ("biuf", "any data"),
    "numeric": ("iuf", "numbers"),
    "float": ("biuf", "numbers"),
    "integer": ("iu", "integers"),
    "integral": ("biu", "integers or bool"),
    "bool": ("biuf", "any data"),
}


def input_dtypes(op: Op, avals: Sequence[Aval]) -> tuple[np.dtype, ...]:
    """One dtype an input: the common one for `unify` inputs, the input's own for the rest.

    "float" rows get the default float for integers and bool, "bool" rows get bool (any non-zero value is true).
    """
    if not avals:
        return ()
    unified = range(len(avals)) if op.variadic else (op.unify or (0,))
    common = dtypes.result_type([(avals[k].dtype, avals[k].weak) for k in unified], op.name)
    kinds, words = _TAKES[op.accepts]
    if common.kind not in kinds:
        got = listing(avals[k] for k in unified)
        raise DTypeError(f"{op.name}: takes {words}, got {got}; convert with astype first")
    if op.accepts == "float" and common.kind != "f":
        common = dtypes.default_float()
    elif op.accepts == "bool":
        common = dtypes.bool_
    return tuple(common if k in unified else a.dtype for k, a in enumerate(avals))


def promoted(op: Op, avals: Sequence[Aval]) -> list[Aval]:
    """The avals as the row sees them."""
    wanted = input_dtypes(op, avals)
    return [a if a.dtype == d else Aval(a.shape, d, a.weak) for a, d in zip(avals, wanted, strict=True)]
