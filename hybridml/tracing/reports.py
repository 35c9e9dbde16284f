"""Reports of a traced function: warnings, once each, and the reasons why it was traced again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from hybridml_compiler.config import is_deterministic

from ..core.context import watch_var
from .specialize import errors
from .specialize.eager_calls import MANY_PROGRAMS, MANY_SEGMENTS, Spending, Trial
from .specialize.entry import Entry
from .specialize.path_tree import ValueBranch, advice

MOST_PROGRAMS = 256  # compiled programs of one function
MOST_OTHERS = 8  # values of one question that never came again: what follows is another number each time


class Reports:
    """Part of `TracedFunction`."""

    _name: str
    _silent: bool
    _strict: bool
    _most: int
    _hits: int
    _spending: Spending
    _programs: Callable[[], int]

    def _begin_reports(self) -> None:
        self._reported: set[str] = set()
        self._retraces: list[str] = []
        self._changes: Counter[str] = Counter()  # what was another value -> how often

    @property
    def retraces(self) -> tuple[str, ...]:
        """Reasons why calls after the first were traced, a line for each (also in the log "hybridml", level INFO).

        >>> import hybridml as hm
        >>> f = hm.trace(lambda x, n: x * n)
        >>> y = f(hm.tensor([1.0]), 3), f(hm.tensor([1.0]), 4)
        >>> f.retraces
        ('<lambda> retraced: argument n 3 -> 4: now for any n',)
        """
        return tuple(self._retraces)

    def _count(self, why: str, is_last: bool) -> None:
        """Says once that one Python value makes program after program (`is_last`: it will make no other one)."""
        if is_last:
            return
        changed, arrow, _ = why.partition(" -> ")
        what = changed.rpartition(" ")[0]
        self._changes[what] += 1 if arrow else 0
        if self._changes[what] == MOST_OTHERS and not self._silent:
            self._report(
                f"has been traced {MOST_OTHERS} times because another value was found ({why}): no new program is "
                "needed for a number in a tensor, or for one that is an argument, a variable, an attribute or an item"
            )

    def _note(self, reason: str) -> None:
        """Adds one line to `retraces`, and to the log, where functions of the library are no news."""
        if len(self._retraces) < MOST_PROGRAMS:
            self._retraces.append(f"{self._name} retraced: {reason}")
        import logging  # 2 ms

        level = logging.DEBUG if self._silent else logging.INFO
        logging.getLogger("hybridml").log(level, "%s retraced: %s", self._name, reason)

    def _report_eager(self, message: str) -> None:
        self._report(errors.costs(message))

    def _report(self, message: str) -> None:
        """Warns the user, once for each message."""
        if message not in self._reported:
            self._reported.add(message)
            errors.report(f"{self._name} {message}")

    def _may_grow(self, entry: Entry, ask: ValueBranch) -> bool:
        """Whether an unknown value is traced. Otherwise its calls are eager, which is said once."""
        if ask.hopeless(MOST_OTHERS):
            entry.eager = True
            if not self._spending.told:
                self._report_eager(errors.asks(ask, f"was another one in {ask.values} calls: calls like this one"))
            return False
        if self._waits(lambda: f"{ask.what} at {ask.where} is another than before"):
            return False
        if self._programs() < self._most:
            self._note(f"{ask.what} at {ask.where} is another than before")
            self._tell_of_many(entry, ask)
            return True
        self._report_eager(errors.asks(ask, f"leads to more than {self._most} programs: calls with further values"))
        return False

    def _tell_of_many(self, entry: Entry, ask: ValueBranch) -> None:
        """Says once that most calls are compiled, for other values of what they ask for."""
        told = self._silent or self._spending.told or not self._spending.is_costly
        few = ask.node.dtype.kind == "b" and entry.asks < MANY_SEGMENTS  # ways of an `if`, which are soon known
        if told or not self._spending.are_many(self._hits, MOST_OTHERS if few else MANY_PROGRAMS):
            return
        self._spending.told = True
        loop = next(iter(entry.step_by_step.values()), "")
        why = f"{ask.what} at {ask.where} is another than before{f', and {loop} is unrolled' if loop else ''}"
        then = "calls run eagerly where that goes on"
        instead = errors.of_loop(loop) if loop else advice(ask.what)
        self._report(f"is compiled for the data of most calls ({why}); {then}. Instead, {instead}")

    def _waits(self, why: Callable[[], str]) -> bool:
        """Whether a call that needs another program runs eagerly, as most calls need one; said once."""
        if self._strict or self._silent or is_deterministic() or not self._spending.waits(self._hits):
            return False
        if not self._spending.told:
            self._spending.told = True
            self._report_eager(
                f"needs another program in most calls ({why()}): such calls run eagerly until they have taken as long "
                "as the last program took to compile"
            )
        return True

    def _trial(self, entry: Entry) -> Trial | None:
        """The trial of an entry, while it lasts: it runs eagerly from then on, if its program is slower."""
        trial = entry.trial
        if trial is None or not trial.is_over:
            return None if watch_var.get() is not None else trial
        entry.trial = None
        if slower := trial.slower():
            entry.eager = True
            self._report(f"{slower}: calls like this one run eagerly from now on")
        return None
