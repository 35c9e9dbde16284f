"""The block of data behind an entry: names of its words and of the columns of its tables, and IR that reads them."""

from __future__ import annotations

WORD = 8

# The words of a block. Tables are pointers to rows elsewhere in the block.
HEADER = (
    "lock",
    "n_args",
    "fallback",
    "step",
    "on_status",
    "release_gil",
    "pointers",  # operands of the step
    "n_epochs",
    "epochs",
    "n_contexts",
    "contexts",
    "n_places",
    "places",
    "args",
    "tensor_type",
    "array_slot",
    "n_nones",
    "nones",
    "n_captured",
    "captured",
    "n_outputs",
    "outputs",
    "n_defaults",
    "defaults",
    "none",
    "float_type",
    "array_type",
)
EPOCH = ("address", "seen")  # of two numbers that must be equal
CONTEXT = ("variable", "expected")
ARG = ("kind", "expected", "nd", "dims", "target")  # target: the word of the pointer table, or of the float's cell
PLACE = ("kind", "owner", "key", "expected")  # see `entry_places`
CAPTURED = ("tensor", "array")
OUTPUT = ("descr", "nd", "dims", "target", "current", "lent", "handler")
DEFAULT = ("offset", "value")
TENSOR, CONSTANT, FLOAT = 0, 1, 2


def field(name: str, base: str, offset: int, kind: str = "ptr") -> str:
    """`%name = *(kind *)(base + offset)`"""
    return f"  %{name}.p = getelementptr i8, ptr {base}, i64 {offset}\n  %{name} = load {kind}, ptr %{name}.p"


def word(name: str, kind: str = "i64", source: str = "") -> str:
    """A word of the block's header."""
    return field(name, "%block", WORD * HEADER.index(source or name), kind)


def row(table: str, fields: tuple[str, ...], index: str, name: str) -> str:
    """`%name` = row `index` of the table."""
    return (
        f"  %{name}.at = mul i64 {index}, {WORD * len(fields)}\n"
        f"  %{name} = getelementptr i8, ptr {table}, i64 %{name}.at"
    )


def column(name: str, row: str, fields: tuple[str, ...], source: str, kind: str = "i64") -> str:
    return field(name, row, WORD * fields.index(source), kind)
