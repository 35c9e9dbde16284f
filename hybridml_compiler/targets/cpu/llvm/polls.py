"""Calls of `hml_poll` (runtime/polling.py)."""

from __future__ import annotations

from typing import Any

from ..runtime.thread_block import POLL
from . import ir
from .types import I64


def polled(b: ir.IRBuilder) -> Any:
    """Emits a poll; whether to stop."""
    return b.icmp_unsigned("!=", b.call(b.module.function(POLL, ir.FunctionType(I64, [])), []), ir.i64(0))
