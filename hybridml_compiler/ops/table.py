"""The table: every row by name, and the names that NumPy and PyTorch have for the same rows."""

from __future__ import annotations

from . import (
    analytic,
    collectives,
    comparison,
    complex,
    composite,
    contraction,
    control,
    convolution,
    creation,
    cumulative,
    devices,
    diagonal,
    effects,
    elementwise,
    exact,
    factorizations,
    floats,
    fourier,
    gather,
    incomplete_beta,
    incomplete_gamma,
    ldl,
    linalg,
    movement,
    numpy_functions,
    pooling,
    queues,
    random,
    reduction,
    scatter,
    sorting,
    special,
    systems,
    windows,
    zeta,
)
from .op import Op

_ROOMS = (
    *(elementwise, analytic, comparison, movement, diagonal, windows, pooling, reduction, cumulative, contraction),
    *(complex, floats, fourier, convolution, gather, scatter, sorting, creation, random, devices),
    *(effects, collectives, queues),
    *(systems, factorizations, ldl, linalg),
    *(special, zeta, incomplete_gamma, incomplete_beta, exact, numpy_functions),
)

OPS: dict[str, Op] = {op.name: op for room in _ROOMS for op in room.ROWS}
_FILES = {op.name: room.__name__.replace(".", "/") + ".py" for room in _ROOMS for op in room.ROWS}
# Operations of graphs alone: no public functions, `hybridml.control_flow` and the tracer make them.
WITH_BODIES: dict[str, Op] = {op.name: op for op in (*control.ROWS, composite.COMPOSITE, composite.WHILE)}

# Another library's name -> the row; only where the arguments mean the same. Array API names are the rows' own.
ALIASES: dict[str, str] = {
    "absolute": "abs",
    "arccos": "acos",
    "arccosh": "acosh",
    "arcsin": "asin",
    "arcsinh": "asinh",
    "arctan": "atan",
    "arctan2": "atan2",
    "arctanh": "atanh",
    "bitwise_not": "bitwise_invert",
    "invert": "bitwise_invert",
    "left_shift": "bitwise_left_shift",
    "right_shift": "bitwise_right_shift",
    "cat": "concat",
    "concatenate": "concat",
    "cumsum": "cumulative_sum",
    "div": "divide",
    "true_divide": "divide",
    "sub": "subtract",
    "mul": "multiply",
    "mm": "matmul",
    "bmm": "matmul",
    "mv": "matmul",
    "neg": "negative",
    "power": "pow",
    "mod": "remainder",
    "eq": "equal",
    "ne": "not_equal",
    "lt": "less",
    "le": "less_equal",
    "gt": "greater",
    "ge": "greater_equal",
    "clamp": "clip",
    "fix": "trunc",
    "rint": "round",
}


def file_of(op: Op) -> str:
    """The file that a row is written in; empty for what is not in the table."""
    return _FILES.get(op.name, "")
