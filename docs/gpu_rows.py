"""The page that says which operations a GPU computes by kernels, which by CuPy, and which the host computes."""

from __future__ import annotations

from collections import Counter

import numpy as np

from hybridml_compiler.ops.table import OPS
from hybridml_compiler.targets.cuda.libraries.cupy_rows import ROWS

HEADER = """\
# [Note: Rows on a GPU]

Generated from the operation table and `targets/cuda/libraries/cupy_rows.py` by `make docs`: do not edit.

**Kernels** are generated for all rows of the kinds
{kinds}.
Tests run every row on the simulated device, and demand a kernel of each loop nest. A choice, and a loop whose steps a
value decides, reads that value on the host, between two graphs; what is in it is computed as below and above.

**CuPy** computes the rows that follow, where their operands are and without a copy of them to the host, between two
graphs: no library that it asks can be recorded as CuPy calls it. Where it refuses a matrix, a library is missing on the
machine (`hm.explain` says so), or an operand is empty, NumPy is asked. All of this was written from CuPy's sources and
has run on a stand-in for it, not on a GPU. On the simulated device NumPy computes them in the device's memory.

| row | library | dtypes |
|---|---|---|
"""

HOST = """
**The host** computes
{rows},
and complex numbers of rows without `complex_kernels` (see `ops/op.py`): operands are copied down, results up.
`hm.explain` says so of each launch.
"""


def page() -> str:
    """The note, from the tables."""
    kinds = Counter(op.kind for op in OPS.values())
    del kinds["opaque"]
    rows = [f"| `{name}` | {row.needs} | {_names(row.dtypes)} |" for name, row in ROWS.items()]
    left = [f"`{op.name}`" for op in OPS.values() if op.kind == "opaque" and op.name not in ROWS]
    head = HEADER.format(kinds=", ".join(f"{kind} ({n})" for kind, n in sorted(kinds.items())))
    return head + "\n".join(rows) + "\n" + HOST.format(rows=f"{', '.join(left[:-1])} and {left[-1]}")


def _names(characters: str) -> str:
    """``?bf`` -> bool, int8, float32; a name each."""
    return ", ".join(dict.fromkeys(np.dtype(character).name for character in characters))
