"""Tracebacks that show the user's frames, not the framework's (`HYBRIDML_TRACEBACK=full` shows all).

Each door to the framework (a row's function, a module's call, a traced function) takes our frames out of an error that
leaves it, and raises it again with a bare `raise`, which adds no frame: what is left ends at the user's line.
"""

from __future__ import annotations

from types import TracebackType

from hybridml_compiler import config
from hybridml_compiler.errors import CompileError, HybridmlError, is_internal


def shorten(error: BaseException) -> None:
    """Takes the framework's frames out of the traceback of an error.

    An error that our own code made by mistake keeps them all: they are what has to be looked at.
    """
    frames = []
    at = error.__traceback__
    while at is not None:
        frames.append(at)
        at = at.tb_next
    meant = isinstance(error, HybridmlError) and not isinstance(error, CompileError)
    if not frames or (_is_ours(frames[-1]) and not meant) or config.read().traceback == "full":
        return
    chain: TracebackType | None = None
    for frame in reversed(frames):
        if not _is_ours(frame):
            chain = TracebackType(chain, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    error.__traceback__ = chain


def _is_ours(frame: TracebackType) -> bool:
    return is_internal(frame.tb_frame.f_code.co_filename)
