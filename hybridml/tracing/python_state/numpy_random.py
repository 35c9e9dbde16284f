"""NumPy's random generators, without importing them: that takes 9 ms, and few programs have to do with them."""

from __future__ import annotations

import pickle
import sys
from typing import Any

import numpy as np


class _Unused:
    """Stands for NumPy's global generator before anything has imported `numpy.random`, which a trace may do."""

    def state(self) -> bytes | None:
        """None as long as nothing has drawn from the generator or seeded it, else its state."""
        if not imported():
            return None
        now = pickle.dumps(np.random.mtrand._rand.get_state(legacy=False))
        return None if now == pickle.dumps(_first_state()) else now

    def set_back(self) -> None:
        """Undoes draws since the import. A seed that it has got stays."""
        first = _first_state() if imported() else None
        if first is not None:
            np.random.mtrand._rand.set_state(first)


def _first_state() -> dict[str, Any] | None:
    """The state that the global generator had when it was imported; None where it has been seeded."""
    sequence: Any = np.random.mtrand._rand._bit_generator.seed_seq
    return None if sequence is None else np.random.RandomState(np.random.MT19937(sequence)).get_state(legacy=False)


UNUSED = _Unused()


def imported() -> bool:
    """Whether there are generators."""
    return "numpy.random" in sys.modules


def global_generator() -> Any:
    """The generator that functions of `numpy.random` draw from, or what stands for it."""
    return np.random.mtrand._rand if imported() else UNUSED


def is_global_generator(obj: Any) -> bool:
    """Whether an object is that generator, or stands for it."""
    return obj is UNUSED or (imported() and obj is np.random.mtrand._rand)


def generators() -> tuple[Any, ...]:
    """The class of NumPy's generators, for `isinstance`; none before there are any."""
    return (np.random.Generator,) if imported() else ()


def legacy_generators() -> tuple[Any, ...]:
    """The same for those of the kind of the global one."""
    return (np.random.RandomState,) if imported() else ()
