"""Texts of numbers that come with the call: `print(f"loss {loss.item():.3f}")`.

Python joins strings itself, so in a trace the text of a number is two characters that no text has, which stand for it
wherever the string only goes where each call can fill it in (see text_flow.py): into a list, an attribute, `print`, the
result. Anywhere else the number is asked for, and the program is specialized on it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from functools import partial
from types import FrameType
from typing import Any

from hybridml_compiler.errors import is_internal

from ...core.proxies.base import NumberProxy, Proxy
from ...core.tensor import Tensor
from ..python_state.libraries import is_library
from ..python_state.recorded import Recorder
from .selection import Selection
from .text_flow import is_told
from .tracer import current_tracer

_BEGIN = "\U0010ffff"  # that is no character
_FIRST, _MOST = 0x100000, 0xFFFD  # of the characters that Unicode leaves to anybody
_MARK = re.compile(f"{_BEGIN}([{chr(_FIRST)}-{chr(_FIRST + _MOST)}])")

# The modules between a user's f-string and the text.
_WAY = frozenset(f"hybridml.{name}" for name in (
    "core.proxies.base", "core.proxies.scalar", "core.proxies.integer", "core.proxies.late", "core.tensor",
    "display.tensors", "tracing.capture.program_arrays",
))  # fmt: skip

Text = tuple[Callable[[Any], str], Any]  # what makes it, and the number


def _text_of(number: Any, op: Callable[[Any], str], formats: bool) -> str | None:
    """The mark that stands for a text; None where the text must be known."""
    tracer = current_tracer()
    if tracer is None or tracer.only_kept is None or tracer.frames or len(tracer.texts) > _MOST:
        return None
    frame = _asking()
    if frame is None or not is_told(frame, tracer.root, tracer.only_kept, formats):
        return None
    if issubclass(type(number), Tensor):
        number = tracer.wrap(tracer.lift(number)._array)  # as it is now
    else:
        op(number.__class__(0))  # raises for a specification that no such number takes
    tracer.texts.append((op, number))
    return _BEGIN + chr(_FIRST + len(tracer.texts) - 1)


def _asking() -> FrameType | None:
    """The frame of the user that makes a text; None where a library does, or our own code for what it writes."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and is_internal(frame.f_code.co_filename):
        if frame.f_globals.get("__name__") not in _WAY:
            return None
        frame = frame.f_back
    return None if frame is None or is_library(frame.f_globals.get("__name__", "")) else frame


NumberProxy.text_of = staticmethod(_text_of)


def has_text(texts: Sequence[Text], *leaves: Any) -> bool:
    """Whether a leaf is a string with the text of a number in it."""
    return bool(texts) and any(type(leaf) is str and _MARK.search(leaf) for leaf in leaves)


def parts_of(texts: Sequence[Text], leaf: Any) -> tuple[Callable[..., Any], Sequence[Any]] | None:
    """The function that makes a leaf when the call ends, and its arguments; None for a leaf that is there."""
    if issubclass(type(leaf), Proxy | Selection) and (made := leaf.late()) is not None:
        return made
    if issubclass(type(leaf), Recorder):  # its container
        return partial(getattr, leaf, "of"), ()
    if not has_text(texts, leaf):
        return None
    pieces = _MARK.split(leaf)
    found = [texts[ord(mark) - _FIRST] for mark in pieces[1::2]]
    return partial(_filled, pieces[::2], [op for op, _ in found]), [number for _, number in found]


def _filled(between: Sequence[str], ops: Sequence[Callable[[Any], str]], *values: Any) -> str:
    texts = [op(value) for op, value in zip(ops, values, strict=True)]
    return "".join([part for pair in zip(between, [*texts, ""], strict=True) for part in pair])
