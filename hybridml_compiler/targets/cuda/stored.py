"""A compiled program on disk: its plan with the sources of its kernels, under the key of its graph.

With it a process that compiles a graph which any process has compiled before plans nothing and writes no source: it
loads the machine code of each kernel, which the cache has under the source (nvrtc.py). Whoever can write to the cache
can run code as this user in any case (runtime/cache.py), so entries are pickles.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...dtypes import canonical
from ...loops.ir import KernelSpec
from ...record import fields, record, replace
from ...runtime import cache
from ...schedule.launch import Buffer, Launch, Plan
from .code import RegionSource
from .emit.kernel import Source
from .fallback import Interpreted

LARGEST = 64 << 20  # bytes of constants; a program with larger ones is planned again
_UNPICKLED = (pickle.PicklingError, AttributeError, RecursionError, TypeError)  # of what has no pickle

Code = Source | RegionSource | Interpreted | None


@record(eq=False)
class StoredProgram:
    """A plan without its nodes, and the code of its specs as the target has made it."""

    plan: Plan
    facts: dict[str, int]
    codes: Sequence[tuple[KernelSpec, Code]]

    def save(self, name: str) -> None:
        """Keeps the program for every process."""
        if sum(data.nbytes for data in self.plan.constants) > LARGEST:
            return
        data = io.BytesIO()
        try:
            _Pickler(data, pickle.HIGHEST_PROTOCOL).dump(self)
        except _UNPICKLED:
            return
        cache.put(name, data.getvalue())


def find(name: str) -> StoredProgram | None:
    """The program under this key; None where there is none, or none that can be read."""
    data = cache.get(name)
    if data is None:
        return None
    try:
        found = pickle.loads(data)
    except Exception:
        return None
    return found if isinstance(found, StoredProgram) else None


class _Pickler(pickle.Pickler):
    """Keeps fields of records and nothing that they have worked out, such as hashes, which are those of a process."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, np.dtype):
            return canonical, (value.name,)
        kind = type(value)
        if kind is Launch and value.nodes:
            value = replace(value, nodes=())
        elif kind is Buffer and value.node is not None:
            value = replace(value, node=None)
        if hasattr(kind, "__record_fields__"):
            return kind, tuple([getattr(value, name) for name in fields(kind)])
        return NotImplemented
