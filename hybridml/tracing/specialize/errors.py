"""Exceptions that end a trace or a compiled call early, and the warnings of a traced function, at the user's line."""

from __future__ import annotations

import dis
import traceback
from collections.abc import Mapping, Sequence
from types import CodeType
from typing import Any

from hybridml_compiler.errors import LOCATION, TraceError, describe_line, is_internal, warn

from ..python_state.libraries import is_library

# What to do instead, by the verb of what a function does that compiled calls cannot do.
_INSTEAD = {
    "asks": "Return the tensor and read it after the call, or use tensor operations; text of a number is made in every "
    "call where an f-string is only printed, kept or returned",
    "cannot": "Move that line out of the traced function; hm.trace(strict=True) raises its error",
    "changes": "Do that outside of the traced function: pass what it reads as an argument, return what it changes; a "
    "tensor may be updated in place: `average.mul_(0.9).add_(x)`",
    "computes with the NumPy array": "Do that before or after the call, or trace what is around it",
    "computes": "Do that after the call, with what the function returns, or pass the time as an argument",
    "logs": "Give the logger plain values, tensors without history and no exception",
    "prints": "Print plain values and tensors without history, with sep, end, flush and file alone",
    "has": "Pass what differs from call to call as a tensor: `retraces` of the function lists it",
    "takes": "Trace parts of it as functions of their own, or compile it with hm.trace(strict=True), in any time",
    "returns": "Return tensors, numbers and what there was before the call, and make the rest of them after it",
}


ASKS = "asks"  # of a loop: steps by themselves ask about data, so it is not parted
ASKED_ALONE = "asks alone"  # it is, after all

# What to do instead of what keeps a loop from being captured by one step for all, by words of the reason.
_OF_LOOPS = {
    "looked up by its number": "put what is looked up into an array before the loop, `values[i]`",
    "condition on its number": "end the loop where the condition changes, and begin another one",
    "changes its type": 'give it that type before the loop, `hm.tensor(0.0, dtype="float64")` for a float64 tensor',
    "a step sets": "ask for a flag with `if flag:` alone, or count in its place, `changed += 1`",
    "container or an object": "keep what a step changes in variables and in arrays",
    "prints or logs": "print after the loop",
    "a list": "fill an array, `out[n] = x`",
    "ways that a step may go": "choose without a question: `hm.where(c, x, y)`, `hm.maximum(x, y)`",
    "is asked for": "keep it a tensor: `n = x.astype(int)` before the loop, `out[n[i]]` in it",
    "is read after it": "assign it before the loop",
    "sets gradients": "take one gradient of a function that has the loop",
}
_OF_ANY = "write the loop so that one step stands for all, or use hm.scan"


def of_loop(message: str) -> str:
    """The advice for a message about a loop."""
    return next((instead for words, instead in _OF_LOOPS.items() if words in message), _OF_ANY)


class TraceWarning(UserWarning):
    """Warning that a traced function does something compiled calls cannot do, with what happens instead."""


class Untraceable(TraceError):
    """A call that only eager execution does right: it runs eagerly, as is said once (an error with `strict=True`)."""


class CheckFailed(BaseException):
    """A check did not hold in a compiled program, which has written nothing. Not for the `except` of a user."""


class FirstCall(CheckFailed):
    """A trace has met a lazy layer that has no values yet: Python makes this call, and the next one is traced."""


class NotCacheable(Untraceable):
    """An error that further calls with the same guards meet again: they are not traced."""


class RunEagerly(BaseException):
    """A trace has asked for too many values: the function is run eagerly. Not for the `except` of a user."""


class TakesLong(RunEagerly):
    """A trace has taken too long: it is given up for now. `patience`: what says when it is tried again."""

    patience: Any = None


class StepByStep(BaseException):
    """A loop cannot be captured by one step for all: the trace is done again, with that loop step by step, or in parts.
    `apart`: "first" or "last" for such a step by itself, numbers of steps with which parts begin, and ASKS."""

    stages = False

    def __init__(self, place: tuple[CodeType, int] | None, why: str, apart: Sequence[Any] = ()) -> None:
        which = "its loops"
        if place is not None:
            at, _, line = describe_line(place[0].co_filename, _line_of_loop(*place)).partition(": ")
            which = f"the loop `{line.rstrip(':')}` at {at}" if line else f"the loop at {at}"
        super().__init__(f"{which} ({why.splitlines()[0]})")
        self.place, self.apart = place, apart

    @property
    def says(self) -> bool:
        """Whether it says what to do otherwise than step by step."""
        return bool(self.apart) or self.stages

    def parts_again(self, notes: Mapping[Any, list[Any]]) -> bool:
        """Whether loops were not parted, and are now, as one cannot be captured so."""
        found = [of for of in notes.values() if ASKS in of and not self.apart]
        for of in found:
            of[:] = [ASKED_ALONE if note == ASKS else note for note in of]
        return bool(found)

    def refuse_if(self, keeps_loops: bool) -> None:
        """Gives up a program for any size, where those for one size have loops."""
        if keeps_loops:
            raise NotGeneralizable(why=f"{self} would be unrolled") from None


def _line_of_loop(code: CodeType, offset: int) -> int:
    """The line of a loop that begins at an instruction: of a `while`, whose condition is also at its end, a step may
    begin a line later."""
    jumps = [i.offset for i in dis.get_instructions(code) if "JUMP_BACKWARD" in i.opname and i.argval == offset]
    lines = [(start, end, n) for start, end, n in code.co_lines() if n is not None]
    return min((n for at in (offset, *jumps) for start, end, n in lines if start <= at < end), default=0)


class Staged(StepByStep):
    """A loop is inside of a transform: the trace is done again, with functions of transforms captured first."""

    stages = True

    def __init__(self) -> None:
        super().__init__(None, "it is inside of a transform")


class Filled(BaseException):
    """A trace has changed containers, and nothing else outside: it is done again with stand-ins in their places."""

    def __init__(self, containers: Sequence[Any]) -> None:
        self.containers = containers


class NotGeneralizable(BaseException):
    """A trace with symbols that is not right for the call at hand, or for no other sizes: nothing has been done yet.
    `fixed`: guards that leave symbols one value, by their names; `what`: what asks for that. Not for the `except` of a
    user."""

    def __init__(self, fixed: Mapping[str, Any] | None = None, why: str = "", what: str = "a number") -> None:
        self.fixed, self.why, self.what = dict(fixed or {}), why, what


class TraceFailed(BaseException):
    """A trace has raised an error of the user, or of code that takes no stand-in: Python makes the call again."""

    def __init__(self, entry: Any, error: Exception) -> None:
        super().__init__(error)
        self.entry = entry
        lines = [
            describe_line(frame.f_code.co_filename, number)
            for frame, number in traceback.walk_tb(error.__traceback__)
            if not (is_internal(frame.f_code.co_filename) or is_library(frame.f_globals.get("__name__", "")))
        ]
        self.what = f"{type(error).__name__}: {str(error).partition(LOCATION)[0]}; {lines[-1] if lines else ''}"


def refused(tracer: Any, why: str) -> BaseException:
    """The exception for a call that has to run eagerly; with strict=True an error."""
    if tracer.strict:
        return TraceError(f"{tracer.name} {why}; with strict=True that is an error")
    return RunEagerly(why)


def asks(ask: Any, why: str) -> str:
    """The message about a value that calls ask for, after which some run eagerly."""
    return f"asks ({ask.what}, {ask.where}) for a value that {why} run eagerly from now on"


def costs(message: str) -> str:
    """The message about calls that run eagerly, with what this costs and what to do instead."""
    instead = next((text for verb, text in _INSTEAD.items() if message.startswith(f"{verb} ")), None)
    if "the loop `" in message or "captures loops" in message:
        instead = f"Instead, {of_loop(message.partition('is unrolled, and so')[0])}"
    return f"{message}, in the time that they take without hm.trace{f'. {instead}' if instead else ''}"


def report(message: str) -> None:
    """Warns at the line of the user that called the framework."""
    warn(message, TraceWarning)
