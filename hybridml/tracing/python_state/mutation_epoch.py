"""A counter that moves whenever an attribute that a traced function may have read is assigned.

`Module` and `Optimizer` bump it in `__setattr__`; a traced function checks the attributes it has read again only when
it has moved, so that a call whose modules are unchanged pays for one comparison.
"""

from __future__ import annotations

import ctypes

# A C integer and not a Python one: native entries compare it in place.
epoch = ctypes.c_int64(0)


def attributes_changed() -> None:
    """Notes that an attribute of a module or optimizer was assigned, deleted or switched (`training`, hooks)."""
    epoch.value += 1
