"""The block of data behind an entry: the words of its header, and the columns of its tables."""

from __future__ import annotations

from hybridml_compiler.targets.cpu.structs import words

# Tables are pointers to rows elsewhere; `n_x` is the number of rows of `x`.
HEADER = words(
    "*lock", "*fallback", "*step", "*on_status", "release_gil", "*pointers",  # operands of the step
    "n_args", "*args", "n_epochs", "*epochs", "n_contexts", "*contexts", "n_places", "*places",
    "*tensor_type", "array_slot", "n_nones", "*nones", "n_captured", "*captured",
    "n_outputs", "*outputs", "n_defaults", "*defaults", "*none", "*float_type", "*array_type", "*tuple_type",
    "n_results", "*results", "n_updated", "*updated", "n_apart", "*apart", "*stamps", "*list_type",
)  # fmt: skip
EPOCH = words("*address", "*seen")  # of two numbers that must be equal
CONTEXT = words("*variable", "*expected")
ARG = words("kind", "*expected", "nd", "*dims", "*target")  # target: the word of the pointer table, or the float's cell
PLACE = words("kind", "*owner", "key", "expected")  # see places.py
CAPTURED = words("*tensor", "array")
OUTPUT = words("*expected", "nd", "*dims", "*target", "*current", "*lent", "*handler")  # expected: null for a number
RESULT = words("kind", "*of", "number")  # of: the row of an output, the number in memory, the object
# By number, arguments before captured tensors: what is written to, and what has no memory in common.
UPDATED, APART = words("tensor"), words("first", "second")
STAMPS = words("*clock", "*writes", "*known_user", "*known_number", "*helper", "*caller", "*called", "version")
DEFAULT = words("offset", "*value")
# TUPLE: of the objects in `dims`; NUMBER: a float with the bits in `nd`.
TENSOR, CONSTANT, FLOAT, TUPLE, NUMBER = 0, 1, 2, 3, 4
RESULTS = ("output", "float", "int", "bool", "argument", "object")  # numbers are doubles in memory, and a bool
