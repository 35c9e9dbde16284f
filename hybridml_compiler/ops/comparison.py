"""Comparisons, logic and bits. None of them has a gradient: their results are discrete."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import dtypes
from .elementwise import elementwise
from .op import Op


def _comparison(name: str, ufunc: Any, instruction: str, symbol: str) -> Op:
    nan = "true" if instruction == "ne" else "false"
    return elementwise(
        name,
        ufunc,
        (None, None),
        f"x {symbol} y as bool; {nan} where either is nan. The operands are promoted first.",
        lower=lambda s, x, y: getattr(s, instruction)(x, y),
        accepts="any" if instruction in ("eq", "ne") else "ordered",
        result=dtypes.bool_,
        operator=instruction,
        decided_by="comparison",
        complex_kernels=instruction in ("eq", "ne"),
        method=False,  # PyTorch's x.equal(y) answers one bool for the whole tensor: do not offer a look-alike
    )


equal = _comparison("equal", np.equal, "eq", "==")
not_equal = _comparison("not_equal", np.not_equal, "ne", "!=")
less = _comparison("less", np.less, "lt", "<")
less_equal = _comparison("less_equal", np.less_equal, "le", "<=")
greater = _comparison("greater", np.greater, "gt", ">")
greater_equal = _comparison("greater_equal", np.greater_equal, "ge", ">=")


def _logical(name: str, ufunc: Any, instruction: str, n: int, words: str) -> Op:
    return elementwise(
        name,
        ufunc,
        (None,) * n,
        f"{words} as bool. Other dtypes are read as `x != 0`, so nan is true.",
        lower=lambda s, *values: getattr(s, instruction)(*values),
        accepts="bool",
        result=dtypes.bool_,
        decided_by="logic" if n == 2 else "",
    )


logical_and = _logical("logical_and", np.logical_and, "and_", 2, "x and y")
logical_or = _logical("logical_or", np.logical_or, "or_", 2, "x or y")
logical_xor = _logical("logical_xor", np.logical_xor, "xor", 2, "Exactly one of x and y")
logical_not = _logical("logical_not", np.logical_not, "not_", 1, "not x")


def _bitwise(name: str, ufunc: Any, instruction: str, n: int, operator: str, words: str) -> Op:
    def lower(s: Any, *values: Any) -> Any:
        return getattr(s, instruction)(*values)

    return elementwise(name, ufunc, (None,) * n, words, lower=lower, accepts="integral", operator=operator)


bitwise_and = _bitwise("bitwise_and", np.bitwise_and, "and_", 2, "and", "x & y bit by bit; of bools: logical and.")
bitwise_or = _bitwise("bitwise_or", np.bitwise_or, "or_", 2, "or", "x | y bit by bit; of bools: logical or.")
bitwise_xor = _bitwise("bitwise_xor", np.bitwise_xor, "xor", 2, "xor", "x ^ y bit by bit; of bools: exclusive or.")
bitwise_invert = _bitwise("bitwise_invert", np.invert, "not_", 1, "invert", "~x, every bit flipped; of bools: not.")


def _shift(name: str, ufunc: Any, instruction: str, operator: str, doc: str) -> Op:
    return elementwise(
        name,
        ufunc,
        (None, None),
        doc,
        lower=lambda s, x, y: getattr(s, instruction)(x, y),
        accepts="integer",
        operator=operator,
    )


bitwise_left_shift = _shift(
    "bitwise_left_shift", np.left_shift, "shl", "lshift", "x << y. 0 where y is negative or not less than the width."
)
bitwise_right_shift = _shift(
    "bitwise_right_shift",
    np.right_shift,
    "shr",
    "rshift",
    "x >> y, keeping the sign. Where y is negative or not less than the width: 0, or -1 of a negative x.",
)

ROWS = (
    *(equal, not_equal, less, less_equal, greater, greater_equal, logical_and, logical_or, logical_xor, logical_not),
    *(bitwise_and, bitwise_or, bitwise_xor, bitwise_invert, bitwise_left_shift, bitwise_right_shift),
)
