"""The form of a loop nest that combines updates with elements at indices, as those of rows (see scatter.py).

    for m < 16384 { for j < 64 { y[i[m]*64 + j] = y[i[m]*64 + j] + u[m*64 + j] } }

The variables that an index varies with (`m`) number the updates of rows; those along which it does not (`j`) are the
elements of a row. A position is `step * key + elsewhere`, where the key is the number of the row.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from .... import dtypes
from ....loops.builder import LoopBuilder
from ....loops.dependence import counts_up
from ....loops.index import affine_terms
from ....loops.ir import Expr, For, Kernel, Store, extent, nested, perfect_nest
from ....record import record
from ....sizes.dims import is_dim

_LEAST = 16  # updates of a row's element that a thread does not make one after the other
_MOST = (1 << 31) - 1 - (1 << 20)  # of updates, and of rows: they are numbered in 32 bits
_ATOMIC = {"add": "atomicAdd", "minimum": "atomicMin", "maximum": "atomicMax"}


@record(eq=False)
class Scatter:
    """A store of a loop nest, whose variables are those of an update and those of a row's elements."""

    kernel: Kernel
    store: Store
    updates: tuple[Expr, ...]
    along: tuple[Expr, ...]
    key: Expr
    step: int
    elsewhere: Expr

    @property
    def count(self) -> int:
        """The number of updates of rows."""
        return count_of(self.updates)

    @property
    def rows(self) -> int:
        assert self.key.high is not None
        return int(self.key.high) + 1

    @property
    def width(self) -> int:
        """The number of elements of a row."""
        return count_of(self.along)

    @property
    def is_short(self) -> bool:
        """Whether it is one launch of threads that make the updates of an element one after the other."""
        return not self.atomic and (self.count < _LEAST or max(self.count, self.rows) > _MOST)

    @property
    def atomic(self) -> str:
        """The atomic update that means the same in any order; nothing where there is none."""
        value, dtype = self.store.value, self.store.buffer.dtype
        whole = dtype.kind in "iu" and dtype.itemsize >= 4 and self.update is not None
        return _ATOMIC.get(value.op, "") if whole else ""

    @property
    def own(self) -> Expr | None:
        """The element as it was, where the value is a combination of it and of something else."""
        found = [x for x in self.store.value.args if self.is_own(x)]
        return found[0] if len(found) == 1 and len(self.store.value.args) == 2 else None

    @property
    def update(self) -> Expr | None:
        """The other operand of the update."""
        return None if self.own is None else next(x for x in self.store.value.args if x is not self.own)

    def is_own(self, value: Expr) -> bool:
        return value.op == "load" and value.attr.name == self.store.buffer.name

    @property
    def sets(self) -> bool:
        """Whether the last update of an element is all of it."""
        return not any(map(self.is_own, self.kernel.expressions))


def scatter_of(kernel: Kernel) -> Scatter | None:
    """The form of a loop nest whose loops are serial; None where an iteration does not need the one before it."""
    loops, body = perfect_nest(kernel.body)
    if len(body) != 1 or not isinstance(store := body[0], Store) or any(loop.kind != "serial" for loop in loops):
        return None
    if kernel.symbolic or kernel.scratch:
        return None
    own = [e for e in kernel.expressions if e.op == "load" and e.attr.name == store.buffer.name]
    if any(e.args != (store.index,) for e in own):
        return None
    terms, constant = affine_terms(store.index)
    variables = [loop.var for loop in loops]
    moved = {var for part in terms if part.op != "var" for var in part.depends}
    updates = tuple(var for var in variables if var in moved or var not in terms)
    along = tuple(var for var in variables if var not in updates)
    if not moved.intersection(variables) or any(is_dim(n) or n < 1 for n in terms.values()):
        return None
    own_terms = {part: factor for part, factor in terms.items() if part not in along}
    if any(part.low is None or part.high is None or is_dim(part.high) for part in own_terms):
        return None
    s, step = LoopBuilder(), math.gcd(*own_terms.values())
    key, elsewhere = (
        _sum(s, {part: n // step for part, n in own_terms.items()}, 0),
        _sum(s, {v: terms[v] for v in along}, constant),
    )
    if key.low is None or key.low < 0 or not counts_up({key: step, **{v: terms[v] for v in along}}, {*variables}):
        return None
    return Scatter(kernel, store, updates, along, key, step, elsewhere)


def count_of(variables: Sequence[Expr]) -> int:
    """The number of iterations over all of these variables."""
    return math.prod(int(extent(var)) for var in variables)


def _sum(s: LoopBuilder, terms: dict[Expr, int], constant: int) -> Expr:
    total = s.const(constant, dtypes.int64)
    for part, factor in terms.items():
        total = s.add(total, s.mul(part, factor))
    return total


def scattered(kernel: Kernel) -> Scatter | None:
    """The form of a loop nest that is several launches, or one of atomic updates."""
    found = scatter_of(kernel)
    return None if found is None or found.is_short else found


def rows_first(found: Scatter) -> Kernel:
    """The loop nest with the loops over the elements of a row round those over the updates: they are independent."""
    order = [For(var, ()) for var in (*found.along, *found.updates)]
    return found.kernel.rescheduled(body=nested(order, (found.store,)))
