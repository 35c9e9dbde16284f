"""Indices that kernels have found out of range: the error comes when the host next waits for the device.

To ask after each call would be to wait for each. So a kernel writes to a word of the host's memory, which the host
looks at when it has waited anyway: where a value is read, and in `synchronize`. By then the results of that call have
been used, as after an assert in CUDA; element 0 stood for what was not there. What the error says is what the CPU's
says: the integers that the calls were given are kept until then.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from types import CodeType
from typing import Any

import numpy as np

from ....aval import Aval
from ....errors import LOCATION, CompileError, OutOfBoundsError, describe_line, line_number, user_place
from ....locks import lock
from ...device import DeviceArray, PageLocked
from ..driver import Driver, Pointer, Stream

_WORDS = 512  # that are allocated at once; they are never another program's, whose kernels may run yet
_MOST_CALLS = 8  # of a program, whose arguments are kept
_MOST_BYTES = 1 << 20  # of an argument
Given = Sequence[DeviceArray | np.ndarray]


class Word:
    """Memory of the host that kernels write to."""

    __slots__ = ("address", "raw", "seen")
    nbytes, stream, users = 8, None, frozenset[Stream]()

    def __init__(self, raw: Any, seen: np.ndarray) -> None:
        self.raw, self.address, self.seen = raw, 0, seen


class Watch:
    """The word of a program, and its calls since it was looked at last."""

    def __init__(
        self, word: Word, avals: Sequence[Aval], explain: Callable[[Given], Exception], places: Sequence[str]
    ) -> None:
        self.word, self.pointer = word, Pointer(word, 0, 8)
        self.avals, self.explain, self.places = avals, explain, places
        self.kept = [k for k, a in enumerate(avals) if a.dtype.kind in "iu" and int(a.nbytes) <= _MOST_BYTES]
        self.calls: deque[tuple[list[DeviceArray], Any]] = deque(maxlen=_MOST_CALLS)  # and the user's place of each
        self.streams: set[int] = set()

    def failure(self) -> Exception | None:
        """The error of a call in which an index was out of range."""
        if not self.word.seen[0]:
            return None
        self.word.seen[0] = 0
        calls, self.calls = self.calls, deque(maxlen=_MOST_CALLS)
        found: Exception = OutOfBoundsError(LOCATION.join(["an index is out of range", *self.places]))
        for call, place in calls:
            arrays: list[Any] = [np.broadcast_to(np.zeros((), a.dtype), a.shape) for a in self.avals]
            for k, array in zip(self.kept, call, strict=True):
                arrays[k] = array
            error = self.explain(arrays)
            if not isinstance(error, CompileError):
                found = error if self.places or place is None else _at(error, *place)
                break
        found.is_late = True  # type: ignore[attr-defined]
        return found


def _at(error: Exception, code: CodeType, instruction: int) -> Exception:
    """An error with the line of the call, in place of that which has waited."""
    line = describe_line(code.co_filename, line_number(code, instruction))
    return type(error)(f"{str(error).partition(LOCATION)[0]}{LOCATION}{line}")


class Checks:
    """The programs of a device with calls that have not been looked at."""

    def __init__(self, driver: Driver) -> None:
        self._driver, self._lock = driver, lock()
        self._free: list[Word] = []
        self._kept: list[PageLocked] = []
        self._pending: dict[Watch, object] = {}

    def watch(self, avals: Sequence[Aval], explain: Callable[[Given], Exception], places: Sequence[str]) -> Watch:
        """The watch over a program of arrays of these types. `explain` gives the error of a call with some, of which
        only the integers are its own; `places` are its lines that may fail."""
        with self._lock:
            if not self._free:
                memory = self._driver.page_locked(8 * _WORDS)
                self._kept.append(memory)
                words = np.asarray(memory).view(np.int64)
                words[:] = 0
                parts = [words[k : k + 1] for k in range(_WORDS)]
                self._free = [Word(self._driver.mapped(part), part) for part in parts]
            return Watch(self._free.pop(), avals, explain, places)

    def note(self, watch: Watch, arrays: Sequence[DeviceArray], stream: Stream) -> None:
        """Notes that a call may find an index out of range."""
        watch.calls.append(([arrays[k] for k in watch.kept], None if watch.places else user_place()))
        watch.streams.add(id(stream))
        self._pending[watch] = None

    def tell(self, stream: Stream | None = None) -> None:
        """Raises what has been found in calls on this stream, which has been waited for; None: on all of them."""
        for watch in list(self._pending):
            if self._pending.pop(watch, self) is self:  # another thread looks at it
                continue
            error = watch.failure()
            if error is None and (stream is None or watch.streams == {id(stream)}):
                watch.calls.clear()
                watch.streams.clear()
                continue
            self._pending[watch] = None
            if error is not None:
                raise error
