"""What a traced function tells its user: one line, at the user's line."""

from __future__ import annotations

import warnings

from hybridml_compiler.errors import TraceError, user_frame


class TraceWarning(UserWarning):
    """A traced function does something that compiled calls cannot do, and what happens instead."""


class Untraceable(TraceError):
    """A call that only eager execution does right: it is run so, and said once (an error with `strict=True`)."""


class Failed(BaseException):
    """A check did not hold in a compiled program, which has written nothing. Not for the `except` of a user."""


class Unrepeatable(Untraceable):
    """One that further calls with the same guards meet again: they are not traced."""


def report(message: str) -> None:
    """Warn at the line of the user that called the framework."""
    frame = user_frame()
    if frame is None:
        warnings.warn(message, TraceWarning, stacklevel=2)
    else:
        registry = frame.f_globals.setdefault("__warningregistry__", {})
        name = frame.f_globals.get("__name__", "__main__")
        warnings.warn_explicit(message, TraceWarning, frame.f_code.co_filename, frame.f_lineno, name, registry)
