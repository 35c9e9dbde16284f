"""Tracebacks that show the user's frames, not the framework's (`HYBRIDML_TRACEBACK=full` shows all).

Frames of ours go where an error is shown: the hooks of the interpreter, of threads and of IPython print it without
them, and hand it back as it was, so that a debugger finds every frame. It is the one place that all errors pass, of
functions, methods and constructors alike, and costs nothing where none is raised. The decorators of JAX and TensorFlow,
which take frames out as an error leaves the library, add a frame to each call, and what they have taken is lost.

Doors that are there for another reason (an operation's generated function, a module's call, a traced function) do it
as well, since an `except` costs nothing there: those errors are short in logs and test reports too. They raise the
error again with a bare `raise`, which adds no frame: what is left ends at the user's line.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from hybridml_compiler import config
from hybridml_compiler.errors import CompileError, HybridmlError, is_internal, is_ours

# What Python says of arguments that a function does not have; those of our functions are passed on by wrappers of ours.
_BINDING = re.compile(r"[\w.<>]+\(\) (got|takes|missing) ")
_PRIVATE = "hybridml.tracing.specialize.errors"  # exceptions that end a trace, and no call of the user's


def shorten(error: BaseException) -> None:
    """Takes the framework's frames out of the traceback of an error, and the errors that it has dealt with.

    An error that our own code made by mistake keeps them all: they are what has to be looked at.
    """
    frames = list(_frames(error))
    if not any(map(_is_ours, frames)) or not _is_meant(error, frames[-1]) or config.field("traceback") == "full":
        return
    chain: TracebackType | None = None
    for frame in reversed(frames):
        if not is_internal(_file(frame)):
            chain = TracebackType(chain, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    error.__traceback__ = chain
    while error.__context__ is not None and _is_dealt_with(error.__context__):
        error.__context__ = error.__context__.__context__


@contextmanager
def shortened(error: BaseException) -> Iterator[None]:
    """Shortens an error and those before it for as long as they are shown."""
    kept = [(link, link.__traceback__, link.__context__) for link in _linked(error)]
    try:
        for link, frames, _ in kept:
            shorten(link)
            link.__traceback__ = link.__traceback__ or frames  # all in a thread of ours
        yield
    finally:
        for link, frames, context in kept:
            link.__traceback__, link.__context__ = frames, context


def install() -> None:
    """Shows uncaught errors without our frames: in scripts, in threads, and in IPython where it runs."""
    sys.excepthook = _for_interpreter(sys.excepthook)
    threading.excepthook = _for_threads(threading.excepthook)
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is not None:
        shell.showtraceback = _for_ipython(shell.showtraceback)


def _for_interpreter(show: Callable[..., Any]) -> Callable[..., Any]:
    def excepthook(kind: type[BaseException], error: BaseException | None, frames: TracebackType | None) -> None:
        if error is None or frames is not error.__traceback__:  # the caller has chosen what is shown
            return show(kind, error, frames)
        with shortened(error):
            show(kind, error, error.__traceback__)

    return excepthook


def _for_threads(show: Callable[..., Any]) -> Callable[..., Any]:
    def excepthook(raised: threading.ExceptHookArgs) -> None:
        error = raised.exc_value
        if error is None:
            return show(raised)
        with shortened(error):
            show(threading.ExceptHookArgs((raised.exc_type, error, error.__traceback__, raised.thread)))

    return excepthook


def _for_ipython(show: Callable[..., Any]) -> Callable[..., Any]:
    def showtraceback(exc_tuple: Any = None, *args: Any, **kwargs: Any) -> None:
        error = exc_tuple[1] if exc_tuple else sys.exception() or getattr(sys, "last_value", None)
        if not isinstance(error, BaseException):
            return show(exc_tuple, *args, **kwargs)
        with shortened(error):
            show((type(error), error, error.__traceback__), *args, **kwargs)

    return showtraceback


def _frames(error: BaseException) -> Iterator[TracebackType]:
    at = error.__traceback__
    while at is not None:
        yield at
        at = at.tb_next


def _linked(error: BaseException) -> list[BaseException]:
    """An error with its causes, its contexts and the members of groups, each once."""
    found: dict[int, BaseException] = {}
    todo: list[BaseException | None] = [error]
    while todo:
        link = todo.pop()
        if link is not None and id(link) not in found:
            found[id(link)] = link
            todo += link.__cause__, link.__context__, *(link.exceptions if isinstance(link, BaseExceptionGroup) else ())
    return list(found.values())


def _is_meant(error: BaseException, last: TracebackType) -> bool:
    """Whether an error is for the user: raised on purpose, by the user's own code, or by the user's arguments."""
    if isinstance(error, CompileError | AssertionError):
        return not _is_ours(last)
    if isinstance(error, HybridmlError | Warning) or not isinstance(error, Exception) or not _is_ours(last):
        return True
    from opcode import opname

    if opname[last.tb_frame.f_code.co_code[last.tb_lasti]] == "RAISE_VARARGS":
        return True
    return isinstance(error, TypeError) and _BINDING.match(str(error)) is not None


def _is_dealt_with(context: BaseException) -> bool:
    """Whether an error was caught by our code and tells the user nothing: it met our frames alone, or is private."""
    frames = list(_frames(context))
    if not frames or not _is_ours(frames[0]):
        return False
    return type(context).__module__ == _PRIVATE or all(map(_is_ours, frames))


def _is_ours(frame: TracebackType) -> bool:
    return is_ours(_file(frame))


def _file(frame: TracebackType) -> str:
    return frame.tb_frame.f_code.co_filename
