"""Elements of queues, and the meanings of the rows of hybridml_compiler/ops/queues.py.

Waiting is in the order of those who have come, on either side. It ends with Ctrl-C, a timeout, and a deadline.
"""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from threading import Condition
from typing import Any, NamedTuple

import numpy as np

from hybridml_compiler.errors import ArgumentError, CancelledError, OutOfRangeError
from hybridml_compiler.hooks import hooks
from hybridml_compiler.runtime.host_callback import deadline_var
from hybridml_compiler.weak import WeakValues

from ..core.shared import given_back
from ..core.shared.calls import calls_of_thread, forget_calls, next_token

POLL = 0.05  # seconds between looks at the deadline of whoever waits
_numbers = itertools.count()
Arrays = tuple[np.ndarray, ...]


class Part(NamedTuple):
    """The type of a part of an element."""

    shape: tuple[int, ...]
    dtype: np.dtype

    def __str__(self) -> str:
        return f"{self.dtype}{list(self.shape)}"


class Stored:
    """The elements of a queue, and who waits for them."""

    def __init__(self, capacity: int, parts: Sequence[Part], name: str | None) -> None:
        self.capacity, self.parts = capacity, parts
        self.name = f"queue{next(_numbers)}" if name is None else name
        self.elements: deque[Arrays] = deque()
        self.is_closed = False
        self._changed = Condition()
        self._putting: deque[object] = deque()
        self._taking: deque[object] = deque()
        if known.add(self.name, self) is not self:
            raise ArgumentError(f"Queue: there is a queue {self.name!r}; choose another name, or keep to that queue")

    def put(self, elements: Sequence[Arrays], timeout: float | None) -> None:
        """Puts elements in, all at once."""

        def has_room() -> bool:
            return len(self.elements) + len(elements) <= self.capacity

        with given_back(), self._changed:
            if self.is_closed:
                raise CancelledError(f"enqueue: {self.name} is closed and takes no more elements; make another queue")
            self._wait(self._putting, has_room, timeout, "enqueue: no room")
            self.elements.extend(elements)

    def take(self, count: int, timeout: float | None) -> list[Arrays]:
        """Takes elements out, all at once."""

        def are_there() -> bool:
            if len(self.elements) >= count:
                return True
            if self.is_closed and not self._putting:
                left = len(self.elements)
                has = f"has {left} of the {count} elements asked for; take fewer" if left else "has no more elements"
                raise OutOfRangeError(
                    f"dequeue: {self.name} is closed and {has}; a loop over the queue ends there, elsewhere catch this"
                )
            return False

        with given_back(), self._changed:
            self._wait(
                self._taking, are_there, timeout, "dequeue: too few elements" if count > 1 else "dequeue: no element"
            )
            return [self.elements.popleft() for _ in range(count)]

    def close(self, cancel: bool) -> None:
        """Lets no new elements come, nor those that wait if they are cancelled."""
        with self._changed:
            self.is_closed = True
            if cancel:
                self._putting.clear()
            self._changed.notify_all()

    def _wait(self, line: deque[object], ready: Callable[[], bool], timeout: float | None, what: str) -> None:
        """Waits until it is this caller's turn in a line, and ready."""
        me, start = object(), time.monotonic()
        line.append(me)
        try:
            while not (line and line[0] is me and ready()):
                if me not in line:
                    raise CancelledError(f"enqueue: {self.name} was closed while this call waited, which was cancelled")
                waited = time.monotonic() - start
                if timeout is not None and waited >= timeout:
                    raise TimeoutError(
                        f"{what} within timeout={timeout:g} s: {self.name} has {len(self.elements)} of {self.capacity} "
                        "elements; is the other side running?"
                    )
                if (check := deadline_var.get()) is not None:
                    check()
                self._changed.wait(POLL if timeout is None else min(POLL, timeout - waited))
        finally:
            if me in line:
                line.remove(me)
            self._changed.notify_all()


known: WeakValues[str, Stored] = WeakValues()


def _enqueue(
    stored: Stored, x: np.ndarray, token: np.ndarray, *, part: int, last: bool, many: bool, timeout: float | None
) -> np.ndarray:
    made, before = next_token(), calls_of_thread().left[int(token)] if part else ()
    parts = (*before, x.copy())
    if last:
        stored.put(list(zip(*parts, strict=True)) if many else [parts], timeout)
    else:
        calls_of_thread().left[int(made)] = parts
    return made


def _dequeue(stored: Stored, token: np.ndarray, *, count: int | None, timeout: float | None) -> np.ndarray:
    made, elements = next_token(), stored.take(count or 1, timeout)
    calls_of_thread().left[int(made)] = (
        elements[0] if count is None else tuple(map(np.stack, zip(*elements, strict=True)))
    )
    return made


def _size(stored: Stored, token: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.asarray(len(stored.elements)), next_token()


def _close(stored: Stored, token: np.ndarray, *, cancel: bool) -> np.ndarray:
    stored.close(cancel)
    return next_token()


MEANINGS: Mapping[str, Callable[..., Any]] = {
    "enqueue": _enqueue, "dequeue": _dequeue, "queue_size": _size, "close_queue": _close,
}  # fmt: skip


def _effect(name: str, queue: str, operands: Sequence[np.ndarray], params: Mapping[str, Any]) -> Any:
    calls, token = calls_of_thread(), int(operands[-1])
    if name == "dequeued":
        return calls.left[token][params["part"]]
    made = calls.noted(name, token)
    if made is None:
        stored = known.get(queue)
        if stored is None:
            raise RuntimeError(f"{name}: there is no queue {queue!r} any more; keep it while programs call it")
        made = MEANINGS[name](stored, *operands, **params)
        calls.note(name, token, made)
    return made


hooks.effects["queue"] = _effect
hooks.forgetting.append(forget_calls)
