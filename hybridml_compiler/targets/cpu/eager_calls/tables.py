"""Tables that native methods read: operands, dtypes, rows and their loops, and the lines of writes."""

from __future__ import annotations

from ..structs import words

AXES = 16  # at most, of a result
MOST = 24000  # elements of a result of kernels, which larger ones run on all cores
SMALL_PRODUCT = 8192  # sums of products

# Elements of numbers: where they are, and in what steps. Steps of axes that are looked at once are those of an array.
OPERAND = words("*data", "*dims", "*strides", "nd", "*descr", "*owner")
# A dtype: how a Python number becomes an element (`DOUBLE` ...), within which bounds, the bytes of one, and whether
# each is an int of 64 bits.
DTYPE = words("*descr", "kind", "low", "high", "nbytes", "whole")
INTEGER, SINGLE, DOUBLE, TRUTH, COMPLEX, OTHER = range(6)
# A row: what takes over, whether it has gradients, NumPy's function, whether its operands may have several dtypes, and
# whether integers become the default float, then a `LOOP` for each dtype.
ROW = words("*fallback", "differentiable", "*ufunc", "arity", "mixes", "floats")
WRITE, WRITES = words("stamp", "known_user", "instruction"), 4096  # the last writes in place, by their stamps
# NumPy's inner loop, the dtype and the bytes of its results, and the elements that one may have.
LOOP = words("*loop", "*data", "*descr", "nbytes", "most")
COMPARISONS = ("lt", "le", "eq", "ne", "gt", "ge")  # in the order of CPython's numbers for them


def slot_of(method: str, does: str) -> str:
    """The name of the slot that a method is: `__radd__` is that of `__add__`."""
    name = method.strip("_")
    return "compare" if name in COMPARISONS else name[1:] if does == "reflected" or name == "rpow" else name
