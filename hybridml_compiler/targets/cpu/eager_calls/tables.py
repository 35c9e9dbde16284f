"""Tables that native methods read: operands, dtypes, rows and their loops, and the lines of writes."""

from __future__ import annotations

from ..structs import words

AXES = 16  # at most, of a result
MOST = 8192  # elements of a result; from here on a call in Python costs nothing beside the work

# Elements of numbers: where they are, and in what steps. Steps of axes that are looked at once are those of an array.
OPERAND = words("*data", "*dims", "*strides", "nd", "*descr", "*owner")
# A dtype: how a Python number becomes an element (`FLOATING` ...), within which bounds, and the bytes of one.
DTYPE = words("*descr", "kind", "low", "high", "nbytes")
INTEGER, SINGLE, DOUBLE, OTHER = 0, 1, 2, 3
# A row: what takes over, whether it has gradients, NumPy's function, then a `LOOP` for each dtype.
ROW = words("*fallback", "differentiable", "*ufunc", "arity")
WRITE, WRITES = words("stamp", "known_user", "instruction"), 4096  # the last writes in place, by their stamps
LOOP = words("*loop", "*data", "*descr", "nbytes")  # NumPy's inner loop, the dtype and the bytes of its results
