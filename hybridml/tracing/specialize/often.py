"""Calls of one size that come often, to a program for any size: they get a program of their own, whose call is native.

It is compiled once its calls have taken twice as long as the program for any size took to compile: whoever comes with
other sizes in each call has that one for all, and for whoever stays with one size compiling takes about half as long as
the calls before it. (HotSpot compiles what is called often in the same way: Paleczny, Vick and Click, JVM 2001.)
"""

from __future__ import annotations

from hybridml_compiler.record import record

from .signature import Fields

MOST_KNOWN = 1 << 10  # signatures whose calls are counted
_LEAST_CALLS = 32
_TIMES = 2  # the time of compiling


@record(frozen=False)
class _Calls:
    """Calls of one signature so far."""

    count: int = 0
    seconds: float = 0.0


class Often:
    """The signatures whose calls come often, and the calls of others that programs for any size have taken."""

    def __init__(self) -> None:
        self._calls: dict[Fields, _Calls] = {}
        self._found: set[Fields] = set()

    def __contains__(self, key: Fields) -> bool:
        return key in self._found

    def add(self, key: Fields) -> None:
        self._found.add(key)

    def clear(self) -> None:
        self._calls.clear()
        self._found.clear()

    def called(self, key: Fields, seconds: float, to_compile: float) -> bool:
        """Notes a call; whether such calls come often by now. `to_compile`: the seconds that the program for any size
        has taken."""
        if key not in self._calls and len(self._calls) >= MOST_KNOWN:
            self._calls.clear()  # what comes often is soon there again
        known = self._calls.setdefault(key, _Calls())
        known.count += 1
        known.seconds += seconds
        is_often = known.count >= _LEAST_CALLS and known.seconds >= _TIMES * to_compile
        if is_often:
            self._calls.pop(key, None)
        return is_often
