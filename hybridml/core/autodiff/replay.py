"""Sources of random numbers: generators, or a first run whose numbers are drawn again.

A draw takes blocks of counters from the state of a generator, (key, counter), which goes on behind them. The first run
of a checkpointed function notes the blocks that its draws take; in the second run they are given the same ones, and no
generator moves: other threads may draw meanwhile. Inside a trace nothing runs beside it, and states are set back there
instead (see `transforms/checkpoint.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from hybridml_compiler.errors import GradientError
from hybridml_compiler.record import record, replace

from ..context import no_grad
from ..shared import drawing
from ..tensor import Tensor

_LAST = 2**64 - 1  # counter; the first one comes after it
# Whether the code that runs now will run again, for its gradient.
runs_again: ContextVar[bool] = ContextVar("hybridml_runs_again", default=False)


@record(frozen=False)
class Blocks:
    """Counters from `start` to before `end`, of a key."""

    key: int
    start: int
    end: int


class Generators:
    """The usual source: draws move the generators."""

    def get(self, state: Tensor) -> np.ndarray:
        """A copy of the state from which the next draw begins."""
        with drawing:
            return state._array.copy()

    def set(self, state: Tensor, value: Tensor) -> None:
        """Lets the next draw begin from another state."""
        with no_grad(), drawing:
            state.copy_(value)

    def take(self, state: Tensor, count: int, start: np.ndarray) -> int:
        """Writes into `start` where a draw of so many blocks begins. Returns the counter after it, where the next
        begins."""
        array = state._array
        with drawing:
            start[:] = array
            array[1] = after = (array.item(1) + count) & _LAST  # 0.3 us less than an addition of arrays
        return after

    def give_back(self, state: Tensor, count: int, after: int) -> None:
        """Undoes `take`, which returned `after`. Not if others have drawn since."""
        array = state._array
        with drawing:
            if array.item(1) == after:
                array[1] = (after - count) & _LAST

    def alone(self, states: Sequence[Tensor]) -> AbstractContextManager[Any]:
        """A context in which this thread alone reads and writes the states."""
        return drawing


class Recording(Generators):
    """The source in a first run: draws come from the source around it, and are noted."""

    def __init__(self) -> None:
        self.around = source()
        self.taken: dict[int, tuple[Tensor, list[Blocks]]] = {}  # by the id of the state

    def get(self, state: Tensor) -> np.ndarray:
        return self.around.get(state)

    def set(self, state: Tensor, value: Tensor) -> None:
        self.around.set(state, value)

    def take(self, state: Tensor, count: int, start: np.ndarray) -> int:
        after = self.around.take(state, count, start)
        key, first = start.tolist()
        self._note(state, key, first, first + count)
        return after

    def give_back(self, state: Tensor, count: int, after: int) -> None:
        self.around.give_back(state, count, after)
        self.taken[id(state)][1][-1].end -= count

    @contextmanager
    def alone(self, states: Sequence[Tensor]) -> Iterator[Any]:
        with self.around.alone(states):
            before = [state._array.tolist() for state in states]
            yield
            for state, (key, start) in zip(states, before, strict=True):
                now, end = state._array.tolist()
                self._note(state, key, start, end if now == key else start)

    def _note(self, state: Tensor, key: int, start: int, end: int) -> None:
        _, taken = self.taken.setdefault(id(state), (state, []))
        if taken and taken[-1].key == key and taken[-1].end == start:
            taken[-1].end = end  # a compiled program takes at once what eager code takes in parts
        elif end != start:
            taken.append(Blocks(key, start, end))


class Replay(Generators):
    """The source in a second run: draws get the blocks that the first one took."""

    def __init__(self, first: Recording) -> None:
        self._left = {at: (state, [replace(b) for b in taken]) for at, (state, taken) in first.taken.items()}

    def get(self, state: Tensor) -> np.ndarray:
        if id(state) not in self._left:  # of a generator that the function has made
            return super().get(state)
        blocks = self._next(state)
        return np.array([blocks.key, blocks.start], np.uint64)

    def set(self, state: Tensor, value: Tensor) -> None:
        if id(state) not in self._left:
            return super().set(state, value)
        key, start = value.numpy().tolist()
        self._left[id(state)] = state, [Blocks(key, start, 2**64)]

    def take(self, state: Tensor, count: int, start: np.ndarray) -> int:
        if id(state) not in self._left:
            return super().take(state, count, start)
        blocks = self._next(state)
        start[:] = blocks.key, blocks.start
        self._go_on(blocks, blocks.start + count)
        return blocks.start

    def give_back(self, state: Tensor, count: int, after: int) -> None:
        if id(state) not in self._left:
            return super().give_back(state, count, after)
        self._left[id(state)][1][0].start -= count

    @contextmanager
    def alone(self, states: Sequence[Tensor]) -> Iterator[Any]:
        arrays = {id(state): state._array for state in states if id(state) in self._left}
        with drawing:
            outer = {at: array.copy() for at, array in arrays.items()}
            try:
                blocks = {at: self._next(state) for at, (state, _) in self._left.items() if at in arrays}
                for at, b in blocks.items():
                    arrays[at][:] = b.key, b.start
                yield
                for at, b in blocks.items():
                    self._go_on(b, int(arrays[at][1]))
            finally:
                for at, array in arrays.items():
                    array[:] = outer[at]

    def _next(self, state: Tensor) -> Blocks:
        _, left = self._left[id(state)]
        while len(left) > 1 and left[0].start == left[0].end:
            del left[0]
        return left[0] if left else Blocks(0, 0, 0)

    def _go_on(self, blocks: Blocks, start: int) -> None:
        if start > blocks.end:
            raise GradientError(
                "checkpoint: the function drew other random numbers when it was computed again for the gradient: "
                f"{start - blocks.start} blocks of a generator where the first run took {blocks.end - blocks.start}. "
                "It must do the same in both runs"
            )
        blocks.start = start


_generators = Generators()
_source: ContextVar[Generators] = ContextVar("hybridml_draws", default=_generators)
source = _source.get


@contextmanager
def drawing_from(run: Generators) -> Iterator[None]:
    """A context in which this thread's draws take their numbers from a run."""
    token = _source.set(run)
    try:
        yield
    finally:
        _source.reset(token)
